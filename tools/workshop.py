"""A copy of the clone, in which mutants run in forked processes against tests that reach them."""

from __future__ import annotations

import ast
import contextlib
import gc
import hashlib
import json
import math
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from functools import _lru_cache_wrapper, cache
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, Final

import pytest
from mutations import ROOT, Mutant

#: Runs tests in this process and returns the first that fails.
Work = Callable[[list[str]], str]
#: Where modules are that may be broken.
ROOMS: Final = ("src/dpadmm/privacy", "src/dpadmm/ledger")
#: Reads sources and runs none of them: only for edits outside of functions.
READING: Final = "tests/test_layout.py::test_parts_are_frozen"
#: Imported once, before any process is forked.
PRELOADED: Final = (
    *("numpy", "scipy.special", "scipy.optimize", "scipy.stats", "numba", "pydantic", "sqlite3"),
    *("hypothesis", "hypothesis.extra.numpy", "sklearn.linear_model", "networkx", "randomgen"),
    *("opendp.measurements", "dp_accounting.pld.pld_pmf", "autodp.mechanism_zoo", "pyarrow"),
    *("typer", "rich.console", "mpmath"),
)


class Quiet:
    """Settings of a pytest session whose outcome depends on the code alone."""

    def pytest_configure(self) -> None:
        """Draw the same examples every time; say at once that one fails."""
        from hypothesis import HealthCheck, Phase, settings

        settings.register_profile(
            "mutants",
            settings.get_profile("dpadmm"),
            derandomize=True,
            database=None,
            phases=(Phase.explicit, Phase.generate),
            suppress_health_check=list(HealthCheck),
        )
        settings.load_profile("mutants")


