"""The data of the demo, and what is trained on them."""

from __future__ import annotations

import os
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from rich.progress import Progress, TaskID

from dpadmm.cli.output import console, show_table
from dpadmm.plain import Array
from dpadmm.privacy.figures import Given
from dpadmm.sentences import DataError

if TYPE_CHECKING:
    from dpadmm.privacy.statement import PrivacyStatement
    from dpadmm.run.parameters import TrainingParameters

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


def load_data(seed: int) -> DemoData:
    """Adult where it is at hand, else waveform; a fifth of the rows of each party each."""
    from dpadmm.data.named import load

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

    def accuracy(rows: Array, labels: Array, parties: int) -> float:
        strength = parties / (len(labels) * DEMO_REGULARIZATION)
        model = LogisticRegression(C=strength, fit_intercept=False, max_iter=2000)
        return score(data, model.fit(rows, labels).coef_[0])

    result = []
    for number, (rows, labels) in enumerate(data.members):
        result.append((f"party {number} alone", len(labels), accuracy(rows, labels, 1)))
    pooled_rows = np.concatenate([rows for rows, _ in data.members])
    pooled_labels = np.concatenate([labels for _, labels in data.members])
    pooled = accuracy(pooled_rows, pooled_labels, _PARTIES)
    result.append(("pooled (rows shared)", len(pooled_labels), pooled))
    return result


def demo_result(
    data: DemoData, rows: list[tuple[str, int, float]], statement: PrivacyStatement
) -> dict[str, Any]:
    """What was found, for machines."""
    return {
        "data": data.title,
        "accuracy": [dict(zip(("who", "rows", "accuracy"), row, strict=True)) for row in rows],
        "privacy": statement.to_dict(),
    }


def show_accuracy(data: DemoData, rows: list[tuple[str, int, float]]) -> None:
    """Print who reached what."""
    console.print(f"\n[bold]Data:[/bold] {data.title}\n", highlight=False)
    table = [(who, count, f"{100 * accuracy:.1f} %") for who, count, accuracy in rows]
    show_table("Accuracy on held-out rows", ("who", "rows", "accuracy"), table)


def show_statement(heading: str, statement: PrivacyStatement) -> None:
    """Print what is guaranteed, line by line."""
    console.print(f"\n[bold]{heading}[/bold]", highlight=False)
    for part, words in statement.lines():
        console.print(f"  [bold]{part}:[/bold] {words}", highlight=False)


def together(
    data: DemoData,
    rounds: int,
    seed: int,
    progress: Progress,
    budgets: tuple[float, ...] = _BUDGETS,
) -> tuple[dict[str, Any], dict[str, _Course]]:
    """ADMM without noise, then PR-ADMM at several budgets, several runs each."""
    from dpadmm.cli.demo_report import ShownRun
    from dpadmm.privacy.noise import SimulatedNoise
    from dpadmm.problem.rows import Shard
    from dpadmm.run.classifier import Classifier
    from dpadmm.run.plan import plan
    from dpadmm.run.train import state_privacy, train

    shard = Shard.from_parties([(rows, labels[:, None]) for rows, labels in data.members])
    total = int(shard.counts.sum())
    rows: list[tuple[str, int, float]] = []
    histories: dict[str, _Course] = {}
    shown = None
    for epsilon in (None, *budgets):
        label = "no noise" if epsilon is None else f"epsilon = {Given(epsilon)}"
        parameters = _parameters(epsilon, rounds)
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
            names, classes = planned.site.names, data.label[1]
            classifier = Classifier.of_run(
                planned, outcome, statement, classes=classes, parties=names
            )
            shown = ShownRun(parameters, planned, classifier)
    return {"rows": rows, "shown": shown}, histories


def _parameters(epsilon: float | None, rounds: int) -> TrainingParameters:
    """ADMM without noise where there is no budget, else PR-ADMM within it."""
    from dpadmm.run.parameters import TrainingParameters

    return TrainingParameters(
        algorithm="admm" if epsilon is None else "pr-admm",
        rounds=rounds,
        epsilon=1.0 if epsilon is None else epsilon,
        delta=DELTA,
        regularization=DEMO_REGULARIZATION,
    ).settled()


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
