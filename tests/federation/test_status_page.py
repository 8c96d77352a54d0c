"""The live page of nodes: what it says, and how it looks in a real headless Chromium."""

import json
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from playwright.sync_api import expect
from tests.helpers.browser import HOSTILE, LAPTOP, PHONE, barriers, chromium, needs_browser

from dpadmm.errors import ParameterError
from dpadmm.federation.page_server import Page, PageServer
from dpadmm.federation.status import look_at, read_status, status_report
from dpadmm.federation.watcher import Watcher
from dpadmm.report.html import content_policy, render

RING = ("north", "south", "west", "east")
# Milliseconds, on a machine that does other things.
PATIENCE = 120_000
LINKS = tuple(zip(RING, (*RING[1:], RING[0]), strict=True))


@pytest.fixture
def watchers(tmp_path):
    """Two nodes of a ring of four, under way: north shows itself, south too."""
    made = {}
    for name in ("north", "south"):
        files = {"log": tmp_path / f"{name}.log", "status": tmp_path / f"{name}.status.json"}
        watcher = made[name] = Watcher(name, "trial", **files, terminal=False)
        watcher.graph(RING, LINKS, None)
        watcher.round(12, 50)
        watcher.budget(0.123456, 0.75)
    made["north"].waiting("south", 12.0)
    made["north"].gossip("east", "running", 11, ["west"])
    made["south"].unreachable("west", "192.0.2.7:7447", "no-answer", "look at firewalls")
    yield made
    for watcher in made.values():
        watcher.close()


@pytest.fixture
def shown(watchers, tmp_path):
    """The report of what the files say now."""

    def shown(*more):
        for watcher in watchers.values():
            watcher._write_status()
        return status_report(*look_at([tmp_path, *more]))

    return shown


def blocks(report, title):
    (section,) = [section for section in report.sections if section.title == title]
    return section.blocks


def test_who_waits_for_whom(shown):
    report = shown()
    plot = report.picture
    assert dict(zip(plot.names, plot.kinds, strict=True)) == {
        "north": "well",
        "south": "well",
        "west": "unknown",
        "east": "said",
    }
    waits = {(plot.names[here], plot.names[there]) for here, there in plot.waits}
    assert waits == {("north", "south"), ("south", "west"), ("east", "west")}
    assert len(plot.edges) == 4
    answers = dict(report.answers)
    assert "north waits for south (12 s)" in answers["Who waits"]
    assert "south waits for west (no-answer)" in answers["Who waits"]
    assert "east says that it waits for west" in answers["Who waits"]


def test_bounds_are_rounded_to_the_safe_side(shown):
    assert (
        "north: epsilon 0.1235 of its data set, and 0.75 of"
        in dict(shown().answers)["What was spent"]
    )


def test_what_neighbours_say_is_marked_as_gossip(shown):
    words, table = blocks(shown(), "Others, as they say")
    assert "Nobody has checked it" in words.text
    assert table.rows[0][:5] == ("east", "running", 11, "west", "north")


def test_words_that_are_old_wait_for_nobody(watchers, shown, tmp_path):
    shown()
    file = tmp_path / "north.status.json"
    watchers["north"].close()
    content = json.loads(file.read_text())
    content["others"]["east"]["heard"] = "2026-01-01T00:00:00+00:00"
    file.write_text(json.dumps(content))
    plot = status_report([read_status(file)], {}).picture
    assert plot.kinds[plot.names.index("east")] == "said"
    assert plot.names.index("east") not in {here for here, _ in plot.waits}


def test_of_what_one_says_to_several_the_newest_counts(watchers, shown):
    for name in ("south", "north"):
        watchers[name].gossip("west", "running", 20 if name == "north" else 19, [])
        time.sleep(0.005)
    words = dict(zip(shown().picture.names, shown().picture.words, strict=True))
    assert words["west"] == "says 20/50"
    watchers["south"].gossip("west", "running", 21, [])
    words = dict(zip(shown().picture.names, shown().picture.words, strict=True))
    assert words["west"] == "says 21/50"


def test_a_status_file_counts_more_than_words(watchers, shown):
    watchers["north"].gossip("south", "serving", 50, [])
    report = shown()
    assert dict(zip(report.picture.names, report.picture.words, strict=True))["south"] == "12/50"


def test_the_last_events_are_told_the_newest_first(watchers, shown):
    for count in range(100):
        watchers["south"].event("told", count=count, nodes=["a", "b"])
    (table,) = blocks(shown(), "Events")
    assert [row[4] for row in table.rows[:2]] == ["count 99, nodes a b", "count 98, nodes a b"]
    assert len([row for row in table.rows if row[1] == "south"]) == 20


