"""Take the pictures of docs/report.md: python docs/images/take.py PAGE FOLDER.

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
    "light": ({"width": 1366, "height": 768}, "light"),
    "dark": ({"width": 1366, "height": 768}, "dark"),
    "phone": ({"width": 390, "height": 844}, "light"),
}


def take(page_file: Path, folder: Path) -> None:
    """Write report-light.png, report-dark.png and report-phone.png, with 128 colours each."""
    with sync_playwright() as driver:
        chromium = shutil.which("chromium")
        browser = driver.chromium.launch(executable_path=chromium, args=FLAGS)
        for name, (viewport, scheme) in VIEWS.items():
            page = browser.new_page(viewport=viewport, color_scheme=scheme)
            page.goto(page_file.resolve().as_uri())
            target = folder / f"report-{name}.png"
            page.screenshot(path=target)
            with Image.open(target) as picture:
                picture.convert("RGB").quantize(128).save(target, optimize=True)
        browser.close()


if __name__ == "__main__":
    take(Path(sys.argv[1]), Path(sys.argv[2]))
