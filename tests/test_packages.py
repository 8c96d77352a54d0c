"""What is installed: the files that are packed, extras, bounds, a demo without the clone."""

import json
import os
import re
import subprocess
import sys
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
from tools.coverage_rooms import COUNTED, table
from tools.lowest import lowest

import dpadmm
from dpadmm.data.named import load
from dpadmm.data.parts import list_parts
from dpadmm.data.schema import Label, NumericColumn, Schema
from dpadmm.errors import DataError, ParameterError
from dpadmm.experiments.jobs import Store, compute
from dpadmm.privacy.noise import SecureNoise, secure_noise
from dpadmm.solvers.cluster import Cluster
from tests.helpers.small_experiments import Note

ROOT = Path(__file__).parents[1]
DISTRIBUTIONS = {"dpadmm": ROOT, "dpadmm_papers": ROOT / "papers"}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PAPERS = tomllib.loads((ROOT / "papers" / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]


def source_files(package):
    """Every file of a package, as a wheel names it."""
    folder = DISTRIBUTIONS[package] / "src"
    return {
        path.relative_to(folder).as_posix()
        for path in (folder / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


@pytest.mark.parametrize("package", DISTRIBUTIONS)
@pytest.mark.parametrize("target", ["sdist", "wheel"])
def test_every_file_of_a_package_is_packed(package, target):
    builders = pytest.importorskip(f"hatchling.builders.{target}", reason="hatchling builds")
    make = {"sdist": "SdistBuilder", "wheel": "WheelBuilder"}[target]
    builder = getattr(builders, make)(str(DISTRIBUTIONS[package]))
    packed = {file.distribution_path for file in builder.recurse_included_files()}
    inside = {path.removeprefix("src/") for path in packed}
    assert source_files(package) <= inside
    assert f"{package}/py.typed" in inside


def test_the_kinds_of_files_that_are_no_modules():
    """A new kind of file is looked at: it must be read from the package, not from the clone."""
    kinds = {
        Path(name).suffix or Path(name).name
        for name in source_files("dpadmm") | source_files("dpadmm_papers")
    }
    assert kinds == {".py", ".css", ".js", ".json", ".service", ".toml", ".typed"}


def test_one_version():
    cited = dict(re.findall(r"^([\w-]+): (.+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE))
    release = re.fullmatch(r"(\d+)\.(\d+)\.\d+", dpadmm.__version__)
    major, minor = int(release[1]), int(release[2])
    assert PAPERS["version"] == dpadmm.__version__ == cited["version"]
    assert PAPERS["dependencies"] == [f"dpadmm>={major}.{minor},<{major}.{minor + 1}"]
    heading = f"## [{dpadmm.__version__}] - {cited['date-released']}\n"
    assert heading in (ROOT / "CHANGELOG.md").read_text()
    assert (ROOT / "papers" / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


def test_every_dependency_has_a_lower_bound():
    wanted = [*PROJECT["dependencies"], *(line for name in EXTRAS for line in EXTRAS[name])]
    bounds = list(lowest(wanted))
    assert "numpy==2.0" in bounds
    assert len(bounds) == len([line for line in wanted if not line.startswith("dpadmm[")])
    assert list(lowest(["a-b[c]>=1.10,<1.11"])) == ["a-b==1.10"]
    with pytest.raises(ValueError, match="lower bound"):
        list(lowest(["numpy<3"]))


def test_without_datasets(monkeypatch):
    monkeypatch.setitem(sys.modules, "skdatasets", None)
    monkeypatch.setitem(sys.modules, "skdatasets.repositories", None)
    with pytest.raises(DataError, match=r"pip install '\.\[datasets\]' in a clone"):
        load("banana", origin="raetsch")


@pytest.mark.parametrize(("name", "package"), [("dask", "distributed"), ("ray", "ray")])
def test_without_a_backend(monkeypatch, tmp_path, name, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ParameterError, match=rf"pip install '\.\[{name}\]' in a clone"):
        compute({"one": Note("one", str(tmp_path))}, Store(tmp_path / "cells"), backend=name)


@pytest.mark.parametrize("package", ["dask", "distributed"])
def test_without_a_cluster(monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ParameterError, match=r"pip install '\.\[dask\]' in a clone"):
        Cluster("tcp://127.0.0.1:8786")


def test_without_file_systems(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "fsspec", None)
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    columns = (NumericColumn(name="x", lower=0, upper=1),)
    schema = Schema(version=2, label=Label(column="y", classes=("0", "1")), columns=columns)
    with pytest.raises(ParameterError, match=r"pip install '\.\[dask\]' in a clone"):
        list_parts(str(tmp_path), schema)


# What each extra brings, by the names that are imported.
BROUGHT = {
    "datasets": {"pandas", "skdatasets"},
    "federation": {"zenoh", "cryptography", "prometheus_client"},
    "secure": {"opendp"},
    "dask": {"dask", "distributed", "fsspec"},
    "ray": {"ray"},
    "flower": {"flwr"},
    "formula": {"formulaic"},
    "onnx": {"onnx"},
    "mlflow": {"mlflow"},
}
# Prints the modules that cannot be imported where the named packages are not there, and why.
IMPORTED = """
import importlib, json, pkgutil, sys
sys.modules |= dict.fromkeys(sys.argv[1:])
import dpadmm
failed = {}
for module in pkgutil.walk_packages(dpadmm.__path__, "dpadmm."):
    if not module.name.endswith("__main__"):
        try:
            importlib.import_module(module.name)
        except (ImportError, ValueError) as error:
            failed[module.name] = str(error)
print(json.dumps(failed))
"""


@pytest.mark.parametrize("extra", ["none", "federation"])
def test_every_module_is_there_without_the_extras_of_others(extra):
    assert BROUGHT.keys() == EXTRAS.keys() - {"all"}
    for package in BROUGHT.get(extra, ()):
        pytest.importorskip(package, reason=f"the extra {extra!r} is not installed")
    missing = set().union(*(names for name, names in BROUGHT.items() if name != extra))
    done = subprocess.run(
        [sys.executable, "-c", IMPORTED, *missing],
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    failed = json.loads(done.stdout)
    sentence = "this needs the extra 'flower': pip install '.[flower]' in a clone of dpadmm."
    for app in ("dpadmm.flower.client_app", "dpadmm.flower.server_app"):
        assert failed.pop(app) == sentence
    rooms = {module.split(".")[1] for module in failed}
    assert rooms == (set() if extra == "federation" else {"federation", "flower"})


def test_without_secure(monkeypatch):
    """OpenDP is no condition: without it statements name what is not covered."""
    monkeypatch.setattr("dpadmm.privacy.noise.find_spec", lambda name: None)
    assert isinstance(secure_noise(), SecureNoise)
    assert "last bits" in SecureNoise.not_covered[0]


@pytest.mark.parametrize("package", ["cryptography", "zenoh", "prometheus_client"])
def test_without_federation(tmp_path, package):
    """A node says which extra is missing and has charged nothing."""
    pytest.importorskip("zenoh", reason="the extra 'federation' is not installed")
    from tests.helpers.federation_net import Federation

    federation = Federation(tmp_path, None, ("north", "south"))
    federation.make_ledger("north")
    path = federation.write("north")
    path.write_text(path.read_text().replace("[watch]", '[watch]\nmetrics = "127.0.0.1:0"'))
    before = (tmp_path / "north.ledger").read_bytes()
    # In a process of its own: modules that were imported would not notice.
    words = f"import sys; sys.modules[{package!r}] = None; from dpadmm.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", words, "node", "--config", path, "--json"],
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert "pip install '.[federation]' in a clone" in json.loads(done.stdout)["error"]
    assert (tmp_path / "north.ledger").read_bytes() == before


def run(*words, folder, **environment):
    """Run a program that knows nothing of this clone, and return what it printed."""
    known = {"PATH", "HOME", "LANG", "TMPDIR"} | {name for name in os.environ if "PIP_" in name}
    done = subprocess.run(
        [str(word) for word in words],
        cwd=folder,
        env={name: value for name, value in os.environ.items() if name in known} | environment,
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def empty_environment(folder):
    venv.create(folder, with_pip=True)
    return folder / "bin"


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The folder with the wheels and sdists of both distributions, by `python -m build`."""
    folder = tmp_path_factory.mktemp("built")
    tools = empty_environment(folder / "tools")
    try:
        run(tools / "pip", "install", "--quiet", "build", "hatchling>=1.26", folder=folder)
    except AssertionError as error:
        pytest.skip(f"the package index cannot be reached, so nothing can be built: {error}")
    for root in DISTRIBUTIONS.values():
        # Without isolation: what builds was fetched just now. The wheel is made from the sdist.
        where = ("--no-isolation", "--outdir", folder / "dist", root)
        run(tools / "python", "-m", "build", *where, folder=folder)
    return folder / "dist"


@pytest.mark.slow
def test_an_empty_environment_runs_the_demo_from_the_wheels(built, tmp_path):
    wheels = sorted(built.glob("*.whl"))
    assert len(wheels) == len(list(built.glob("*.tar.gz"))) == len(DISTRIBUTIONS)
    for package, wheel in zip(DISTRIBUTIONS, wheels, strict=True):
        inside = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
        assert inside == source_files(package)
    programs = empty_environment(tmp_path / "empty")
    run(programs / "pip", "install", "--quiet", *wheels, folder=tmp_path)
    assert run(programs / "dpadmm", "--version", folder=tmp_path).strip() == dpadmm.__version__
    printed = run(programs / "dpadmm", "demo", folder=tmp_path)
    assert "With shared noise, training together beats every party alone." in " ".join(
        printed.split()
    )
    assert "SIMULATION" in (tmp_path / "dpadmm-demo.html").read_text(encoding="utf-8")
    # The papers' experiments are found, and an extra that is missing has its sentence.
    assert "pr-admm-figure-2" in run(programs / "dpadmm", "reproduce", "--list", folder=tmp_path)
    where = run(programs / "python", "-c", "import dpadmm; print(dpadmm.__file__)", folder=tmp_path)
    assert Path(where.strip()).is_relative_to(tmp_path)
    with pytest.raises(AssertionError, match=r"pip install '\.\[federation\]' in a clone"):
        run(programs / "dpadmm", "cert", "authority", "trust", folder=tmp_path)


def test_coverage_is_told_by_room():
    def file(lines, statements, branches, ways):
        summary = dict(zip(COUNTED, (lines, statements, branches, ways), strict=True))
        return {"summary": summary}

    told = table(
        {
            "src/dpadmm/version.py": file(3, 3, 0, 0),
            "src/dpadmm/ledger/base.py": file(99, 100, 1, 2),
            "/clone/src/dpadmm/ledger/sqlite.py": file(1900, 1900, 8, 8),
            "papers/src/dpadmm_papers/dvp/theory.py": file(1, 2, 0, 2),
        }
    )
    rows = [[cell.strip() for cell in row.split("|")[1:-1]] for row in told.splitlines()[2:]]
    assert rows == [
        ["dpadmm", "100.0%", "3", "none", "0"],
        ["dpadmm/ledger", "99.9%", "2000", "90.0%", "10"],
        ["dpadmm_papers", "50.0%", "2", "0.0%", "2"],
        ["all", "99.9%", "2005", "75.0%", "12"],
    ]
