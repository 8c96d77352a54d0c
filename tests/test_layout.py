"""The house: a module imports from its own room and from rooms below, and never in circles."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = {"dpadmm": ROOT / "src" / "dpadmm", "dpadmm_papers": ROOT / "papers/src/dpadmm_papers"}

# From the bottom up. A word is a room, or a module outside the rooms.
ORDER = [
    "dpadmm.version",
    "dpadmm.errors",
    "dpadmm.plain",
    "dpadmm.durable",
    "dpadmm.problem",
    "dpadmm.data",
    "dpadmm.privacy",
    "dpadmm.ledger",
    "dpadmm.solvers",
    "dpadmm.algorithms",
    "dpadmm.evaluation",
    # The estimator is a face of a run: it trains by one, and a model file restores it.
    "dpadmm.run dpadmm.estimators",
    "dpadmm.studies",
    "dpadmm.audit",
    "dpadmm.report",
    "dpadmm.federation",
    "dpadmm.flower",
    "dpadmm.experiments",
    "dpadmm",
    "dpadmm.cli dpadmm.__main__",
    "dpadmm_papers",
]
RANK = {name: rank for rank, names in enumerate(ORDER) for name in names.split()}
MOST_AT_THE_TOP = 6
LONGEST = 750
# Rooms whose functions are short and take few parameters, docstrings and options counted.
SHORT_ROOMS = ("audit", "cli", "data", "experiments")
LONGEST_FUNCTION = 50
MOST_PARAMETERS = 8


def modules():
    for package, folder in SOURCES.items():
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            yield ".".join((package, *parts)).removesuffix(".__init__"), path


FILES = dict(modules())


def room_of(module):
    """The first entry of the order that the module is, or is inside of."""
    rooms = [name for name in RANK if module == name or module.startswith(f"{name}.")]
    inside = [name for name in rooms if name != "dpadmm" or module == "dpadmm"]
    if not inside:
        raise LookupError(f"{module} must be in a room of this test's list")
    return max(inside, key=len)


def imports_of(path, module):
    """Modules of ours that a file imports, wherever in the file."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} must import by full names"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found.add(inner if inner in FILES else node.module)
    return {name for name in found if name.partition(".")[0] in SOURCES} - {module}


@pytest.mark.parametrize("module", FILES)
def test_a_module_imports_only_from_its_room_and_below(module):
    for imported in imports_of(FILES[module], module):
        here, there = RANK[room_of(module)], RANK[room_of(imported)]
        assert there <= here, f"{module} must not import {imported}"


def test_nothing_goes_in_circles():
    # A room's own __init__ gathers what its modules define; they do not import it back.
    TopologicalSorter({name: imports_of(path, name) for name, path in FILES.items()}).prepare()


def test_the_checks_see_what_they_should(tmp_path):
    file = tmp_path / "losses.py"
    file.write_text("def f():\n    from dpadmm.ledger import base\n    import dpadmm.run.engine\n")
    assert imports_of(file, "dpadmm.problem.losses") == {"dpadmm.ledger.base", "dpadmm.run.engine"}
    assert RANK[room_of("dpadmm.ledger.base")] > RANK[room_of("dpadmm.problem.losses")]
    with pytest.raises(LookupError, match=r"dpadmm\.nowhere must be in a room"):
        room_of("dpadmm.nowhere")


def test_the_folder_listing_shows_the_architecture():
    # Python itself asks for files of such names.
    top = [name for name in FILES if name.count(".") == 1 and "__" not in FILES[name].name]
    assert len([name for name in top if name.startswith("dpadmm.")]) <= MOST_AT_THE_TOP
    lengths = {name: len(path.read_text().splitlines()) for name, path in FILES.items()}
    assert {name: length for name, length in lengths.items() if length > LONGEST} == {}


def functions_beyond(text):
    """Names of the functions that are too long or take too much."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            given = [argument for argument in arguments if argument.arg not in ("self", "cls")]
            lines = node.end_lineno - node.lineno + 1
            if lines > LONGEST_FUNCTION or len(given) > MOST_PARAMETERS:
                yield node.name


def test_a_function_is_no_longer_than_a_page_and_takes_a_handful():
    long = "def long():\n" + "    pass\n" * LONGEST_FUNCTION
    wide = "def wide(" + ", ".join(f"x{number}" for number in range(9)) + "): ...\n"
    assert list(functions_beyond(long + wide + "def short(x): ...\n")) == ["long", "wide"]
    beyond = {}
    for name, path in FILES.items():
        found = list(functions_beyond(path.read_text()))
        if found and name.startswith(tuple(f"dpadmm.{room}" for room in SHORT_ROOMS)):
            beyond[name] = found
    assert beyond == {}


def test_parts_are_frozen():
    """All but these, which hold what a loop changes as it goes."""
    changing = {"BlockState", "RunRecord", "_Iteration", "_Progress"}
    open_classes = {
        node.name
        for path in FILES.values()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
        for decorator in map(ast.unparse, node.decorator_list)
        if decorator.startswith("dataclass") and "frozen=True" not in decorator
    }
    assert open_classes == changing


def test_a_public_name_has_one_home():
    # What every command module or every paper has is no name of the library.
    apart = ("dpadmm.cli", "dpadmm.__main__", "dpadmm_papers")
    homes = {}
    for name, path in FILES.items():
        if name.startswith(apart):
            continue
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(name)
    assert {name: places for name, places in homes.items() if len(places) > 1} == {}
