"""What to expect of a run before anything is spent on it, from public facts alone.

:func:`plan_run` plans every candidate by the code that a run is planned by, rehearses it on drawn
rows of the same shape (:mod:`~dpadmm.experiments.rehearsal`), and says what it would lose, what
more rows, parties, rounds or budget would bring, and which run it recommends. No file of rows is
opened, so nothing of it costs a budget.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Final

import joblib
import numpy as np

from dpadmm.algorithms import get_algorithm
from dpadmm.algorithms.dp_gd import DPGD
from dpadmm.errors import ParameterError, positive_number
from dpadmm.experiments.comparison import default_entries, parse_entry
from dpadmm.experiments.jobs import Job, OnDone, Result, Store, compute
from dpadmm.experiments.outlook import WORTH, Change, Outlook, Prospect, SmallestEpsilon, hints_for
from dpadmm.experiments.question import DIFFICULTIES, RunQuestion, budget_mu
from dpadmm.experiments.rehearsal import Effort, ExpectedLoss, NoiseCurve, Rehearsal, mean_noise
from dpadmm.privacy.gaussian import gaussian_epsilon
from dpadmm.privacy.noise import secure_noise
from dpadmm.run.options import AUTO, TrainingParameters
from dpadmm.run.plan import Plan, announced
from dpadmm.run.session import state_privacy

Losses = dict[str, ExpectedLoss]

# Stochastic local solves take too long to rehearse within a minute.
_TOO_LONG: Final = ("ps-admm",)
# The same holds for algorithms that compute every party by itself, of more parties than this.
_MOST_PARTIES: Final = 50
_TIMES: Final = (2, 4)
_OWN, _SHARED = "dp-gd", "dp-gd:noise=shared"


def plan_run(
    question: RunQuestion | str | Path,
    *,
    wanted_loss: float | None = None,
    effort: Effort | None = None,
    folder: Path | None = None,
    jobs: int | None = None,
    backend: str = "loky",
    address: str | None = None,
    on_done: OnDone | None = None,
) -> Outlook:
    """Say what to expect of a run, from public facts alone, before anything is spent.

    Parameters
    ----------
    question
        The public facts, or the path of a ``run.toml`` whose parties declare their rows.
    wanted_loss
        Points of accuracy that may be lost: the smallest epsilon for that is looked for.
    effort
        How much is rehearsed.
    folder
        Where finished work is kept, to go on after a crash; nowhere unless given.
    jobs
        Processes to use; as many as there are cores unless given.
    backend, address
        Where, as of :func:`~dpadmm.experiments.jobs.compute`.
    on_done
        Told of progress.

    Raises
    ------
    ParameterError
        If the run that is asked about would be refused.
    """
    if not isinstance(question, RunQuestion):
        question = RunQuestion.from_config(question)
    if wanted_loss is not None:
        wanted_loss = positive_number("loss", wanted_loss)
    stage = _Stage(question, effort or Effort())
    cells = stage.jobs()
    with tempfile.TemporaryDirectory(prefix="dpadmm-plan-") as passing:
        store = Store((folder or Path(passing)) / "cells")
        processes = jobs or joblib.cpu_count()
        results = compute(
            cells, store, jobs=processes, backend=backend, address=address, on_done=on_done
        )
    return _Answers(stage, results).outlook(wanted_loss)


@dataclass(frozen=True)
class _Stage:
    """What is planned and rehearsed for a question."""

    question: RunQuestion
    effort: Effort

    @cached_property
    def own(self) -> Plan:
        """The run that noise is relative to: that of the rule, with noise of each party's own."""
        told = self.question.parameters
        options = {
            name: value
            for name, value in told.algorithm_options.items()
            if told.algorithm not in (AUTO, DPGD.name) or name not in ("noise", "colluders")
        }
        fixed = self.question.planned(algorithm_options=options).plan
        if fixed.budget is None:
            raise ParameterError(
                f"algorithm must be a private one, to say what a budget brings; got "
                f"{fixed.algorithm.name!r}. Use 'auto', or 'dp-gd' or 'pr-admm'."
            )
        if fixed.settings.calibration != "proven":
            raise ParameterError(
                "calibration must be 'proven' to plan a run; got "
                f"{fixed.settings.calibration!r}, whose epsilon is a claim. See dpadmm compare."
            )
        return fixed

    @cached_property
    def rehearsal(self) -> Rehearsal:
        return Rehearsal(self.question, self.own, self.effort)

    @cached_property
    def candidates(self) -> tuple[Prospect, ...]:
        """What could be run, planned and accounted, or refused."""
        return tuple(self._candidates())

    def _candidates(self) -> Iterator[Prospect]:
        asked = self.question.parameters
        named = asked.algorithm != AUTO
        for entry in _entries(self.question, self.own.algorithm.name):
            contender = parse_entry(entry)
            options = dict(contender.options)
            told = replace(
                asked,
                algorithm=contender.algorithm,
                # Rounds that were asked for are those of the algorithm that was asked for.
                rounds=asked.rounds if contender.algorithm == self.own.algorithm.name else AUTO,
            )
            if named and contender.algorithm == asked.algorithm:
                options = {**asked.algorithm_options, **options}
            if entry == _SHARED and "colluders" in asked.algorithm_options:
                options["colluders"] = asked.algorithm_options["colluders"]
            if entry == _OWN:
                options = {**options, "noise": "own"}
                options.pop("colluders", None)
            told = replace(told, algorithm_options=options)
            yield self._candidate(entry, told)

    def _candidate(self, who: str, told: TrainingParameters) -> Prospect:
        try:
            planned = self.question.planned(
                algorithm=told.algorithm,
                loss=told.loss,
                rounds=told.rounds,
                algorithm_options=told.algorithm_options,
            ).plan
        except ParameterError as error:
            return Prospect(who, told, refused=str(error))
        statement = state_privacy(planned, announced(planned), secure_noise(), by_round=False)
        return Prospect(who, told, planned, statement.to_dict())

    @cached_property
    def direct(self) -> list[Prospect]:
        """Candidates to rehearse that no curve answers for."""
        return [
            candidate
            for candidate in self.candidates
            if self.effort.others
            and len(self.question.counts) <= _MOST_PARTIES
            and candidate.plan is not None
            and candidate.parameters.algorithm not in (*_TOO_LONG, self.own.algorithm.name)
        ]

    @property
    def more_parties(self) -> bool:
        """Whether more parties of the same kind can be thought of."""
        told = self.question.parameters
        same = not isinstance(told.epsilon, Mapping) and not isinstance(told.delta, Mapping)
        return same and isinstance(told.topology, str)

    def jobs(self) -> dict[str, Job]:
        """Everything to rehearse, by a label each."""
        rehearsal, found = self.rehearsal, {}
        small = Rehearsal(self.question, self.own, _halved(self.effort))
        for (name, factor), job in rehearsal.curve_jobs().items():
            found[f"{name}, noise {factor:g}"] = job
        for difficulty in DIFFICULTIES:
            name = difficulty.name
            found[f"{name}, pooled"] = rehearsal.pooled(difficulty)
            found[f"{name}, pooled, fewer rows"] = small.pooled(difficulty)
            for kind, factor in self.kinds.items():
                for times in _TIMES:
                    label = f"{name}, {kind}, rounds x{times}"
                    found[label] = rehearsal.at_noise(difficulty, factor, times)
            for candidate in self.direct:
                label = f"{name}, {candidate.who}"
                found[label] = small.together(difficulty, candidate.parameters, label)
            if not rehearsal.in_one_hand and self.more_parties:
                own = replace(self.question.parameters, algorithm=self.own.algorithm.name)
                for times in _TIMES:
                    label = f"{name}, parties x{times}"
                    found[label] = small.together(difficulty, own, label, times)
        return found | self._encoding_jobs()

    def _encoding_jobs(self) -> dict[str, Job]:
        """The run on the same medium rows, encoded otherwise."""
        if not self.effort.others:
            return {}
        found: dict[str, Job] = {}
        for name, shape in self.question.encodings().items():
            question = replace(self.question, encoded=shape)
            own = _Stage(question, self.effort).own
            rehearsal = Rehearsal(question, own, self.effort)
            found[f"medium, {name}"] = rehearsal.at_noise(DIFFICULTIES[1], 1.0)
        return found

    @cached_property
    def kinds(self) -> dict[str, float]:
        """Relative noise of what the curves answer for."""
        if not self.rehearsal.in_one_hand:
            return {self.candidates[0].who: 1.0}
        return {
            candidate.who: mean_noise(candidate.plan) / mean_noise(self.own)
            for candidate in self.candidates
            if candidate.plan is not None and candidate.parameters.algorithm == DPGD.name
        }