class Watch(Quiet):
    """Remembers the first test that failed."""

    failed = ""

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Note a failure of any phase."""
        if report.failed and not self.failed:
            self.failed = report.nodeid

    def pytest_collectreport(self, report: Any) -> None:
        """A file that cannot be imported is a failure, too."""
        if report.failed and not self.failed:
            self.failed = report.nodeid or "collection"


class Workshop:
    """A copy of the clone in which modules are broken, and what is known of its tests."""

    def __init__(self, state: Path, tests: list[str], cap: float) -> None:
        self.state, self.tests, self.cap = state.resolve(), tests, cap
        self.copy = self.state / "copy"
        self.reached: dict[str, dict[str, list[str]]] = {}
        self.seconds: dict[str, float] = {READING: 5.0}
        # Tests that failed on a mutant and pass without it.
        self.trusted: set[str] = set()

    def prepare(self) -> None:
        """Copy the clone as it is now; bytecode of whole modules is kept, that of mutants never."""
        shutil.rmtree(self.copy, ignore_errors=True)
        listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        files = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout
        for name in filter(None, files.split("\0")):
            if (ROOT / name).is_file():
                (self.copy / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, self.copy / name)
        os.chdir(self.copy)
        sys.dont_write_bytecode = True
        paths = f"{self.copy}/src:{self.copy}/papers/src:{self.copy}"
        os.environ |= {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": paths}
        compiled = [sys.executable, "-m", "compileall", "-q", "src"]
        subprocess.run(compiled, check=True, env={**os.environ, "PYTHONDONTWRITEBYTECODE": ""})
        for name in PRELOADED:
            try:
                __import__(name)
            except ImportError:
                continue

    def pytest(self, chosen: Iterable[str], plugin: Any) -> int:
        """One session in this process."""
        options = ["-x", "-q", "-s", "-p", "no:cacheprovider", "-p", "no:xdist"]
        options += ["-W", "ignore:Module already imported"]
        return pytest.main([*options, f"--basetemp={self.state}/temp", *chosen], plugins=[plugin])

    def in_child(self, work: Any, limit: float, note: Path | None = None) -> tuple[str, str]:
        """Run ``work`` in a forked process; its outcome, and the test that it names."""
        note = note or self.state / "note"
        note.write_text("")
        started = time.monotonic()
        child = os.fork()
        if child == 0:
            os.setsid()
            resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(limit), math.ceil(limit) + 1))
            silent = os.open(self.state / "output", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(silent, 1)
            os.dup2(silent, 2)
            try:
                note.write_text(work() or "")
                os._exit(0)
            except BaseException as error:
                note.write_text(f"{type(error).__name__}: {error}"[:300])
                os._exit(1)
        while True:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                break
            # Time by the clock is for those that wait; a busy machine must not make it run out.
            if time.monotonic() - started > 60 + 20 * limit:
                os.killpg(child, signal.SIGKILL)
                os.waitpid(child, 0)
                return "timeout", ""
            time.sleep(0.003)
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGKILL):
            return "timeout", ""
        if status:
            return "killed", note.read_text() or "the process ended"
        return ("killed" if note.read_text() else "survived"), note.read_text()

    # Which tests reach which lines

    def learn(self) -> None:
        """Run tests once, unbroken: which lines they reach and how long they take.

        What is known of files that did not change is kept; all is forgotten if the source changes.
        """
        kept = self.state / "reached.json"
        found = json.loads(kept.read_text()) if kept.exists() else {}
        sources = [path for room in ROOMS for path in sorted((ROOT / room).glob("*.py"))]
        source = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
        if found.get("source") != source:
            found = {"source": source, "files": {}}
        for name in self.files():
            digest = hashlib.sha256((ROOT / name).read_bytes()).hexdigest()
            if found["files"].get(name, {}).get("digest") == digest:
                continue
            note = self.state / "learned"
            outcome, why = self.in_child(lambda mine=name: self._learn(mine), 3600, note)
            if outcome != "killed":
                raise SystemExit(f"{name} must pass before anything is broken; it ended: {outcome}")
            try:
                found["files"][name] = {"digest": digest} | json.loads(why)
            except json.JSONDecodeError:
                raise SystemExit(f"{name} must pass before anything is broken: {why}") from None
            kept.write_text(json.dumps(found))
        for name in self.files():
            self.seconds |= found["files"][name]["seconds"]
            for module, lines in found["files"][name]["reached"].items():
                for at, tests in lines.items():
                    self.reached.setdefault(module, {}).setdefault(at, []).extend(tests)

    def files(self) -> list[str]:
        """The files of tests, by name."""
        found: list[Path] = []
        for name in self.tests:
            path = ROOT / name
            found += sorted(path.rglob("test_*.py")) if path.is_dir() else [path]
        return [str(path.relative_to(ROOT)) for path in found]

    def _learn(self, name: str) -> str:
        import coverage

        folders = [f"{self.copy}/{room}/*" for room in ROOMS]
        measure = coverage.Coverage(data_file=None, config_file=False, include=folders)
        seconds: dict[str, float] = {}

        class Learner(Watch):
            def pytest_runtest_logstart(self, nodeid: str) -> None:
                # What one test has worked out must not keep the next from reaching it.
                for each in self.caches:
                    each.cache_clear()
                measure.switch_context(nodeid)
                seconds[nodeid] = time.process_time()

            def pytest_runtest_logfinish(self, nodeid: str) -> None:
                seconds[nodeid] = time.process_time() - seconds[nodeid]

            def pytest_collection_finish(self) -> None:
                kinds = [thing for thing in _objects() if isinstance(thing, _lru_cache_wrapper)]
                self.caches = [each for each in kinds if str(each.__module__).startswith("dpadmm.")]
                measure.start()

        learner = Learner()
        self.pytest([name], learner)
        measure.stop()
        if learner.failed:
            return f"{learner.failed} failed"
        data = measure.get_data()
        reached = {}
        for path in data.measured_files():
            lines = data.contexts_by_lineno(path)
            module = str(Path(path).relative_to(self.copy))
            reached[module] = {str(at): [t for t in tests if t] for at, tests in lines.items()}
        return json.dumps({"reached": reached, "seconds": seconds})

    def choose(self, mutant: Mutant, everywhere: bool) -> list[str]:
        """The tests that reach the statement, quickest first, up to ``cap`` seconds of them."""
        lines = self.reached.get(mutant.module, {})
        if everywhere:
            wanted = lines.keys()
        else:
            wanted = {str(at) for at in _statement(_parsed(mutant.module), mutant.line)}
        found = {test for at in wanted for test in lines.get(at, ())}
        room, cap = Path(mutant.module).parent.name, self.cap
        if not found:
            # Perhaps a process reaches it that a test starts.
            every, cap = {test for tests in lines.values() for test in tests}, 4 * cap
            found = {test for test in every if test.startswith(f"tests/{room}/")}
        own = f"{room}/test_{Path(mutant.module).stem}.py"
        chosen, total = [], 0.0
        by_cost = sorted(found, key=lambda test: self.seconds[test] * (1 if own in test else 4))
        for test in by_cost:
            total += self.seconds[test]
            if total > cap and chosen:
                break
            chosen.append(test)
        return chosen

    # Breaking things

    def run(self, mutants: list[Mutant], results: Path, until: float) -> None:
        """Run them all or until the time is over: those in functions first, in one server."""
        with results.open("a", encoding="utf-8") as out:

            def keep(mutant: Mutant) -> None:
                record = asdict(mutant)
                del record["text"]
                out.write(json.dumps(record) + "\n")
                out.flush()

            inside, outside = [], []
            for mutant in mutants:
                (inside if _changed_functions(mutant) is not None else outside).append(mutant)
            if inside:
                server = _Server(self, inside, keep, until)
                child = os.fork()
                if child == 0:
                    told = os.open(self.state / "session", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
                    os.dup2(told, 1)
                    self.pytest(self.tests, server)
                    out.flush()
                    os._exit(0 if server.ended else 1)
                if os.waitpid(child, 0)[1]:
                    raise SystemExit(f"the session of tests broke off; see {self.state}/session")
            for mutant in outside:
                if time.monotonic() > until:
                    return
                chosen = [READING, *self.choose(mutant, everywhere=True)]
                self.test(mutant, chosen, self._fresh, self._fresh, extra=20)
                keep(mutant)

    def _fresh(self, chosen: list[str]) -> str:
        watch = Watch()
        code = self.pytest(chosen, watch)
        return watch.failed or ("" if code == 0 else f"pytest ended with {code}")

    def test(
        self, mutant: Mutant, chosen: list[str], broken: Work, whole: Work, extra: float = 5
    ) -> None:
        """Break the file, run tests in a child, mend the file; a kill is one if it then passes."""
        if not chosen:
            mutant.outcome = "unreached"
            return
        path = self.copy / mutant.module
        status, original = path.stat(), path.read_bytes()
        path.write_text(mutant.text, encoding="utf-8")
        started = time.monotonic()
        try:
            limit = extra + 4 * sum(self.seconds[test] for test in chosen)
            mutant.outcome, mutant.by = self.in_child(lambda: broken(chosen), limit)  # type: ignore[assignment]
        finally:
            path.write_bytes(original)
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        mutant.seconds = round(time.monotonic() - started, 2)
        by = mutant.by
        if mutant.outcome == "killed" and by in self.seconds and by not in self.trusted:
            outcome, _ = self.in_child(lambda: whole([by]), extra + 20 * self.seconds[by])
            if outcome != "survived":
                raise SystemExit(f"{by} ends as {outcome} though nothing is broken")
            self.trusted.add(by)


class _Server(Watch):
    """A pytest session that has collected its tests and runs some of them for each mutant."""

    def __init__(self, shop: Workshop, mutants: list[Mutant], keep: Any, until: float) -> None:
        self.shop, self.mutants, self.keep, self.until = shop, mutants, keep, until
        self.ended = False

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """In place of the loop over all tests."""
        items = {item.nodeid: item for item in session.items}
        functions = _imported_functions({mutant.module for mutant in self.mutants})
        # What was made so far is not looked at again: pages stay shared with the children.
        gc.collect()
        gc.freeze()

        def whole(chosen: list[str]) -> str:
            from _pytest.main import pytest_runtestloop

            session.items = [items[test] for test in chosen]
            with contextlib.suppress(session.Failed):
                pytest_runtestloop(session)
            return self.failed

        for mutant in self.mutants:
            if time.monotonic() > self.until:
                break
            chosen = [t for t in self.shop.choose(mutant, everywhere=False) if t in items]

            # Found before anything runs: a function that is not found is a fault here, no kill.
            changed = [
                (function, new.replace(co_filename=function.__code__.co_filename))
                for old, new in _changed_functions(mutant) or []
                for function in functions[mutant.module, old.co_qualname, old.co_firstlineno]
            ]

            def broken(chosen: list[str], changed: Any = changed) -> str:
                for function, code in changed:
                    function.__code__ = code
                return whole(chosen)

            self.shop.test(mutant, chosen, broken, whole)
            self.keep(mutant)
        self.ended = True
        return True


@cache
def _parsed(module: str) -> ast.Module:
    return ast.parse((ROOT / module).read_text(encoding="utf-8"))


@cache
def _compiled(module: str) -> CodeType:
    return compile((ROOT / module).read_text(encoding="utf-8"), "module", "exec")


def _statement(tree: ast.AST, line: int) -> range:
    """The lines of the smallest statement at a line; of one with a body, those of its head."""
    best = range(line, line + 1)
    size = 10**9
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or 0):
            last = node.end_lineno or line
            if body := getattr(node, "body", None):
                last = max(body[0].lineno - 1, node.lineno)
            if line <= last and last - node.lineno < size:
                best, size = range(node.lineno, last + 1), last - node.lineno
    return best


def _functions(code: CodeType) -> Iterator[CodeType]:
    """The outermost functions of a module and its classes."""
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            if inner.co_flags & 0x2:  # CO_NEWLOCALS: a function, not the body of a class
                yield inner
            else:
                yield from _functions(inner)


def _skeleton(code: CodeType) -> tuple[Any, ...]:
    """What a module or a class does itself, without what is in its functions."""
    inner = []
    for each in code.co_consts:
        if not isinstance(each, CodeType):
            inner.append(repr(each))
        elif each.co_flags & 0x2:
            inner.append(each.co_qualname)
        else:
            inner.append(repr(_skeleton(each)))
    return (code.co_code, code.co_names, tuple(inner))


def _changed_functions(mutant: Mutant) -> list[tuple[CodeType, CodeType]] | None:
    """Old and new code of the functions that differ; None if anything else does."""
    before, after = _compiled(mutant.module), compile(mutant.text, "module", "exec")
    if _skeleton(before) != _skeleton(after):
        return None
    pairs = list(zip(_functions(before), _functions(after), strict=True))
    changed = [(old, new) for old, new in pairs if old != new]
    fits = all(old.co_freevars == new.co_freevars for old, new in changed)
    # What a module runs at once, such as a comprehension, is no function that could be replaced.
    fits = fits and not any(old.co_name.endswith(("comp>", "expr>")) for old, _ in changed)
    return changed if changed and fits else None


def _objects() -> list[Any]:
    """All that Python keeps track of, also what a session of tests has put out of sight."""
    gc.unfreeze()
    return gc.get_objects()


def _imported_functions(modules: Iterable[str]) -> dict[tuple[str, str, int], list[FunctionType]]:
    """The functions of imported modules, wherever they are held: by module, name and line."""
    found: dict[tuple[str, str, int], list[FunctionType]] = {}
    files = {f"/{module}": module for module in modules}
    for thing in _objects():
        if isinstance(thing, FunctionType):
            code = thing.__code__
            place = code.co_filename.rfind("/src/dpadmm/")
            if place >= 0 and (module := files.get(code.co_filename[place:])):
                key = (module, code.co_qualname, code.co_firstlineno)
                found.setdefault(key, []).append(thing)
    return found
