"""Reports in a real headless Chromium, as readers of all kinds meet them."""

import io
import itertools
import json
import re
import unicodedata
from xml.etree import ElementTree

import pytest
from pypdf import PdfReader
from tests.helpers.browser import AXE, HOSTILE, LAPTOP, PHONE, barriers, chromium, needs_browser
from typer.testing import CliRunner

from dpadmm.cli import app
from dpadmm.report.document import read_report
from dpadmm.report.html import render
from dpadmm.report.run import run_report, runs_report
from dpadmm.run.result import RecordedRun

pytestmark = needs_browser


@pytest.fixture(scope="module")
def pages(records, compared, rerun, tmp_path_factory):
    """Pages of every kind, by name."""
    folder = tmp_path_factory.mktemp("pages")
    runs = {kind: RecordedRun.from_dict(content) for kind, content in records.items()}
    found = {kind: render(run_report(run)) for kind, run in runs.items()}
    over = json.loads(json.dumps(records["uneven"]))
    over["config"]["run"]["epsilon"] = 0.25
    found["over"] = render(run_report(RecordedRun.from_dict(over)))
    hostile = json.dumps(records["uneven"])
    for name, bad in zip(("north", "south", "west"), HOSTILE, strict=True):
        hostile = hostile.replace(json.dumps(name), json.dumps(bad))
    hostile = hostile.replace('"age"', json.dumps(HOSTILE[0])).replace("readmitted", "<b>" * 40)
    found["hostile"] = render(run_report(RecordedRun.from_dict(json.loads(hostile))))
    found["several"] = render(runs_report(list(runs.items())))
    found["comparison"] = render(read_report(compared / "report.json"))
    found["experiment"] = render(read_report(rerun / "report.json"))
    for kind, content in found.items():
        (folder / f"{kind}.html").write_text(content, encoding="utf-8")
    done = CliRunner().invoke(
        app,
        ["demo", "--rounds", "6", "--report", f"{folder}/demo.html"],
        env={"DPADMM_DATA": ""},
    )
    assert done.exit_code == 0, done.output
    return {path.stem: path for path in folder.glob("*.html")}


@pytest.fixture(scope="module")
def browser():
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def tab(browser):
    """One for all tests: a page loaded into it is new, and a new one costs three times as much."""
    page = browser.new_page()
    yield page
    page.close()


@pytest.fixture
def opened(tab, pages):
    """Open a page; at the end nothing was logged and nothing was asked for."""
    noise = []
    listeners = {
        "console": lambda message: noise.append(message.text),
        "pageerror": lambda error: noise.append(str(error)),
        "request": lambda request: noise.append(request.url),
    }

    def open_page(kind, viewport=LAPTOP, scheme="light"):
        address = pages[kind].as_uri()
        tab.set_viewport_size(viewport)
        tab.emulate_media(media="null", color_scheme=scheme)
        tab.goto(address)
        noise.remove(address)
        return tab

    for event, listener in listeners.items():
        tab.on(event, listener)
    yield open_page
    # What the last page still has to say comes before the next one is there.
    tab.goto("about:blank")
    for event, listener in listeners.items():
        tab.remove_listener(event, listener)
    # Saving a file that the page holds is a request to the page itself.
    assert [entry for entry in noise if not entry.startswith("data:")] == []


KINDS = ["private", "simulated", "published", "without", "uneven", "over", "several", "experiment"]


@pytest.mark.parametrize(
    "kind",
    ["demo", "hostile", "comparison", *(pytest.param(k, marks=pytest.mark.slow) for k in KINDS)],
)
def test_everybody_can_read_it(opened, kind):
    """No console message, no request, no finding of axe, no sideways scrolling."""
    for scheme, viewport in (("light", LAPTOP), ("dark", PHONE)):
        page = opened(kind, viewport, scheme)
        sideways = "document.documentElement.scrollWidth - innerWidth"
        assert page.evaluate(sideways) <= 0
        page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
        assert page.evaluate(sideways) <= 0
        problems, passed = barriers(page)
        assert problems == []
        assert {"color-contrast", "svg-img-alt", "document-title"} <= passed | (
            {"svg-img-alt"} if page.locator("svg").count() == 0 else set()
        )


def test_axe_would_find_something(opened):
    page = opened("private")
    page.evaluate("document.querySelector('svg').removeAttribute('aria-labelledby')")
    page.evaluate("document.querySelectorAll('svg title, svg desc').forEach(n => n.remove())")
    page.evaluate(AXE)
    found = {each["id"] for each in page.evaluate("axe.run(document)")["violations"]}
    assert "svg-img-alt" in found


