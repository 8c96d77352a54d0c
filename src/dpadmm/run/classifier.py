"""What a run leaves behind: the classifier, how good it is, last messages, the statement."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpadmm.errors import ParameterError
from dpadmm.evaluation.histogram import Link, NoisyHistogram, fit_links
from dpadmm.evaluation.intervals import Estimate
from dpadmm.evaluation.metrics import ModelFigures, evaluate_histogram
from dpadmm.plain import Array, json_data
from dpadmm.privacy.accountant import network_guarantee
from dpadmm.privacy.events import parts_add_up
from dpadmm.privacy.figures import pair
from dpadmm.privacy.statement import PrivacyStatement

# What trains is not loaded for a model that only predicts.
if TYPE_CHECKING:
    from dpadmm.algorithms.base import Algorithm
    from dpadmm.run.engine import Outcome
    from dpadmm.run.plan import Plan

#: Which rows a model was evaluated on.
HELD_OUT: Final = "held out"
TRAINED_ON: Final = "trained on"
PUBLIC: Final = "public"
_ABOUT: Final = (HELD_OUT, TRAINED_ON, PUBLIC)
#: How a statement begins to tell what an evaluation after its run spent.
EVALUATED_LATER: Final = "Evaluated after the run"
#: How it begins to tell what the ledgers have of a run that was evaluated more than once.
IN_ALL: Final = "In all"


@dataclass(frozen=True, eq=False)
class Quality:
    """The quality of a model, as far as the parties released it.

    Attributes
    ----------
    histogram
        Counts by true class and score, with noise; everything else follows from it.
    about
        Which rows: "held out", "trained on", or "public".
    privacy
        What the histogram cost the parties; None for public rows.
    rows
        The public number of rows of each party in the evaluation.
    links
        From scores to probabilities: one for two classes, else one for each; empty where nobody
        asked for probabilities.
    threshold
        With two classes: scores above it are predicted to be of the second class. Scores are those
        of rows of norm 1 at most (:func:`dpadmm.problem.rows.scaled_margins`).
    """

    histogram: NoisyHistogram = field(repr=False)
    about: str
    privacy: PrivacyStatement | None = field(default=None, repr=False)
    rows: dict[str, int] = field(default_factory=dict)
    links: tuple[Link, ...] = ()
    threshold: float = 0.0

    def __post_init__(self) -> None:
        if self.about not in _ABOUT:
            raise ParameterError(
                f"about must be one of {', '.join(_ABOUT)}; got {self.about!r}: say which rows."
            )
        if (self.privacy is None) != (self.about == PUBLIC):
            raise ParameterError(
                f"privacy must be stated for rows that are not public; {self.about!r} rows have "
                f"{'none' if self.privacy is None else 'one'}."
            )

    def to_dict(self) -> dict[str, Any]:
        """Plain data that :meth:`from_dict` reads."""
        content: dict[str, Any] = {"about": self.about, "rows": dict(self.rows)}
        if self.privacy is not None:
            content["privacy"] = json_data(self.privacy.to_dict())
        if self.links:
            content["links"] = [[link.slope, link.offset] for link in self.links]
        if self.threshold:
            content["threshold"] = self.threshold
        return content | {"histogram": self.histogram.to_dict()}

    @classmethod
    def from_dict(cls, content: Any) -> Quality:
        """Read what :meth:`to_dict` made, or refuse."""
        if not isinstance(content, dict) or not {"about", "histogram"} <= content.keys():
            raise ParameterError("an evaluation must say what it is about, with its histogram.")
        rows, privacy = content.get("rows", {}), content.get("privacy")
        whole = isinstance(rows, dict) and all(
            isinstance(name, str) and type(count) is int and count > 0
            for name, count in rows.items()
        )
        if not whole:
            raise ParameterError("rows of an evaluation must be a whole number for each party.")
        histogram = NoisyHistogram.from_dict(content["histogram"])
        pairs = [tuple(map(_finite, pair)) for pair in content.get("links", [])]
        if any(len(pair) != 2 for pair in pairs) or len(pairs) not in (0, histogram.grid.tables):
            raise ParameterError("links of an evaluation must be two numbers for each table.")
        return cls(
            histogram,
            str(content["about"]),
            None if privacy is None else PrivacyStatement.from_dict(privacy),
            dict(rows),
            tuple(Link(*pair) for pair in pairs),
            _finite(content.get("threshold", 0.0)),
        )

    def with_links(self) -> Quality:
        """Return the same quality, with probabilities fitted to the histogram."""
        return replace(self, links=fit_links(self.histogram))

    def evaluation(self, confidence: float = 0.95) -> ModelFigures:
        """Every figure of the histogram at the threshold, with its interval."""
        return evaluate_histogram(self.histogram, confidence, self.threshold)

    def repeats(self, other: Quality | None) -> bool:
        """Whether it is the same release again: nobody draws the same noise twice."""
        return other is not None and np.array_equal(self.histogram.counts, other.histogram.counts)

    def adds_to(self, trained: PrivacyStatement) -> bool:
        """Whether its cost adds to the training's for a person; otherwise the larger counts."""
        if self.about != HELD_OUT or self.privacy is None:
            return self.about == TRAINED_ON
        each = (*trained.parties.values(), *self.privacy.parties.values())
        kinds = (kind for guarantee in each for kind in guarantee.events)
        return parts_add_up(kinds, trained.rows_per_person)

    def _repr_html_(self) -> str:
        return self.evaluation()._repr_html_()

    def __str__(self) -> str:
        figures = self.evaluation().estimates
        return "; ".join(f"{figure.name} {shown_estimate(figure)}" for figure in figures)

    @property
    def spent(self) -> tuple[float, float] | None:
        """Epsilon and delta of the histogram, the largest over parties; None for public rows."""
        return None if self.privacy is None else (self.privacy.epsilon, self.privacy.delta)


