"""Take the pictures of pages: python docs/images/take.py PAGE FOLDER NAME.

PAGE is a file, or the address that dpadmm status --serve prints.

Needs Chromium, and what the tests are installed with (playwright, pillow).
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
VIEWS = {
    "light": ({"width": 1160, "height": 680}, "light"),
    "dark": ({"width": 1160, "height": 680}, "dark"),
    "phone": ({"width": 390, "height": 844}, "light"),
}


def take(address: str, folder: Path, name: str) -> None:
    """Write NAME-light.png, NAME-dark.png and NAME-phone.png, with 128 colours each."""
    with sync_playwright() as driver:
        chromium = shutil.which("chromium")
        browser = driver.chromium.launch(executable_path=chromium, args=FLAGS)
        for view, (viewport, scheme) in VIEWS.items():
            page = browser.new_page(viewport=viewport, color_scheme=scheme)
            page.goto(address)
            target = folder / f"{name}-{view}.png"
            page.screenshot(path=target)
            with Image.open(target) as picture:
                picture.convert("RGB").quantize(128).save(target, optimize=True)
        browser.close()


if __name__ == "__main__":
    place = sys.argv[1]
    address = place if place.startswith("http://") else Path(place).resolve().as_uri()
    take(address, Path(sys.argv[2]), sys.argv[3])