def test_the_demo_answers_without_scrolling(opened):
    page = opened("demo")
    for heading in (
        "Who took part",
        "What was learnt",
        "What is guaranteed",
        "What is not covered",
    ):
        box = page.locator(f"dt:text-is('{heading}') + dd").bounding_box()
        assert box["y"] > 0
        assert box["y"] + box["height"] <= LAPTOP["height"]
    banner = page.locator(".banner.danger").bounding_box()
    assert banner["y"] + banner["height"] < LAPTOP["height"] / 3
    assert page.locator("#figure-1 svg").bounding_box()["y"] < LAPTOP["height"] / 2


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("over", "OVER BUDGET."),
        ("simulated", "SIMULATION."),
        ("published", "PUBLISHED CALIBRATION."),
        ("without", "NO PRIVACY GUARANTEE."),
    ],
)
def test_what_may_not_be_overlooked_is_on_top(opened, kind, words):
    page = opened(kind)
    for viewport in (LAPTOP, PHONE):
        page.set_viewport_size(viewport)
        box = page.locator(f".banner:has-text('{words}')").first.bounding_box()
        assert box["y"] + box["height"] <= viewport["height"]
        assert box["width"] > 0.85 * viewport["width"]


@pytest.mark.parametrize("link", ["Save the drawing", "Save the data"])
def test_every_figure_can_be_saved(opened, tmp_path, link):
    for place in range(8):
        # A browser asks before one page may save many files, if it takes them for its own.
        page = opened("uneven")
        figures = page.locator("figure")
        assert figures.count() == 8
        with page.expect_download() as saved:
            figures.nth(place).locator(f"a:has-text('{link}')").click()
        target = tmp_path / saved.value.suggested_filename
        saved.value.save_as(target)
        if target.suffix == ".svg":
            root = ElementTree.fromstring(target.read_text(encoding="utf-8"))
            assert root.attrib["viewBox"]
        else:
            rows = figures.nth(place).locator("tbody tr").count()
            assert len(target.read_text(encoding="utf-8").splitlines()) == rows + 1
        assert page.url.startswith("file:")


def test_a_saved_drawing_shows_itself(opened, browser, tmp_path):
    page = opened("uneven")
    with page.expect_download() as saved:
        page.locator("#figure-2 a:has-text('Save the drawing')").click()
    saved.value.save_as(tmp_path / "a.svg")
    alone = browser.new_page()
    alone.goto((tmp_path / "a.svg").as_uri())
    styled = "getComputedStyle(document.querySelector('.series')).stroke"
    assert alone.evaluate(styled) == "rgb(0, 103, 163)"
    alone.close()


def test_the_keyboard_reaches_everything(opened):
    page = opened("uneven")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    wanted = page.locator("a, summary, [tabindex='0']").count()
    reached = set()
    for _ in range(wanted + 5):
        # Tables inside closed parts are not reached, and scroll only once they are open.
        reached.add(page.evaluate("document.activeElement.outerHTML.slice(0, 300)"))
        page.keyboard.press("Tab")
    hidden = page.locator("details [tabindex='0']").count()
    links = page.locator("a, summary").count()
    assert len(reached) >= min(links, wanted - hidden)
    page.locator("summary").first.focus()
    page.keyboard.press("Enter")
    assert page.locator("details").first.get_attribute("open") is not None


def test_a_screen_reader_is_told_what_a_drawing_shows(opened):
    page = opened("uneven")
    tree = page.locator("main").aria_snapshot()
    assert re.search(r'img "What that means: guessing about one person A hundred guesses', tree)
    assert "3 parties, 3 links." in tree
    headings = page.eval_on_selector_all("h1, h2, h3", "all => all.map(each => +each.tagName[1])")
    assert headings[0] == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(headings))


@pytest.mark.parametrize("kind", ["uneven", "hostile", "demo"])
def test_it_prints_to_a_clean_document(opened, kind):
    page = opened(kind, scheme="dark")
    document = PdfReader(io.BytesIO(page.pdf(format="A4", print_background=True)))
    text = " ".join(" ".join(sheet.extract_text() for sheet in document.pages).split())
    text = unicodedata.normalize("NFKC", text)  # fonts join letters such as "ff"
    assert 2 <= len(document.pages) <= 9
    for phrase in ("What is guaranteed", "What each party spent", "differential privacy"):
        assert phrase in text
    for absent in ("Save the data", "Skip to the report"):
        assert absent not in text
    # Dark ink on white paper, whatever the screen.
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.evaluate("getComputedStyle(document.body).color") == "rgb(0, 0, 0)"
    ground = "getComputedStyle(document.querySelector('.ground')).fill"
    assert page.evaluate(ground) == "rgb(255, 255, 255)"


def test_hostile_names_do_no_harm(opened):
    page = opened("hostile")
    assert "owned" not in page.title()
    assert page.locator("script, img, b").count() == 0
    # A name keeps to its cell: what follows it is written from left to right, where it belongs.
    cell = page.locator("tbody th:has-text('gnp.exe')").first
    assert "U+202E" in cell.inner_text()
    assert cell.bounding_box()["width"] < 500
    following = cell.locator("xpath=following-sibling::td[1]").bounding_box()
    assert following["x"] > cell.bounding_box()["x"]