def shown_estimate(figure: Estimate) -> str:
    """A figure with its interval, in words."""
    if figure.value is None:
        return figure.shown
    return f"{figure.shown} [{figure.low:.3f}, {figure.high:.3f}]"


def _finite(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ParameterError(f"numbers of an evaluation must be finite; got {value!r}.")
    return float(value)


HISTORY: Final = ("disagreement", "change")
"""What is followed over the rounds."""


@dataclass(frozen=True, eq=False)
class Classifier:
    """What was released, and what may be said about it.

    Attributes
    ----------
    coef, intercept
        The classifier, for the columns as they were given: the mean over parties of their last
        messages, of their messages in the last third of the rounds, or of all their messages.
    node_coef, node_intercept
        Each party's last message.
    classes, parties
        Names, in the order of the outputs and of ``node_coef``.
    history
        Disagreement and change per round.
    penalty
        The penalty used: in the first round, the mean over parties, where it varies.
    privacy
        The statement.
    quality
        How good it is, where a histogram was released of it; None where none was.
    """

    coef: Array = field(repr=False)
    intercept: Array = field(repr=False)
    node_coef: Array = field(repr=False)
    node_intercept: Array = field(repr=False)
    classes: NDArray[Any]
    parties: NDArray[Any]
    history: dict[str, Array] = field(repr=False)
    penalty: float
    privacy: PrivacyStatement = field(repr=False)
    quality: Quality | None = None

    @classmethod
    def of_run(
        cls,
        planned: Plan,
        outcome: Outcome,
        privacy: PrivacyStatement,
        *,
        classes: ArrayLike,
        parties: ArrayLike,
        output: str = "auto",
        data_norm: float = 1.0,
        intercept_scale: float | None = None,
        quality: Quality | None = None,
    ) -> Classifier:
        """Sum up a run.

        Parameters
        ----------
        planned, outcome, privacy
            The run, and what may be said about it.
        classes, parties
            Names, in the order of their codes and of the messages.
        output
            ``"last"``, ``"tail"`` or ``"mean"``; ``"auto"`` takes the last for algorithms without
            noise and the tail for those with noise.
        data_norm, intercept_scale
            What every row was divided by, and the number that was then appended to it as its last
            feature; None for no number.
        quality
            How good it is, if that was released.
        """
        weights = released_weights(planned, outcome, output)
        coef, intercept = _for_columns(weights, data_norm, intercept_scale)
        node_coef, node_intercept = _for_columns(outcome.last[:, 0], data_norm, intercept_scale)
        return cls(
            coef=coef,
            intercept=intercept,
            node_coef=node_coef,
            node_intercept=node_intercept,
            classes=np.asarray(classes),
            parties=np.asarray(parties),
            history={name: getattr(outcome.history, name)[:, 0] for name in HISTORY},
            penalty=planned.penalty,
            privacy=privacy,
            quality=quality,
        )

    @classmethod
    def of_estimator(cls, estimator: Any) -> Classifier:
        """Take it from a fitted estimator, which has each field with a line under its name."""
        return cls(**{item.name: getattr(estimator, f"{item.name}_") for item in fields(cls)})

    def evaluated_later(self, quality: Quality, *, counted: bool) -> Classifier:
        """Return the same classifier; its statement tells what an evaluation after the run spent.

        A statement does not repeat what it already tells, from the end of training or later.

        Parameters
        ----------
        quality
            What it found on rows that are not public.
        counted
            Ledgers count it: then the same evaluation, asked again, cost nothing more.
        """
        where, adds = "the rows that were trained on", "adds to it"
        if quality.about == HELD_OUT:
            where = "the rows kept out of training"
            adds = "counts for people among them where it is more; evaluations of them add up"
            if quality.adds_to(self.privacy):
                adds = "adds to it, since a person may have rows among both"
        assert quality.spent is not None
        sentence = (
            f"{EVALUATED_LATER}, on {where}, for {pair(*quality.spent)}-differential privacy"
            f"{self._against(quality)}: that is not part of what this statement guarantees, and "
            f"{adds}."
        )
        assert quality.privacy is not None
        # The newest sum takes the place of earlier ones.
        known = tuple(each for each in self.privacy.caveats if not each.startswith(IN_ALL))
        again = quality.repeats(self.quality) or (counted and sentence in known)
        more = () if again else (sentence,)
        told = (*known, *more, *quality.privacy.caveats)
        if told == self.privacy.caveats:
            return self
        return replace(self, privacy=replace(self.privacy, caveats=told))

    def _against(self, quality: Quality) -> str:
        """Against whom an evaluation with shared noise holds, where the statement names others."""
        stated = quality.privacy
        if stated is None or not stated.alone or stated.adversary == self.privacy.adversary:
            return ""
        worst = network_guarantee(stated.alone.values())
        left = pair(worst.epsilon, worst.delta)
        return f" against {stated.adversary} (if all others collude, {left})"

    def give_to(self, estimator: Any) -> None:
        """Make an estimator a fitted one; it may change its arrays without changing these."""
        for item in fields(self):
            value = getattr(self, item.name)
            setattr(
                estimator,
                f"{item.name}_",
                value.copy() if isinstance(value, np.ndarray | dict) else value,
            )


def chosen_output(algorithm: Algorithm, output: str) -> str:
    """Which models of an :class:`~dpadmm.run.engine.Outcome` a classifier is the mean of."""
    if output == "auto":
        return "tail" if algorithm.private else "last"
    return output


def released_weights(planned: Plan, outcome: Outcome, output: str = "auto") -> Array:
    """The model for rows as they were laid out, ``(outputs, features)``."""
    weights: Array = getattr(outcome, chosen_output(planned.algorithm, output))[:, 0].mean(axis=0)
    return weights


def _for_columns(
    parameters: Array, data_norm: float, appended: float | None
) -> tuple[Array, Array]:
    """Weights of the columns as they were given, and what the appended number adds to a score."""
    if appended is None:
        return parameters / data_norm, np.zeros(parameters.shape[:-1])
    return parameters[..., :-1] / data_norm, appended * parameters[..., -1]