def test_a_file_that_comes_later_and_one_that_is_broken(shown, tmp_path):
    (tmp_path / "broken.status.json").write_text("{}")
    later, folder = tmp_path / "later.json", tmp_path / "folder"
    folder.mkdir()
    report = shown(later, folder)
    words = [banner.text for banner in report.banners]
    assert f"{later} is not there yet." in words
    assert any(text.startswith(f"{folder} has no status file") for text in words)
    assert any("a status file must be one that a node wrote" in text for text in words)
    assert report.tiles[1].figure == "2 of 2"


def test_nothing_is_there_yet(tmp_path):
    page = render(status_report(*look_at([tmp_path])), every=1.0)
    assert "has no status file" in page
    assert "Nothing yet." in page


def test_one_that_died_is_on_top(tmp_path):
    file = tmp_path / "a.status.json"
    Watcher("north", log=tmp_path / "log", status=file).close()
    file.write_text(
        json.dumps(
            json.loads(file.read_text())
            | {"state": "running", "process": 2**22 + 1, "waiting": {"south": 9.0}}
        )
    )
    report = status_report(*look_at([file]))
    assert [(banner.tone, banner.heading) for banner in report.banners] == [("danger", "DEAD.")]
    assert report.picture.kinds == ("trouble",)
    assert report.picture.waits == ()


def test_one_that_failed_says_why_on_top(tmp_path):
    file = tmp_path / "a.status.json"
    with Watcher("north", log=tmp_path / "log", status=file) as watcher:
        watcher.event("failed", level="error", error=ParameterError("epsilon must be less."))
    (banner,) = status_report(*look_at([file])).banners
    assert (banner.tone, banner.heading) == ("danger", "FAILED.")
    assert "north: ParameterError: epsilon must be less." in str(banner)


@pytest.mark.parametrize("server", [None, "hub"])
def test_an_old_file_and_a_server(tmp_path, server):
    file = tmp_path / "a.status.json"
    with Watcher("north", log=tmp_path / "log", status=file) as watcher:
        watcher.waiting("hub", 3.0)
        if server:
            nodes = ("north", "south", "hub")
            watcher.graph(nodes, [("hub", "north"), ("hub", "south")], "hub")
        watcher._write_status()
        report = status_report(*look_at([file]))
    plot = report.picture
    assert set(plot.names) == ({"north", "south", "hub"} if server else {"north", "hub"})
    assert plot.server == (plot.names.index("hub") if server else None)
    assert [(plot.names[a], plot.names[b]) for a, b in plot.waits] == [("north", "hub")]
    assert "waits for hub." in render(report)


def test_the_files_of_two_runs_have_no_common_graph(tmp_path):
    for name in ("north", "south"):
        file = tmp_path / f"{name}.status.json"
        Watcher(name, f"run of {name}", log=tmp_path / "log", status=file).close()
    report = status_report(*look_at([tmp_path]))
    assert report.picture is None
    assert report.title == "Nodes"


def test_a_page_that_is_no_live_one_runs_no_script(shown):
    page = render(shown())
    assert "<script" not in page
    assert "script-src" not in page


words = st.sampled_from([*HOSTILE, "north", "south", "a", ""])
counts = st.integers(0, 2**63 - 1)
moments = st.sampled_from(["2026-11-17T19:00:00+00:00", "0001-01-01T00:00:00+00:00"])
changes = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(("node", "run", "state"), words),
        **dict.fromkeys(("round", "rounds", "sent"), counts),
        **dict.fromkeys(("epsilon_spent", "epsilon_left"), st.none() | words | st.floats()),
        "waiting": st.dictionaries(words, st.floats(allow_nan=False, allow_infinity=False)),
        "dropped": st.dictionaries(words, st.none() | counts | words),
        "graph": st.fixed_dictionaries(
            {
                "nodes": st.lists(words),
                "links": st.lists(st.lists(words, min_size=2, max_size=2)),
                "server": st.none() | words,
            }
        ),
        "others": st.dictionaries(
            words,
            st.fixed_dictionaries(
                {"state": words, "round": counts, "waiting": st.lists(words), "heard": moments}
            ),
        ),
        "unreachable": st.dictionaries(
            words, st.fixed_dictionaries(dict.fromkeys(("address", "reason", "advice"), words))
        ),
        "events": st.lists(
            st.fixed_dictionaries({"time": moments, "level": words, "event": words, "words": words})
        ),
    },
)


@settings(max_examples=25, deadline=None)
@given(changes)
def test_whatever_a_status_file_says_there_is_a_page(tmp_path_factory, change):
    file = tmp_path_factory.mktemp("status") / "a.status.json"
    Watcher("north", log=file.with_name("log"), status=file).close()
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    page = render(status_report(*look_at([file])), every=1.0)
    assert page.count("<script") == 1
    assert "<img" not in page
    # Nobody's words make a page that no browser shows.
    assert len(page) < 1_000_000


