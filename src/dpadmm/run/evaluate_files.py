"""A saved model, evaluated: on the rows of its run, which is charged, or on public rows."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from dpadmm.data.schema import Schema, load_schema
from dpadmm.data.tables import check_columns, encoded_batches
from dpadmm.errors import DataError, ParameterError, shown_value
from dpadmm.evaluation.histogram import NoisyHistogram, ScoreGrid
from dpadmm.ledger.balance import Account
from dpadmm.privacy.figures import pair
from dpadmm.problem.rows import scaled_margins
from dpadmm.run.charges import (
    EvaluationTerms,
    WholePlan,
    adds_up,
    evaluation_id,
    evaluation_noise,
    has_begun,
    ledger_accounts,
    refuse_apart,
)
from dpadmm.run.classifier import IN_ALL, PUBLIC, Quality
from dpadmm.run.config import RunConfig, run_hash
from dpadmm.run.files import (
    Owner,
    check_rows,
    file_schema,
    lay_out_part,
    look_first,
    plan_config,
    read_parties,
    reading_word,
    run_name,
    run_noise,
    run_session,
    work_folder,
)
from dpadmm.run.model import Model, ModelError
from dpadmm.run.options import PrivacyWarning, Split, Wish
from dpadmm.run.plan import announced
from dpadmm.run.predict import encoded_pieces
from dpadmm.run.session import Charged, Judgement, spent_in_all


@dataclass(frozen=True)
class EvaluationRequest:
    """The budget of an evaluation of a run's rows; None takes the run's.

    Attributes
    ----------
    epsilon, delta
        Its budget. Where it adds up an epsilon must be given: without rows kept out of training,
        or where a person may have rows in both parts (:func:`~dpadmm.privacy.events.parts_add_up`).
    noise, colluders
        Whose noise the counts get.
    """

    epsilon: float | None = None
    delta: float | None = None
    noise: str | None = None
    colluders: int | None = None

    def terms(self, config: RunConfig, names: tuple[str, ...]) -> EvaluationTerms:
        """The terms, or a refusal if one of them is missing."""
        asked = EvaluationTerms.of_run(config.parameters(names))
        if self.epsilon is None and not config.run.holdout:
            raise ParameterError(
                "epsilon must be given where no rows were kept out of training (holdout under "
                "[run]): what the evaluation spends adds to what the training spent; got none."
            )
        if self.noise not in (None, "own", "shared"):
            raise ParameterError(f"noise must be 'own' or 'shared'; got {self.noise!r}.")
        changes = {name: value for name, value in vars(self).items() if value is not None}
        if self.noise == "own":
            changes["colluders"] = None
        return replace(asked, **changes)


def evaluate_run(
    config: RunConfig, model: Model, request: EvaluationRequest, owner: Owner | None = None
) -> Judgement:
    """Evaluate the model of a run on its parties' files: on rows kept out, or trained on.

    It is charged to their ledgers; the same evaluation of the same model costs nothing again. Every
    refusal comes before a row is read. Then the pre-flight looks at the rows, for the ``owner`` at
    a terminal, as before a training.
    """
    schema = check_model(config, model)
    check_rows(config, schema)
    accounts = ledger_accounts(config.ledgers)
    # In the order of the parties, as the training had them: its name depends on it.
    order = [party.name for party in config.party] or sorted(accounts)
    counted = {name: accounts[name].dataset.rows for name in order if name in accounts}
    _check_counts(model, counted)
    weights, begun = model.classifier.coef, False
    if counted:
        whole = _whole(config, schema, counted, request)
        planned = whole.evaluation(weights)
        name_of_run, split = run_name(config, schema, counted), whole.wish.split
        _check_trained_rows(accounts, name_of_run, split, reading_word(config, schema))
        run_id = evaluation_id(name_of_run, planned)
        part = split.held_out
        for name, events in zip(planned.site.names, announced(planned), strict=True):
            if run_id not in accounts[name].runs:
                accounts[name].require(events, part(counted[name]))
        begun = any(has_begun(account, run_id) for account in accounts.values())
    if not begun:
        look_first(config, schema, config.result.preflight_file, owner)
    with ExitStack() as stack:
        folder = stack.enter_context(work_folder(config.result.model))
        parties = read_parties(config, schema, folder, counted, stack)
        rows = {name: len(party) for name, party in parties.items()}
        _check_counts(model, rows)
        whole = _whole(config, schema, rows, request)
        session = run_session(config, schema, whole, run_noise(config))
        noise = evaluation_noise(session.noise, session.simulation_key)
        each, held_out = list(parties.values()), whole.wish.split.held_out
        shard = lay_out_part(whole.training, each, held_out, noise)
        judged = session.evaluate(weights, shard)
    return _told_in_all(whole, judged, session.about)


def check_model(config: RunConfig, model: Model) -> Schema:
    """Refuse a model that another run made; return the schema for the files of this one.

    The record beside the model and the name in the ledgers are this run's, so that budget and rows
    must be this run's, too.
    """
    schema = file_schema(load_schema(config.data.schema_file), config)
    if model.schema is None or model.schema.sha256 != schema.sha256:
        raise ModelError(
            "model must be of the run's schema; this one was made by another: name the run that "
            "made it"
        )
    made, rows = model.provenance.get("run_sha256"), model.provenance.get("rows", {})
    names = [party.name for party in config.party]
    same_parties = isinstance(rows, dict) and list(rows) == (names or list(rows))
    if same_parties and made == run_hash(config, schema.sha256, rows):
        return schema
    raise ModelError(
        f"model must be of the run of this configuration; this one is of run {str(made)[:12]}, "
        f"{_other_run(config, model)}: correct the configuration, or name the one that made it"
    )


def _other_run(config: RunConfig, model: Model) -> str:
    """How the run that made a model differs from this one, in words."""
    if "federation" in model.provenance:
        return "which nodes agreed on"
    come_from = model.provenance.get("config")
    told = come_from.get("run") if isinstance(come_from, dict) else None
    here = config.plain()["run"]
    if not isinstance(told, dict) or told == here:
        return "of other parties or another version"

    def said(table: dict[str, Any], name: str) -> str:
        return f"{name} = {shown_value(table[name])}" if name in table else f"no {name}"

    differing = [name for name in sorted({*told, *here}) if told.get(name) != here.get(name)]
    pairs = (f"{said(told, name)}, here {said(here, name)}" for name in differing)
    return f"which has {'; '.join(pairs)}"


def _check_trained_rows(
    accounts: Mapping[str, Account], run_id: str, split: Split, word: str
) -> None:
    """Refuse rows that were trained on, or are read otherwise than then, by what ledgers know."""
    for name, account in accounts.items():
        known = account.runs.get(run_id)
        if known is not None and known.rows != split.train(account.dataset.rows):
            raise ParameterError(
                f"holdout must be what run {run_id!r} was trained with, by the ledger of party "
                f"{name}; the run says {split.holdout!r}. Name the run that made the model."
            )
        if known is not None and known.preparation not in (None, word):
            raise ParameterError(
                f"[data] and [[party]] must say how files are read as they did when run {run_id!r} "
                f"was charged to the ledger of party {name}; they differ: take the change back."
            )


def _check_counts(model: Model, rows: Mapping[str, int]) -> None:
    """Refuse files that grew or shrank: their last rows are no longer the held-out ones."""
    trained = model.provenance["rows"]
    for name, count in rows.items():
        before = trained.get(name, 0)
        if before != count:
            raise DataError(
                f"rows of party {name} must be as many as the model was trained with, {before!r}; "
                f"got {count}: which of them were kept out is told by their number"
            )


def _told_in_all(whole: WholePlan, judged: Judgement, about: Charged) -> Judgement:
    """The same model; its statement names whatever more the ledgers list of the run."""
    training, split = whole.training, whole.wish.split
    others = about.others(training, whole.wish, judged)
    stated = judged.quality.privacy
    if not others.names or stated is None:
        return judged
    in_all = spent_in_all(training, about.of_training(training), judged, others, split)
    caveat = (
        f"{IN_ALL}, the training and all {len(others.names) + 1} evaluations that the ledgers have "
        f"under this run are {pair(in_all.epsilon, in_all.delta)}-differentially private."
    )
    quality = replace(judged.quality, privacy=replace(stated, caveats=(caveat,)))
    return replace(judged, quality=quality)


def _whole(
    config: RunConfig, schema: Schema, rows: Mapping[str, int], request: EvaluationRequest
) -> WholePlan:
    """The run with the terms of this evaluation in place of those it asked for."""
    wish = config.run.wish
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivacyWarning)
        whole = plan_config(config, schema, rows, Wish(wish.split))
    refuse_apart(whole.training)
    if request.epsilon is None and adds_up(whole.training):
        raise ParameterError(
            "epsilon must be given where a person may have several rows (rows_per_person) and "
            "releases are not Gaussian: what the evaluation spends adds to what the training "
            "spent, also on rows kept out; got none."
        )
    terms = request.terms(config, tuple(rows))
    return replace(whole, wish=replace(wish, evaluate=False), terms=terms)


def evaluate_public(model: Model, source: Path, *, delimiter: str | None = None) -> Quality:
    """Evaluate a model exactly on rows that are public; nothing is charged.

    Parameters
    ----------
    model
        One with a schema.
    source
        A CSV or Parquet file with labels, whose rows anybody may see.
    delimiter
        Between the cells of a CSV file.
    """
    if model.schema is None:
        raise ModelError(
            "model must have a schema to read files by; this one was fitted on arrays: use "
            "dpadmm.evaluation.histogram"
        )
    schema, classifier = model.schema.without_party(), model.classifier
    check_columns(source, schema, delimiter=delimiter, only_known=False)
    grid = ScoreGrid.of_model(classifier.coef, len(classifier.classes))
    counts, rows = np.zeros(grid.cells), 0
    for batch in encoded_batches(source, schema, delimiter=delimiter, only_known=False):
        assert batch.labels is not None
        first = 0
        for piece in encoded_pieces(batch, schema):
            margins = scaled_margins(piece, classifier.coef, classifier.intercept)
            labels = batch.labels[first : first + len(margins)]
            first += len(margins)
            each = margins[:, 0] if grid.classes == 2 else margins
            counts += grid.counts(each, labels)
        rows += batch.counts.rows
    if not rows:
        raise DataError(f"{source} must have at least one row; got none")
    return Quality(NoisyHistogram(grid, counts, 0.0, rows), PUBLIC)
