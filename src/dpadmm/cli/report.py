"""``dpadmm report``: the page of a run, of several, or of a comparison, built again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpadmm.cli.output import JsonOption, emit, refusals, say
from dpadmm.durable import check_writable, write_whole
from dpadmm.errors import ParameterError, unknown_name

if TYPE_CHECKING:
    from dpadmm.report.document import Report
    from dpadmm.run.result import RecordedRun

# What a record raises that has the form of one, but whose parts contradict each other.
_UNFIT = (LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(
            help="Run records (JSON), folders with a record.json, or one folder with a "
            "manifest.json."
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The page to write.")] = Path(
        "report.html"
    ),
    ledger: Annotated[
        list[str] | None,
        typer.Option(
            help="PARTY=FILE: check this party's ledger now, in place of what the record says. May "
            "be repeated; with one run only."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Write the report of a run again, or put several runs side by side.

    Example: `dpadmm report record.json -o report.html`

    A report is one HTML file that opens without a network: who took part, what was learnt, what is
    guaranteed and what is not, what each party spent. `dpadmm train` writes one beside the model.
    This command makes it again from the record of the run.
    """
    with refusals("report", as_json):
        from dpadmm.report.html import render

        if output.resolve() in [_record(path).resolve() for path in runs]:
            raise ParameterError(f"output must not be one of the runs; got {output}.")
        check_writable(output, "report")
        try:
            made = _report(runs, ledger or [])
            page = render(made).encode()
        except _UNFIT as error:
            listed = ", ".join(map(str, runs))
            raise ParameterError(
                f"runs must be records that dpadmm wrote; {listed} do not hold together "
                f"({type(error).__name__}): get them again."
            ) from None
        write_whole(output, page, "report")
    if as_json:
        emit("report", {"report": str(output), "title": made.title, "runs": len(runs)})
    else:
        say(f"Report: {output}")


def _record(path: Path) -> Path:
    return path / "record.json" if path.is_dir() else path


def _report(paths: list[Path], ledgers: list[str]) -> Report:
    from dpadmm.report.document import read_report
    from dpadmm.report.html import SAVED
    from dpadmm.report.run import run_report, runs_report
    from dpadmm.run.result import read_record

    if ledgers and len(paths) > 1:
        raise ParameterError(f"--ledger must come with one run; got {len(paths)} runs.")
    folders = [path for path in paths if (path / SAVED).is_file()]
    if folders:
        if len(paths) > 1 or ledgers:
            raise ParameterError(
                f"a folder with a {SAVED} must be reported by itself; got {folders[0]} and more."
            )
        return read_report(folders[0] / SAVED)
    if len(paths) == 1 and (study := _study(_record(paths[0]))) is not None:
        return study
    found = [read_record(_record(path)) for path in paths]
    if len(found) == 1:
        return run_report(_with_ledgers(found[0], ledgers))
    return runs_report(list(zip(_names(paths), found, strict=True)))


def _study(path: Path) -> Report | None:
    """The page of a study; None where the record is another."""
    from dpadmm.report.studies import REPORTS
    from dpadmm.studies.study_files import read_study

    try:
        record = read_study(path)
    except ParameterError:
        return None
    return REPORTS[record["kind"]](record) if record["kind"] in REPORTS else None


def _names(paths: list[Path]) -> list[str]:
    """The shortest ends of the paths that tell them apart."""
    parts = [path.resolve().with_suffix("").parts for path in paths]
    for length in range(1, max(len(part) for part in parts) + 1):
        names = ["/".join(part[-length:]) for part in parts]
        if len(set(names)) == len(names):
            return names
    return [f"{place}: {path}" for place, path in enumerate(paths, 1)]


def _with_ledgers(run: RecordedRun, ledgers: list[str]) -> RecordedRun:
    """The run with ledgers as they are now."""
    from dpadmm.run.result import LedgerCheck, ledger_checks

    places: dict[str, str | Path] = {}
    for text in ledgers:
        name, equals, place = text.partition("=")
        if not equals or not place:
            raise ParameterError(f"--ledger must be PARTY=FILE; got {text!r}.")
        if name not in run.names:
            raise unknown_name("--ledger's party", name, run.names)
        places[name] = place
    checks = {
        name: LedgerCheck.model_validate({**check, "when": "now"})
        for name, check in ledger_checks(places).items()
    }
    return run.model_copy(update={"ledger_checks": {**run.ledger_checks, **checks}})