# In a browser ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser():
    with chromium() as started:
        yield started


@pytest.fixture
def served_every():
    """Seconds after which the page asks again: never, unless a test says how often."""
    return [1000.0]


@pytest.fixture
def served(watchers, tmp_path, served_every):
    """The page, served; what is there is what the files say at every question."""

    def page():
        for watcher in watchers.values():
            watcher._write_status()
        return render(status_report(*look_at([tmp_path])), every=served_every[-1])

    pages = {"/": Page("text/html", page, content_policy(live=True))}
    errors = []
    given = {"anywhere": False, "consent": "", "on_error": errors.append}
    with PageServer("--serve", "127.0.0.1:0", pages, **given) as server:
        yield server
    assert errors == []


@pytest.fixture
def opened(browser, served):
    """Open the page; at the end nothing was logged, and nobody else was asked."""
    contexts, noise = [], []

    def open_page(viewport=LAPTOP, scheme="light"):
        context = browser.new_context(viewport=viewport, color_scheme=scheme)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: noise.append(message.text))
        page.on("pageerror", lambda error: noise.append(str(error)))
        page.on("request", lambda request: noise.append(request.url))
        page.goto(f"http://{served.address}/")
        return page

    yield open_page
    for context in contexts:
        context.close()
    own = f"http://{served.address}/"
    assert [said for said in noise if said != own and "net::ERR_" not in said] == []


@needs_browser
def test_it_follows_without_being_loaded_again(opened, watchers, served_every):
    served_every.append(0.2)
    page = opened()
    page.evaluate("window.stays = true")
    page.locator("summary").first.click()
    watchers["north"].round(13, 50)
    watchers["north"].waiting("south", 0.0)
    watchers["south"].round(13, 50)
    expect(page.locator(".tiles dd").first).to_have_text("13 of 50", timeout=PATIENCE)
    expect(page.locator(".arrow")).to_have_count(2, timeout=PATIENCE)
    watchers["north"].event("neighbour-lost", level="warning", neighbour=HOSTILE[0])
    expect(page.locator("main")).to_contain_text("neighbour-lost", timeout=PATIENCE)
    assert page.evaluate("window.stays")
    # What a reader opened stays open, and what came along is text.
    assert page.locator("details").first.get_attribute("open") is not None
    assert page.title() == "Run trial"
    assert page.locator("main img, main script").count() == 0


@needs_browser
def test_it_says_that_nobody_answers_any_more(opened, served, served_every):
    served_every.append(0.2)
    page = opened()
    assert not page.locator("#lost").is_visible()
    served.close()
    page.locator("#lost").wait_for(state="visible", timeout=PATIENCE)
    assert "what is below is old" in page.locator("#lost").inner_text()


@needs_browser
@pytest.mark.parametrize(
    ("kind", "scheme", "viewport"), [("plain", "light", LAPTOP), ("hostile", "dark", PHONE)]
)
def test_everybody_can_read_it(opened, watchers, tmp_path, kind, scheme, viewport):
    """No console message, no request, no finding of axe, no sideways scrolling."""
    if kind == "hostile":
        watchers["north"].close()
        file = tmp_path / "north.status.json"
        text = file.read_text().replace('"run": "trial"', f'"run": {json.dumps(HOSTILE[0])}')
        for name, bad in zip(("north", "south", "west"), HOSTILE, strict=True):
            text = text.replace(json.dumps(name), json.dumps(bad))
        Path(tmp_path / "hostile.status.json").write_text(text)
    page = opened(viewport, scheme)
    sideways = "document.documentElement.scrollWidth - innerWidth"
    assert page.evaluate(sideways) <= 0
    page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    assert page.evaluate(sideways) <= 0
    problems, passed = barriers(page)
    assert problems == []
    assert "color-contrast" in passed
    assert "owned" not in page.title()
    assert page.locator("main img, main script, b").count() == 0


@needs_browser
def test_another_page_cannot_take_it_in(browser, served):
    context = browser.new_context()
    page = context.new_page()
    page.route("http://elsewhere.example/", lambda route: route.fulfill(body="<p>Elsewhere"))
    page.goto("http://elsewhere.example/")
    own = json.dumps(f"http://{served.address}/")
    took = page.evaluate(f"fetch({own}).then(() => 'read', () => 'refused')")
    assert took == "refused"
    took = page.evaluate(f"fetch({own}, {{mode: 'no-cors'}}).then(() => 'read', () => 'refused')")
    assert took == "refused"
    context.close()
