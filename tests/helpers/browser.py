"""A real headless Chromium, for pages as readers of all kinds meet them."""

import os
import shutil
from contextlib import contextmanager
from importlib.resources import files

import pytest
from playwright.sync_api import sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome")
BROWSER = next(filter(None, map(shutil.which, NAMES)), None)
AXE = files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")
# As root, and on a machine without a network, Chromium needs these.
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
LAPTOP, PHONE = {"width": 1366, "height": 768}, {"width": 360, "height": 740}
HOSTILE = (
    "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>",
    "مستشفى الشمال \u202e gnp.exe",
    "Long" * 300,
)

needs_browser = pytest.mark.skipif(
    BROWSER is None,
    reason="no Chromium here, so no page was opened in one (Debian: apt-get install chromium)",
)


@contextmanager
def chromium():
    """A browser that is closed at the end."""
    # What the driver needs is here already: it must fetch nothing.
    os.environ["PLAYWRIGHT_SKIP_BROWSER_DOWNLOAD"] = "1"
    with sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=BROWSER, args=FLAGS)
        yield started
        started.close()


def barriers(page):
    """What axe finds that keeps somebody from reading the page, and which rules passed."""
    page.evaluate(AXE)
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    problems = [
        (finding["id"], finding["nodes"][0]["html"][:200]) for finding in found["violations"]
    ]
    return problems, {rule["id"] for rule in found["passes"]}