def _halved(effort: Effort) -> Effort:
    """For runs that compute every party by itself, which takes longer."""
    return replace(effort, most_rows=effort.most_rows // 2, runs=max(2, effort.runs - 1))


def _entries(question: RunQuestion, family: str) -> list[str]:
    """The private algorithms that are worth a look, the one asked for first."""
    known = [
        entry
        for entry in default_entries(len(question.counts))
        if get_algorithm(parse_entry(entry).algorithm).private
    ]
    asked = [entry for entry in known if parse_entry(entry).algorithm == family] or [family]
    return [*asked, *(entry for entry in known if entry not in asked)]


@dataclass(frozen=True)
class _Answers:
    """What the results of a stage say."""

    stage: _Stage
    results: Mapping[str, Result]

    def _loss(self, label: str, pooled: str) -> ExpectedLoss | None:
        lost = self.stage.rehearsal.losses(self.results[pooled], self.results[label])
        return None if lost is None else ExpectedLoss.of_runs(lost)

    def _by_difficulty(self, label: str, pooled: str = "pooled") -> Losses:
        found = {
            each.name: self._loss(f"{each.name}, {label}", f"{each.name}, {pooled}")
            for each in DIFFICULTIES
        }
        return {name: loss for name, loss in found.items() if loss is not None}

    @cached_property
    def curves(self) -> dict[str, NoiseCurve]:
        factors = sorted({factor for _, factor in self.stage.rehearsal.curve_jobs()})
        found: dict[str, NoiseCurve] = {}
        for each in DIFFICULTIES:
            losses = [
                self._loss(f"{each.name}, noise {factor:g}", f"{each.name}, pooled")
                for factor in factors
            ]
            kept = [pair for pair in zip(factors, losses, strict=True) if pair[1] is not None]
            if not kept:
                # Nothing but a rehearsal's own numbers could refuse what was planned before.
                raise ParameterError(self.results[f"{each.name}, noise 1"].facts["refused"])
            found[each.name] = NoiseCurve(
                tuple(factor for factor, _ in kept), tuple(loss for _, loss in kept if loss)
            )
        return found

    def at(self, factor: float) -> Losses:
        """What is lost with so many times the noise."""
        return {name: curve.at(factor) for name, curve in self.curves.items()}

    @cached_property
    def candidates(self) -> tuple[Prospect, ...]:
        return tuple(replace(each, losses=self._losses_of(each)) for each in self.stage.candidates)

    def _losses_of(self, candidate: Prospect) -> Losses | None:
        if candidate.who in self.stage.kinds:
            return self.at(self.stage.kinds[candidate.who])
        if candidate not in self.stage.direct:
            return None
        return self._by_difficulty(candidate.who, "pooled, fewer rows") or None

    def outlook(self, wanted: float | None) -> Outlook:
        """All answers."""
        best, reason = self._recommended()
        pooled = {
            each.name: float(self.results[f"{each.name}, pooled"].final("test accuracy").mean())
            for each in DIFFICULTIES
        }
        return Outlook(
            self.stage.question,
            pooled,
            self.curves,
            self.candidates,
            best,
            reason,
            tuple(self._changes(best)),
            tuple(self._budgets(best)),
            wanted,
            tuple(self._smallest(wanted)) if wanted is not None else (),
            self._hints(),
            tuple(self._encodings()),
        )

    def _encodings(self) -> Iterator[tuple[str, ExpectedLoss]]:
        """What is lost on medium rows as the schema encodes them, and otherwise."""
        labels = {"as in the schema": "medium, noise 1"}
        labels |= {name: f"medium, {name}" for name in self.stage.question.encodings()}
        for name, label in labels.items():
            if len(labels) > 1 and label in self.results:
                loss = self._loss(label, "medium, pooled")
                if loss is not None:
                    yield name, loss

    def _hints(self) -> tuple[tuple[str, str], ...]:
        shared = next((each for each in self.candidates if each.who == _SHARED), None)
        own = self.candidates[0]
        comparable = own.who == _OWN and shared is not None and shared.losses
        saved = _gain(own, shared) if comparable and shared is not None else None
        return tuple(hints_for(self.stage.question, self.stage.own, self.at(1.0), saved))

    def _recommended(self) -> tuple[Prospect, str]:
        """The algorithm of the rule, with the better noise where the question leaves it open."""
        found = {each.who: each for each in self.candidates}
        stage = self.stage
        kind = stage.question.parameters.algorithm_options.get("noise")
        own = found[next(iter(stage.kinds))]
        shared = found.get(_SHARED)
        if stage.question.parameters.algorithm not in (AUTO, DPGD.name):
            return own, "the algorithm that was asked for"
        if own.who != _OWN or shared is None or shared.losses is None:
            return own, "the algorithm of the public rule for this graph and number of parties"
        if kind is not None:
            told = shared if kind == "shared" else own
            return told, f"noise = {kind!r}, as asked for"
        saved = _gain(own, shared)
        words = f"shared noise would save {saved:.1f} points on average over the difficulties"
        if saved < WORTH:
            return own, f"{words}: not worth a weaker adversary"
        return shared, f"{words}; it asks owners to count on an honest majority"

    def _changes(self, best: Prospect) -> Iterator[Change]:
        stage, told = self.stage, best.parameters
        base = stage.kinds[best.who]
        yield Change("as asked", 1, self.at(base))
        for times in _TIMES:
            yield Change("rows", times, self.at(base / times))
        for times in _TIMES if stage.more_parties else ():
            if stage.rehearsal.in_one_hand:
                options = dict(told.algorithm_options)
                planned = stage.question.planned(
                    parties=times, algorithm=told.algorithm, algorithm_options=options
                ).plan
                yield Change("parties", times, self.at(mean_noise(planned) / mean_noise(stage.own)))
            else:
                losses = self._by_difficulty(f"parties x{times}", "pooled, fewer rows")
                yield Change("parties", times, losses)
        for times in _TIMES:
            yield Change("rounds", times, self._by_difficulty(f"{best.who}, rounds x{times}"))
        for times in _TIMES:
            yield Change("epsilon", times, self.at(base * self._relative(times)))

    def _relative(self, times: float) -> float:
        """How many times the noise is with so many times the epsilon."""
        budget = self.stage.own.budget
        assert budget is not None
        more = replace(budget, epsilon=times * budget.epsilon)
        return float(np.max(budget_mu(budget) / budget_mu(more)))

    def _budgets(self, best: Prospect) -> Iterator[tuple[float, Losses]]:
        """What is lost over the budget, for a drawing."""
        asked = self._largest_epsilon()
        base = self.stage.kinds[best.who]
        for times in (0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0):
            yield times * asked, self.at(base * self._relative(times))

    def _largest_epsilon(self) -> float:
        budget = self.stage.own.budget
        assert budget is not None
        return float(budget.epsilon.max())

    def _smallest(self, wanted: float) -> Iterator[SmallestEpsilon]:
        """The budget at which a curve crosses the wanted loss, of the party that spends most."""
        own = self.stage.own
        budget = own.budget
        assert budget is not None
        most = int(np.argmax(budget.epsilon))
        mu = float(budget_mu(budget)[most]) * budget.rows_per_person
        delta = float(np.broadcast_to(budget.ideal_delta, budget.epsilon.shape)[most])
        for who, base in self.stage.kinds.items():
            for name, curve in self.curves.items():
                noise = curve.most_noise(wanted)
                epsilon = None
                if noise is not None:
                    epsilon = float(gaussian_epsilon(mu * base / noise, delta))
                yield SmallestEpsilon(who, name, epsilon)


def _gain(own: Prospect, shared: Prospect) -> float:
    """Points that shared noise saves, on average over the difficulties."""
    if not own.losses or not shared.losses:
        return 0.0
    pairs: Sequence[tuple[ExpectedLoss, ExpectedLoss]] = [
        (own.losses[name], shared.losses[name]) for name in own.losses
    ]
    return float(np.mean([first.mean - second.mean for first, second in pairs]))
