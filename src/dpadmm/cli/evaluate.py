"""``dpadmm evaluate``: how good a model is, and what it cost to know."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from dpadmm.cli.output import (
    DelimiterOption,
    JsonOption,
    VerboseOption,
    emit,
    owner_at_terminal,
    plain_quality,
    refusals,
    say,
    show_quality,
    show_statement,
    takes,
    warn,
)
from dpadmm.errors import ParameterError

if TYPE_CHECKING:
    from dpadmm.run.classifier import Quality
    from dpadmm.run.config import RunConfig
    from dpadmm.run.model import Model

_THRESHOLDS: Final = ("threshold", "sensitivity", "specificity")


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions:
    """What ``dpadmm evaluate`` is asked."""

    source: Annotated[
        Path, typer.Argument(help="A run.toml, whose parties' rows are used; or a model file.")
    ]
    public: Annotated[
        Path | None,
        typer.Option(help="CSV or Parquet file of public rows: evaluated exactly, and free."),
    ] = None
    epsilon: Annotated[
        float | None,
        typer.Option(help="Epsilon to spend; default: the run's, where rows were held out."),
    ] = None
    delta: Annotated[float | None, typer.Option(help="Delta to spend; default: the run's.")] = None
    noise: Annotated[
        str | None, typer.Option(help="own or shared; as the training has it, unless given.")
    ] = None
    threshold: Annotated[
        float | None, typer.Option(help="Two classes: scores above it are the second class.")
    ] = None
    sensitivity: Annotated[
        float | None, typer.Option(help="Choose the threshold that reaches this sensitivity.")
    ] = None
    specificity: Annotated[
        float | None, typer.Option(help="Choose the threshold that reaches this specificity.")
    ] = None
    sure: Annotated[
        bool,
        typer.Option(
            "--sure", help="The interval's lower end must reach it, not only the estimate."
        ),
    ] = False
    confidence: Annotated[float, typer.Option(help="Confidence of each interval.")] = 0.95
    probabilities: Annotated[
        bool,
        typer.Option("--probabilities", help="Fit probabilities to the histogram, for --write."),
    ] = False
    write: Annotated[
        bool, typer.Option("--write", help="Write threshold and probabilities into the model.")
    ] = False
    delimiter: DelimiterOption = None
    verbose: VerboseOption = False
    as_json: JsonOption = False

    @property
    def chooses(self) -> bool:
        """Whether anything is chosen that a model could keep."""
        thresholds = (getattr(self, name) for name in _THRESHOLDS)
        return self.probabilities or any(each is not None for each in thresholds)


@takes(EvaluateOptions)
def evaluate(options: EvaluateOptions) -> None:
    """Say how good a model is: accuracy, ROC, calibration, each with an interval.

    For example:

    * `dpadmm evaluate run.toml` (on its parties' rows: one noisy histogram, charged)

    * `dpadmm evaluate my.model --public public.csv` (on public rows: exact, nothing is charged)

    * `dpadmm evaluate my.model --sensitivity 0.9 --write` (choose a threshold and store it)

    Held-out rows (`holdout` under `[run]`) have an account of their own. On rows that training
    read, an evaluation adds to what was spent, and `--epsilon` must say how much. What a model
    already knows, from its training or from this command, is shown again for free.
    """
    from dpadmm.run.model import load_model

    with refusals("evaluate", options.as_json):
        _check_thresholds(options)
        config = _config(options.source)
        place = options.source if config is None else config.result.model
        model = load_model(place)
        if config is not None:
            _check_run(config, model)
        _check_classes(options, len(model.classifier.classes))
        stored = model.classifier.quality
        quality = _quality(options, config, model)
        # What was paid for is kept at once: a threshold may turn out to be out of reach.
        paid = quality.privacy is not None and (stored is None or options.epsilon is not None)
        if paid:
            model = _with_paid(model, quality, counted=config is not None and bool(config.ledgers))
            _save(place, model, config)
        quality = _with_threshold(options, quality)
        evaluation = quality.evaluation(options.confidence)
        # A threshold changes predictions, and is written if asked.
        if options.write:
            model = _with_choices(model, quality, options)
            _save(place, model, config)
    if options.as_json:
        written = {"model": str(place), "written": bool(paid or options.write)}
        emit("evaluate", written | plain_quality(quality, evaluation))
        return
    show_quality(quality, evaluation, [str(name) for name in model.classifier.classes])
    if quality.privacy is not None:
        show_statement(quality.privacy, verbose=options.verbose)
    if paid or options.write:
        say(f"Written: {place}")
    elif options.chooses:
        say("Nothing was written: --write puts it into the model.")


def _check_thresholds(options: EvaluateOptions) -> None:
    """Refuse a question that no histogram can answer, before one is paid for."""
    from dpadmm.evaluation.intervals import normal_quantile
    from dpadmm.evaluation.metrics import check_wish

    given = [f"--{name}" for name in _THRESHOLDS if getattr(options, name) is not None]
    if len(given) > 1:
        raise ParameterError(f"one of {', '.join(given)} must be given, not several; keep one.")
    normal_quantile(options.confidence)
    if options.threshold is not None and not math.isfinite(options.threshold):
        raise ParameterError(f"--threshold must be a finite number; got {options.threshold!r}.")
    if options.sensitivity is not None or options.specificity is not None:
        check_wish(options.sensitivity, options.specificity)
    if options.public is not None:
        for name in ("epsilon", "delta", "noise"):
            if getattr(options, name) is not None:
                raise ParameterError(
                    f"--{name} must be left out with --public: nothing is charged for public rows."
                )


def _check_classes(options: EvaluateOptions, classes: int) -> None:
    """Refuse a threshold for several classes."""
    given = [f"--{name}" for name in _THRESHOLDS if getattr(options, name) is not None]
    if given and classes != 2:
        raise ParameterError(
            f"{given[0]} must be left out with {classes} classes: the class of the largest score "
            "is predicted."
        )


def _config(source: Path) -> RunConfig | None:
    from dpadmm.run.config import load_config

    return load_config(source) if source.suffix.lower() == ".toml" else None


def _quality(options: EvaluateOptions, config: RunConfig | None, model: Model) -> Quality:
    """What is known of the model, or found out now."""
    from dpadmm.run.evaluate_files import EvaluationRequest, evaluate_public, evaluate_run

    stored = model.classifier.quality
    if options.public is not None:
        return evaluate_public(model, options.public, delimiter=options.delimiter)
    if stored is not None and options.epsilon is None:
        return stored
    if config is None:
        raise ParameterError(
            "rows must be given to evaluate a model that was not evaluated yet: --public FILE for "
            "public rows, or the run.toml that made it for the rows of its parties; got neither."
        )
    if stored is not None and not config.ledgers and config.run.simulation_key is None:
        warn(
            "this model was evaluated before, and no ledger counts what evaluations spend on the "
            "same rows: this one spends its epsilon anew, and what all of them guarantee adds up. "
            "Name a ledger for every party under [ledgers] (dpadmm ledger init) to have it counted."
        )
    request = EvaluationRequest(options.epsilon, options.delta, options.noise)
    return evaluate_run(config, model, request, owner_at_terminal()).quality


def _check_run(config: RunConfig, model: Model) -> None:
    """Refuse what could not keep what is about to be paid for: places, and papers of another run.

    Before anything is read or written: the record and the page that the configuration names tell of
    one model, which is the one in its place.
    """
    from dpadmm.durable import check_writable
    from dpadmm.run.evaluate_files import check_model
    from dpadmm.run.result import read_record

    check_model(config, model)
    result = config.result
    check_writable(result.model, "model")
    if config.policy.preflight != "off":
        check_writable(result.preflight_file, "preflight")
    if result.record is None or not result.record.exists():
        return
    if not read_record(result.record).is_of(model):
        raise ParameterError(
            f"record must be that of the model in {result.model}; {result.record} is of another "
            "training. Name its own record, or remove it."
        )
    for what, place in (("record", result.record), ("report", result.report_file)):
        if place is not None:
            check_writable(place, what)


def _with_threshold(options: EvaluateOptions, quality: Quality) -> Quality:
    from dpadmm.evaluation.metrics import choose_threshold

    threshold = quality.threshold if options.threshold is None else options.threshold
    if options.threshold is not None:
        edges = quality.histogram.grid.edges
        threshold = min(edges, key=lambda edge: abs(edge - threshold))
    if options.sensitivity is not None or options.specificity is not None:
        threshold = choose_threshold(
            quality.histogram,
            sensitivity=options.sensitivity,
            specificity=options.specificity,
            sure=options.sure,
            confidence=options.confidence,
        ).threshold
    quality = replace(quality, threshold=threshold)
    return quality.with_links() if options.probabilities else quality


def _with_paid(model: Model, quality: Quality, *, counted: bool) -> Model:
    """The model with an evaluation of private rows, unless it knows a better one; and its cost."""
    stored = model.classifier.quality
    classifier = model.classifier.evaluated_later(quality, counted=counted)
    if stored is None:
        classifier = replace(classifier, quality=replace(quality, threshold=0.0))
    elif _sharper(quality, stored):
        # What was chosen for predictions stays until something else is.
        links = quality.links or stored.links
        kept = replace(quality, threshold=stored.threshold, links=links)
        classifier = replace(classifier, quality=kept)
    return replace(model, classifier=classifier)


def _with_choices(model: Model, quality: Quality, options: EvaluateOptions) -> Model:
    """The model with what was chosen by an evaluation."""
    changes: dict[str, Any] = {"threshold": quality.threshold}
    if options.probabilities:
        changes["links"] = quality.links
    kept = replace(model.classifier.quality or quality, **changes)
    return replace(model, classifier=replace(model.classifier, quality=kept))


def _save(place: Path, model: Model, config: RunConfig | None) -> None:
    """Write the model, and what its run's record and page say of it."""
    from dpadmm.run.model import save_model

    save_model(place, model)
    if config is not None:
        _tell_report(config, model)


def _sharper(found: Quality, stored: Quality) -> bool:
    """Whether what was released now tells more than what a model knows: private rows, less noise.

    Public rows do not take the place of what was released about private ones.
    """
    if stored.privacy is None:
        return True
    counts, before = found.histogram, stored.histogram
    # Noise of a share of all rows.
    return counts.noise_variance / counts.rows**2 <= before.noise_variance / before.rows**2


def _tell_report(config: RunConfig, model: Model) -> None:
    """Put it into the record and the page of the run, where there is a record."""
    import hashlib

    from dpadmm.report.html import write_page
    from dpadmm.report.run import run_report
    from dpadmm.run.model import model_bytes
    from dpadmm.run.result import RecordedRun, ledger_facts, read_record

    result = config.result
    if result.record is None or not result.record.exists():
        return
    quality = model.classifier.quality
    content = read_record(result.record).plain()
    content["privacy"]["caveats"] = list(model.privacy.caveats)
    content |= {
        "quality": None if quality is None else quality.to_dict(),
        "model_sha256": hashlib.sha256(model_bytes(model)).hexdigest(),
        **ledger_facts(config.ledgers),
    }
    record = RecordedRun.from_dict(content)
    record.write(result.record)
    if result.report_file is not None:
        write_page(result.report_file, run_report(record))
