"""A module imports only from modules above it in the list below, or from its own group."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "dpadmm"

# From the bottom up; "package.*" is all of a package, whose modules may import each other.
ORDER = [
    ["version"],
    ["errors", "closing", "visible"],
    ["reading"],
    ["topologies", "losses", "columns"],
    ["schema"],
    ["cells"],
    ["encode", "row_sums"],
    ["arrays"],
    ["given_rows"],
    ["datasets.*"],
    ["schedules"],
    ["privacy.shown"],
    ["privacy.events", "privacy.gaussian", "privacy.sensitivity"],
    ["privacy.curves"],
    ["privacy.composition"],
    ["privacy.accountant"],
    ["privacy.calibration", "privacy.labels"],
    ["privacy.histories"],
    ["privacy.noise"],
    ["privacy.mechanisms", "privacy.odds"],
    ["privacy.statement"],
    ["privacy.filters", "privacy.entries", "privacy.run_lock"],
    ["privacy.chosen"],
    ["privacy.spending"],
    ["privacy.entry_file"],
    ["privacy.ledger"],
    ["privacy.sqlite_ledger"],
    ["privacy"],
    ["solvers.*"],
    ["algorithms.*"],
    ["theory.*"],
    ["exchange.*"],
    ["engine"],
    ["training"],
    ["charging"],
    ["audit.*"],
    ["config"],
    ["fitted"],
    ["estimators"],
    ["archive"],
    ["model"],
    ["prediction", "trained_run"],
    ["runs"],
    ["report.*"],
    ["federation.*"],
    [""],
    ["experiments.*"],
    ["cli.*"],
]
RANK = {name: rank for rank, names in enumerate(ORDER) for name in names}


def place_of(module):
    """Rank and entry of a module: its own, or that of the package it is in."""
    for entry in (module, f"{module}.*", f"{module.partition('.')[0]}.*"):
        if entry in RANK:
            return RANK[entry], entry
    raise LookupError(f"{module} must be placed in the list of this test")


def modules():
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        yield "" if name == "__main__" else name, path


KNOWN = {name for name, _ in modules()}


def imports_of(path, module):
    """Modules of this package that a file imports, wherever in the file."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} must import by full names"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found.add(inner if inner.removeprefix("dpadmm.") in KNOWN else node.module)
    return {
        name.removeprefix("dpadmm").removeprefix(".")
        for name in found
        if name == "dpadmm" or name.startswith("dpadmm.")
    }


@pytest.mark.parametrize(("module", "path"), list(modules()), ids=lambda value: str(value))
def test_a_module_imports_only_from_above(module, path):
    rank, entry = place_of(module)
    for imported in imports_of(path, module):
        other, other_entry = place_of(imported)
        same_group = entry == other_entry and entry.endswith(".*")
        assert other < rank or same_group, f"{module or 'dpadmm'} must not import {imported}"


def test_a_module_that_is_not_listed_fails():
    for module in ("nowhere", "privacy.nowhere"):
        with pytest.raises(LookupError, match=f"{module} must be placed"):
            place_of(module)


def test_the_check_sees_what_it_should(tmp_path):
    file = tmp_path / "losses.py"
    file.write_text(
        "def f():\n    from dpadmm.privacy import ledger\n    import dpadmm.run.engine\n"
    )
    assert imports_of(file, "losses") == {"privacy.ledger", "engine"}
    assert place_of("privacy.ledger")[0] > place_of("losses")[0]
    assert place_of("solvers.newton") == place_of("solvers")
    assert place_of("privacy")[0] > place_of("privacy.ledger")[0]


def test_no_module_is_long():
    # What the models of this field keep to: a module is read in one sitting.
    lengths = {module: len(path.read_text().splitlines()) for module, path in modules()}
    assert {module for module, length in lengths.items() if length > 600} == set()
