"""The line between public and internal: the page of the reference and the code agree on it."""

import ast
import inspect
import re
from importlib import import_module
from importlib.resources import files

import nbformat
import pytest
import typer
from tools.notebooks import notebooks

import dpadmm
from dpadmm.cli import app
from tests.test_docs import ROOT, WITH_CODE, python_blocks

PAGE, _, MODULES = (
    (ROOT / "docs" / "reference" / "index.md").read_text().partition("## Every module")
)
# A name, with where its documentation is if that is another place: {func}`name <home>`.
LISTED = re.findall(r"\{(?:class|func|data)\}`([\w.]+)", PAGE)
NEEDS_FLOWER = [name for name in LISTED if name.startswith("dpadmm.flower.")]
# What researchers are shown of a paper's own theory is no interface.
SHOWN = [page for page in WITH_CODE if page.parent.name != "papers"]


def imported(source):
    """Names of ours that a piece of Python imports."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module.partition(".")[0] == "dpadmm":
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith("dpadmm"))


def defined(source):
    """Names that a module makes, and does not import from another."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            yield node.name
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = [node.target] if isinstance(node, ast.AnnAssign) else node.targets
            yield from (target.id for target in targets if isinstance(target, ast.Name))


def notebook_code(path):
    for cell in nbformat.read(path, as_version=4).cells:
        written = cell.source.startswith("%%writefile") and "import" in cell.source
        if cell.cell_type == "code" and (written or not cell.source.startswith("%%")):
            yield cell.source.partition("\n")[2] if written else cell.source


def test_nothing_is_listed_twice():
    assert len(LISTED) == len(set(LISTED)) > 50


@pytest.mark.parametrize("name", [name for name in LISTED if name not in NEEDS_FLOWER])
def test_what_is_listed_can_be_imported_and_is_what_its_module_is_about(name):
    home, _, last = name.rpartition(".")
    module = import_module(home)
    assert last in (dpadmm.__all__ if module is dpadmm else defined(inspect.getsource(module)))
    assert getattr(module, last) is not None


def test_the_apps_of_flower_are_there():
    for name in NEEDS_FLOWER:
        home, _, last = name.rpartition(".")
        source = (ROOT / "src" / f"{home.replace('.', '/')}.py").read_text()
        assert last in defined(source)
    assert len(NEEDS_FLOWER) == 2


def test_all_of_the_front_door_is_listed_and_nothing_else_of_it():
    doors = {name.removeprefix("dpadmm.") for name in LISTED if name.count(".") == 1}
    assert doors == set(dpadmm.__all__)


def test_what_the_front_door_takes_and_returns_is_listed():
    by_last_word = {name.rpartition(".")[2] for name in LISTED}
    for name in dpadmm.__all__:
        value = getattr(dpadmm, name)
        if inspect.isfunction(value):
            signature = inspect.signature(value)
            said = [str(each.annotation) for each in signature.parameters.values()]
            words = re.findall(r"\b[A-Z]\w+", " ".join([*said, str(signature.return_annotation)]))
            ours = set(words) - {
                "None",
                "Path",
                "Any",
                "Mapping",
                "Sequence",
                "OnDone",
                "ArrayLike",
            }
            assert ours <= by_last_word, name


def test_the_estimators_have_what_the_page_says():
    estimator = dpadmm.ADMMClassifier
    said = re.search(r"`fit\((.*?)\)`", PAGE)[1]
    taken = inspect.signature(estimator.fit).parameters.values()
    named = [each.name for each in taken if each.kind is not inspect.Parameter.VAR_KEYWORD]
    assert said.split(", ") == named[1:]
    attributes = re.findall(r"`([a-z]\w*_)`", PAGE)
    assert len(attributes) > 5
    assert [name for name in attributes if name not in estimator.__doc__] == []


@pytest.mark.parametrize("page", SHOWN, ids=lambda page: str(page.relative_to(ROOT)))
def test_guides_import_public_names_only(page):
    names = {name for _, block in python_blocks(page) for name in imported(block)}
    assert sorted(names - set(LISTED)) == []


@pytest.mark.parametrize("path", notebooks(), ids=lambda path: path.stem)
def test_notebooks_import_public_names_only(path):
    names = {name for source in notebook_code(path) for name in imported(source)}
    assert names
    assert sorted(names - set(LISTED)) == []


def test_every_command_is_listed():
    listed = re.findall(r"`dpadmm ([a-z-]+)`", PAGE.partition("## Commands")[2])
    assert sorted(listed) == sorted(typer.main.get_command(app).list_commands(None))


def test_the_files_and_groups_that_the_page_names_exist():
    assert files("dpadmm.cli").joinpath("output.schema.json").is_file()
    for group in re.findall(r"group `(dpadmm\.\w+)`", PAGE):
        # The papers' distribution finds experiments; the package itself finds the rest.
        home = {"dpadmm.experiments": "dpadmm_papers"}.get(group, group)
        found = files(home).iterdir()
        text = " ".join(path.read_text() for path in found if path.name.endswith(".py"))
        assert f'"{group}"' in text
    assert "autosummary" in MODULES
