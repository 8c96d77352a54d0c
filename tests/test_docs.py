"""The documentation runs, and the commands and files it names exist."""

import json
import re
from itertools import takewhile
from pathlib import Path

import pytest

from dpadmm_papers.experiment import known_experiments
from dpadmm_papers.pages import contents_page

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(
        page
        for page in (ROOT / "docs").rglob("*.md")
        if not {"_build", "generated"} & set(page.parts)
    ),
]


def python_blocks(page):
    """Each ```python block with the number of the line it starts on."""
    lines = page.read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(lines):
        if line.strip() == "```python":
            block = takewhile(lambda text: text.strip() != "```", lines[number + 1 :])
            yield number + 1, "\n".join(block)


WITH_CODE = [page for page in PAGES if any(python_blocks(page))]


@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: str(page.relative_to(ROOT)))
def test_python_blocks_run_in_order(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__main__"}
    for line, block in python_blocks(page):
        # Empty lines in front make a traceback point into the page.
        exec(compile("\n" * line + block, str(page), "exec"), names)


def test_the_first_pages_have_code():
    shown = {page.relative_to(ROOT).as_posix() for page in WITH_CODE}
    assert {"README.md", "docs/quickstart.md"} <= shown


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md"])
def test_links_lead_to_files(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    targets = re.findall(r"\]\((?!https?:|#)([^)#]+)", text)
    assert [target for target in targets if not (ROOT / target).exists()] == []


def test_make_targets_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, flags=re.MULTILINE))
    mentioned = {
        target
        for page in PAGES
        for target in re.findall(
            r"(?:`|^\$ )make ([a-z-]+)", page.read_text(encoding="utf-8"), flags=re.MULTILINE
        )
    }
    assert {"demo", "test"} <= mentioned <= targets


def test_quick_tests_are_of_every_room():
    tests = ROOT / "tests"
    rooms = {path.parent for path in tests.rglob("test_*.py")}
    words = (tests / "quick.txt").read_text(encoding="utf-8").split()
    named = {ROOT / word.removeprefix("--ignore=").partition("::")[0] for word in words}
    run = {ROOT / word.partition("::")[0] for word in words if not word.startswith("--")}
    assert [path for path in named if not path.exists()] == []
    assert [room for room in rooms if not any(room in (path, path.parent) for path in run)] == []


def test_the_index_of_reruns_is_what_the_code_makes_of_their_manifests():
    folder = ROOT / "docs" / "reproduction"
    manifests = [
        json.loads((folder / name / "manifest.json").read_text()) for name in known_experiments()
    ]
    assert len(manifests) > 20
    assert (folder / "index.md").read_text() == contents_page(manifests)


def test_the_glossary_is_short_and_in_order():
    text = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    words = re.findall(r"^(\S.*)\n: ", text, flags=re.MULTILINE)
    assert words == sorted(words)
    assert len(words) == len(set(words)) == text.count("\n: ")
    assert 20 <= len(words) <= 40
    for page in ("README.md", "docs/index.md", "docs/concepts.md"):
        assert "glossary.md)" in (ROOT / page).read_text(encoding="utf-8"), page
