"""The data of the demo, and what is trained on them."""

from __future__ import annotations

import os
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)

from dpadmm.cli.output import console
from dpadmm.plain import Array

__all__ = [
    "DELTA",
    "DEMO_REGULARIZATION",
    "DemoData",
    "accuracies",
    "load_data",
    "progress_bar",
    "score",
    "together",
]


_Course = dict[str, list[float]]


_PARTIES = 5


_RUNS = 5


_BUDGETS = (0.1, 1.0, 10.0)


DELTA = 1e-5


DEMO_REGULARIZATION = 1e-4


class DemoData(NamedTuple):
    """Rows of five parties, and rows that nobody trains on."""

    title: str
    label: tuple[str, tuple[str, str]]
    features: tuple[str, ...]
    members: list[tuple[Array, Array]]
    test_rows: Array
    test_labels: Array


def progress_bar(*, quiet: bool) -> Progress:
    """A bar for every run; nothing where a machine reads."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=quiet,
    )


def load_data(seed: int) -> DemoData:
    """Adult where it is at hand, else waveform; a fifth of the rows of each party each."""
    from dpadmm.data.named import DataError, load

    data = None
    if os.environ.get("DPADMM_DATA"):
        try:
            data = load("adult", download=False)
            title, used = "UCI Adult, 40,000 rows at 5 parties", 40_000
            label = ("income", ("at most 50,000 dollars a year", "more"))
        except DataError as error:
            console.print(f"Adult is not at hand: {error}", highlight=False)
    if data is None:
        data = load("waveform", seed=seed, rows=6_000, origin="generator")
        title, used = "Breiman's waveform (generated), 5,000 rows at 5 parties", 5_000
        label = ("waveform", ("-1", "+1"))
    order = np.random.default_rng(seed).permutation(len(data.y))
    shares = np.array_split(order[:used], _PARTIES)
    held_out = order[used:]
    members = [(data.X[share], data.y[share]) for share in shares]
    return DemoData(
        f"{title} ({data.source})",
        label,
        data.feature_names,
        members,
        data.X[held_out],
        data.y[held_out],
    )


def score(data: DemoData, weights: Array) -> float:
    """Share of the held-out rows whose label is right."""
    return float((np.where(data.test_rows @ weights > 0, 1.0, -1.0) == data.test_labels).mean())


def accuracies(data: DemoData) -> list[tuple[str, int, float]]:
    """Each party on its own rows, and scikit-learn on all of them."""
    from sklearn.linear_model import LogisticRegression

    def fitted(rows: Array, labels: Array, parties: int) -> float:
        strength = parties / (len(labels) * DEMO_REGULARIZATION)
        model = LogisticRegression(C=strength, fit_intercept=False, max_iter=2000)
        return score(data, model.fit(rows, labels).coef_[0])

    result = []
    for number, (rows, labels) in enumerate(data.members):
        result.append((f"party {number} alone", len(labels), fitted(rows, labels, 1)))
    pooled_rows = np.concatenate([rows for rows, _ in data.members])
    pooled_labels = np.concatenate([labels for _, labels in data.members])
    pooled = fitted(pooled_rows, pooled_labels, _PARTIES)
    result.append(("pooled (rows shared)", len(pooled_labels), pooled))
    return result


def together(
    data: DemoData,
    rounds: int,
    seed: int,
    progress: Progress,
    budgets: tuple[float, ...] = _BUDGETS,
) -> tuple[dict[str, Any], dict[str, _Course]]:
    """ADMM without noise, then PR-ADMM at several budgets, several runs each."""
    from dpadmm.cli.demo_report import ShownRun
    from dpadmm.privacy.figures import Given
    from dpadmm.privacy.noise import SimulatedNoise
    from dpadmm.problem.rows import Shard
    from dpadmm.run.parameters import TrainingParameters
    from dpadmm.run.plan import plan
    from dpadmm.run.train import state_privacy, train

    shard = Shard.from_parties([(rows, labels[:, None]) for rows, labels in data.members])
    total = int(shard.counts.sum())
    rows: list[tuple[str, int, float]] = []
    histories: dict[str, _Course] = {}
    shown = None
    for epsilon in (None, *budgets):
        label = "no noise" if epsilon is None else f"epsilon = {Given(epsilon)}"
        parameters = TrainingParameters(
            algorithm="admm" if epsilon is None else "pr-admm",
            rounds=rounds,
            epsilon=1.0 if epsilon is None else epsilon,
            delta=DELTA,
            regularization=DEMO_REGULARIZATION,
        ).settled()
        planned = plan(
            parameters,
            shard.counts,
            features=data.test_rows.shape[1],
            names=tuple(f"party {number}" for number in range(_PARTIES)),
            runs=1 if epsilon is None else _RUNS,
        )
        task = progress.add_task(f"together, {label}", total=rounds)
        noise = SimulatedNoise(seed)
        accuracy: list[float] = []
        on_round = partial(_advance, progress, task, data, accuracy)
        outcome = train(planned, shard, noise=noise, on_round=on_round)
        score = _mean_score(data, outcome.last if epsilon is None else outcome.tail)
        runs = "" if epsilon is None else f", mean of {_RUNS} runs"
        rows.append((f"together, {label}{runs}", total, score))
        histories[label] = {
            "accuracy": accuracy,
            "disagreement": outcome.history.disagreement.mean(axis=1).tolist(),
        }
        if epsilon == 1.0:
            statement = state_privacy(planned, outcome.events, noise)
            shown = ShownRun(parameters, planned, outcome, statement)
    return {"rows": rows, "shown": shown}, histories


def _mean_score(data: DemoData, messages: Array) -> float:
    """Accuracy of the mean over parties, averaged over runs."""
    return float(np.mean([score(data, weights) for weights in messages.mean(axis=(0, 2))]))


def _advance(
    progress: Progress,
    task: TaskID,
    data: DemoData,
    accuracy: list[float],
    done: int,
    message: Array,
) -> None:
    progress.update(task, completed=done)
    accuracy.append(_mean_score(data, message))
