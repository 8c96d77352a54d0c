"""What decides a run, as the estimator and a configuration name it."""

from __future__ import annotations

import functools
import inspect
import math
import textwrap
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from dpadmm.errors import ParameterError, unknown_name

if TYPE_CHECKING:
    from dpadmm.ledger.balance import RowRange
    from dpadmm.problem.site import Topology

#: Leaves a parameter to be chosen from public facts.
AUTO: Final = "auto"
CALIBRATIONS: Final = ("proven", "published")
PARTY_WEIGHTS: Final = ("rows", "equal")

#: The algorithm of whoever names none, and its number of rounds: what asks for them need not load
#: it. A test compares the two.
ALGORITHM: Final = "pr-admm"
ALGORITHM_ROUNDS: Final = 50


@dataclass(frozen=True)
class Option:
    """The options of a run, declared once for everybody who offers them.

    Attributes
    ----------
    kind
        Its type, as documentation writes it.
    default
        What it is unless given.
    words
        What it means, for documentation.
    brief
        What it means in a line, for the help of a command; the words unless given.
    choices
        The only values that it may have; empty where there are others.
    """

    kind: str
    default: Any
    words: str
    brief: str = ""
    choices: tuple[str, ...] = ()

    @property
    def help(self) -> str:
        """What a command says of it."""
        return self.brief or self.words


#: Everything that the estimators, ``[run]`` of a configuration and commands can be told of a run.
OPTIONS: Final[Mapping[str, Option]] = {
    "algorithm": Option(
        "str",
        ALGORITHM,
        'A name from ``dpadmm.algorithms``; ``"admm"`` and ``"consensus-admm"`` are not private. '
        '``"auto"`` chooses from public facts, and the statement says so (:mod:`dpadmm.run.plan`).',
        "Which algorithm; auto: by the public rule.",
    ),
    "epsilon": Option(
        "float or mapping of party to float",
        1.0,
        "The total budget of one party over the whole run. Algorithms without privacy ignore it.",
        "Total budget of each party.",
    ),
    "delta": Option("float or mapping of party to float", 1e-5, "The delta of that budget."),
    "calibration": Option(
        '{"proven", "published"}',
        "proven",
        "Whether noise follows from the theorems of this package or from the paper's formulas.",
        choices=CALIBRATIONS,
    ),
    "n_parties": Option(
        "int",
        5,
        "How many parties to split the rows among when ``fit`` is not told whose they are.",
    ),
    "topology": Option(
        "str or edge list",
        AUTO,
        '``"auto"``, ``"ring"``, ``"path"``, ``"star"``, ``"complete"``, ``"grid"``, ``"random"``, '
        '``"server"``, or pairs of parties: by number, in a configuration also by name.',
        "Who talks to whom.",
    ),
    "rounds": Option(
        'int or "auto"',
        AUTO,
        'Number of messages of each party; ``"auto"`` is the algorithm\'s own number.',
        "Messages of each party; auto: as the algorithm has them.",
    ),
    "penalty": Option(
        'float, "auto", list or mapping',
        AUTO,
        'The weight of agreement, eta; ``"auto"`` decides from public facts alone. ``dvp``, '
        "``m-admm``, ``r-admm`` and ``mr-admm`` take a list with one for each round (of R-ADMM: "
        "each odd one) and a mapping of party to either.",
        "A number or auto; or JSON: a list over rounds, a table of parties.",
    ),
    "regularization": Option(
        "float",
        1e-4,
        "The weight of the squared norm in the objective.",
        "Weight of the squared norm.",
    ),
    "party_weight": Option(
        '{"rows", "equal"}',
        "rows",
        "Whether a party counts by its rows or as one.",
        "rows or equal.",
        PARTY_WEIGHTS,
    ),
    "loss": Option(
        '{"auto", "logistic", "huber-hinge", "squared"}',
        AUTO,
        '``"auto"`` is huber-hinge for private algorithms in a proven calibration that can take '
        "it, and logistic otherwise; without ``probabilities``, ``predict_proba`` exists for the "
        "logistic loss only.",
    ),
    "fit_intercept": Option("bool", True, "Append ``intercept_scale`` to each row."),
    "intercept_scale": Option(
        "float",
        1.0,
        "The number that is appended to a row divided by ``data_norm``, before the row is scaled "
        "down to norm 1. Beside features that are much shorter a large one uses up the row's norm.",
    ),
    "data_norm": Option(
        "float",
        1.0,
        "A public bound on the norm of a row; longer rows are scaled down. A process says once "
        "what 1 means, whatever the rows are.",
    ),
    "rows_per_person": Option(
        "int", 1, "How many rows of a party one person may have.", "Rows replaced at once."
    ),
    "output": Option(
        '{"auto", "last", "tail", "mean"}',
        AUTO,
        "``coef_`` is the mean over parties of their last messages, of their messages in the last "
        'third of the rounds, or of all their messages. ``"auto"`` takes the last for algorithms '
        "without noise and the tail for those with noise.",
        choices=(AUTO, "last", "tail", "mean"),
    ),
    "tolerance": Option(
        "float or None",
        None,
        "Largest gradient norm of a local solve; decided from public facts unless given.",
    ),
    "algorithm_options": Option(
        "mapping or None",
        None,
        "The algorithm's own options; what it does not have is refused.",
        "An option of the algorithm, NAME=VALUE or NAME=JSON.",
    ),
    "random_state": Option(
        "int, RandomState or None",
        None,
        "None draws noise from a cryptographic generator; a seed makes a simulation, and "
        "``privacy_`` says so.",
    ),
    "simulation_key": Option(
        "int or None",
        None,
        "An integer makes the noise reproducible: a simulation, which protects nobody.",
    ),
    "run_id": Option(
        "str or None",
        None,
        "The name of the run in the ledgers, under which it can be continued; the hash of the run "
        "unless given. The same name never spends twice, a new one spends anew.",
    ),
    "fourier": Option(
        "int, mapping or None",
        None,
        '150, or ``{"features": 150}``: train on that many random Fourier features of a row, a '
        "cosine and a sine each (:mod:`dpadmm.data.feature_maps`), which draws curves where "
        'columns alone draw a straight line. Also ``"scale"``, in units of the columns (a sixth of '
        'the root of their number unless given, for columns in [-1, 1]), and ``"seed"`` (0). Such '
        "rows have norm 1: nothing is appended to them, ``data_norm`` must be 1, and ``coef_`` "
        "belongs to them.",
    ),
    "polynomial": Option(
        "int, mapping or None",
        None,
        "2: train on the columns and on the products of all pairs of them, squares among them "
        "(:mod:`dpadmm.data.feature_maps`). Scale columns to about [-1, 1] by public bounds; rows "
        "are scaled down to norm 1 afterwards, and ``data_norm`` must be 1. More than 16 columns "
        'are refused; ``{"degree": 2, "most_columns": 30}`` allows them. ``coef_`` belongs to the '
        "columns, then to the products x0 x0, x0 x1, and so on.",
    ),
    "holdout": Option(
        "float",
        0.0,
        "The part of every party's rows, its last ones, that is not trained on. The estimators "
        "evaluate the model on them (``quality_``), at the run's budget: a person's row is in one "
        "of the two parts, so that the larger of both costs counts.",
    ),
    "evaluate": Option("bool", False, "Evaluate the model on the held-out rows."),
    "probabilities": Option(
        "bool",
        False,
        "Fit probabilities to a histogram of scores that is released at the end. With ``holdout`` "
        "it is that of the held-out rows; without, a tenth of the budget's mu^2 goes into it (of "
        "an epsilon of 1 at a delta of 1e-6, 0.292) and the training gets the rest.",
    ),
    "noise": Option(
        "str or None",
        None,
        'One of the algorithm\'s options by itself. With ``"shared"`` (``dp-gd``) only the sum of '
        "all parties is seen, and their noise together is enough against the server and "
        '``colluders`` of them; ``"own"`` holds against all others.',
    ),
    "colluders": Option(
        "int or None", None, "With shared noise: how many parties may collude with the server."
    ),
}


#: What each of them is unless given.
DEFAULT: Final[Any] = SimpleNamespace(**{name: each.default for name, each in OPTIONS.items()})


def one_of(name: str, value: Any) -> Any:
    """The value of an option with few choices, or a refusal that lists them."""
    if value not in OPTIONS[name].choices:
        raise unknown_name(name, value, OPTIONS[name].choices)
    return value


_Described = TypeVar("_Described", bound=type)
_INDENTED: Final[dict[str, Any]] = {
    "initial_indent": 4 * " ",
    "subsequent_indent": 4 * " ",
    "break_long_words": False,
    "break_on_hyphens": False,
}


def documented(described: _Described) -> _Described:
    """A class whose docstring has the declaration of its options in place of ``<options>``."""
    lines = ["Parameters", "----------"]
    for name, given in inspect.signature(described).parameters.items():
        lines.append(f"{name} : {OPTIONS[name].kind}, default={given.default!r}")
        lines += textwrap.wrap(OPTIONS[name].words, 92, **_INDENTED)
    words = inspect.cleandoc(described.__doc__ or "")
    described.__doc__ = words.replace("<options>", "\n".join(lines))
    return described


_INSTEAD_OF_WEIGHTS: Final = {
    "sample_weight": "use party_weight for whole parties",
    "class_weight": "for unequal classes choose a threshold by a wanted sensitivity or specificity "
    "(dpadmm evaluate --sensitivity, or dpadmm.evaluation.metrics)",
}
#: More rounds than this are a slip of the keyboard: their noise leaves nothing of a model.
MOST_ROUNDS: Final = 10_000


def too_many_rounds(rounds: int) -> str:
    """The complaint about a number of rounds, to follow the parameter's name."""
    return (
        f"must be at most {MOST_ROUNDS}, since every round is a message with noise of its own and "
        "the noise of each grows with the square root of their number within the same budget; got "
        f"{rounds}: 50 to 100 serve nearly every run"
    )


def chosen_loss(
    loss: str, algorithm: str, options: Mapping[str, Any], calibration: str = DEFAULT.calibration
) -> str:
    """The name of a loss, with "auto" replaced by the algorithm's choice."""
    if loss != "auto":
        return loss
    # Commands read the defaults above when they start; the algorithms take numpy and scipy.
    from dpadmm.algorithms import get_algorithm

    return get_algorithm(algorithm).automatic_loss(options, calibration)


def refuse_weights(given: Iterable[str]) -> None:
    """Refuse arguments of these names, if there are weights among them, with the reason."""
    for name, advice in _INSTEAD_OF_WEIGHTS.items():
        if name in given:
            raise ParameterError(
                f"{name} must not be given: a weighted row would move the messages further than "
                "the guarantee assumes, and the public row counts would no longer describe a "
                f"party. Repeat no rows; {advice}."
            )


class PrivacyWarning(UserWarning):
    """A budget that is valid but protects little."""


class ConvergenceWarning(UserWarning):
    """A choice that is valid but makes a run slow, noisy or wasteful."""


class ScaleWarning(UserWarning):
    """Warns that a bound may be in other units than the rows, whatever the rows are."""


class RepeatedFitWarning(UserWarning):
    """Warns that each fit spends a budget anew, whatever the rows are."""


@functools.cache
def say_scale_once() -> None:
    """Tell what a ``data_norm`` of 1 does: always and once, so that it says nothing about rows."""
    warnings.warn(
        "data_norm is 1, its default: every longer row is scaled down to norm 1. Give a public "
        "bound on the norm of a row in the units of your columns, unless rows have norm 1 at most. "
        "This is said once and whatever the rows are.",
        ScaleWarning,
        stacklevel=4,
    )


@functools.cache
def say_repeated_once() -> None:
    """Tell what the fits of clones spend: once, and from the parameters alone."""
    warnings.warn(
        "several clones of one estimator are fitted, as cross_val_score and GridSearchCV do: every "
        "fit draws noise anew and spends its epsilon again, and what all fits spend adds up. "
        "privacy_ states one of them alone. Choose parameters on public rows, or by dpadmm plan, "
        "which needs none; or charge every fit to ledgers, under a run_id of its own. This is said "
        "once and whatever the rows are.",
        RepeatedFitWarning,
        stacklevel=3,
    )


@dataclass(frozen=True)
class TrainingParameters:
    """What decides a run, as the estimator and a configuration name it; all of it public.

    ``algorithm_chosen`` says that nobody named the algorithm: it was chosen, and statements say so.
    """

    algorithm: str
    topology: str | Iterable[tuple[int, int]] | Topology = DEFAULT.topology
    rounds: int | str = DEFAULT.rounds
    penalty: float | str | Sequence[float] | Mapping[Any, float | Sequence[float]] = DEFAULT.penalty
    regularization: float = DEFAULT.regularization
    party_weight: str = DEFAULT.party_weight
    loss: str = DEFAULT.loss
    tolerance: float | None = None
    epsilon: float | Mapping[Any, float] = DEFAULT.epsilon
    delta: float | Mapping[Any, float] = DEFAULT.delta
    calibration: str = DEFAULT.calibration
    rows_per_person: int = DEFAULT.rows_per_person
    algorithm_options: Mapping[str, Any] = field(default_factory=dict)
    algorithm_chosen: bool = False

    def settled(self) -> TrainingParameters:
        """The same run with the loss, and the kind of noise where there is one, decided."""
        from dpadmm.algorithms import get_algorithm

        options = get_algorithm(self.algorithm).settled_options(
            self.algorithm_options, self.calibration
        )
        loss = chosen_loss(self.loss, self.algorithm, options, self.calibration)
        return replace(self, loss=loss, algorithm_options=options)


@dataclass(frozen=True)
class Split:
    r"""Which rows are trained on and which are held out: the last block of every party's rows.

    .. math:: h_i = \lceil \mathrm{holdout}\cdot n_i \rceil,\qquad
              \text{train } 1..n_i-h_i,\quad \text{held out } n_i-h_i+1..n_i

    A public rule, the same for every party, about positions in a list whose order is given: an
    order that depends on what rows hold, such as a sorted export, is not covered by the guarantee,
    and makes the last rows unlike the others. Nor is an order that changes between a training and
    an evaluation, such as that of a query without one: rows that were trained on would be called
    kept out, and charged to the other account.

    Parameters
    ----------
    holdout
        The part of every party's rows that is kept out of training; 0 keeps none.
    """

    holdout: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.holdout < 1:
            raise ParameterError(
                f"holdout must be at least 0 and below 1, a part of every party's rows; got "
                f"{self.holdout!r}."
            )

    def train(self, rows: int) -> RowRange | None:
        """The positions that are trained on, of so many; None for all."""
        # Commands read this module when they start; ledgers take numpy and scipy.
        from dpadmm.ledger.balance import RowRange

        return RowRange(0, self._edge(rows)) if self.holdout else None

    def held_out(self, rows: int) -> RowRange | None:
        """The positions that are evaluated on: the held-out ones, or None for all."""
        from dpadmm.ledger.balance import RowRange

        return RowRange(self._edge(rows), rows) if self.holdout else None

    def _edge(self, rows: int) -> int:
        # As it is written: in doubles 0.07 of 100 is a little more than 7.
        kept_out = math.ceil(Fraction(repr(float(self.holdout))) * rows)
        if kept_out >= rows:
            raise ParameterError(
                f"holdout must leave every party a row to train on; {self.holdout!r} of {rows} "
                f"rows keeps out {kept_out}. Lower it."
            )
        return rows - kept_out

    def train_rows(self, rows: int) -> int:
        """How many are trained on."""
        return self._edge(rows) if self.holdout else rows

    def evaluated_rows(self, rows: int) -> int:
        """How many are evaluated on."""
        return rows - self._edge(rows) if self.holdout else rows


@dataclass(frozen=True)
class Wish:
    """What is asked for beside the training.

    Attributes
    ----------
    split
        Which rows are kept out of training.
    evaluate
        Evaluate the model on them.
    probabilities
        Fit probabilities to the histogram: that of the evaluation, or one of the training's rows.
    """

    split: Split = field(default_factory=Split)
    evaluate: bool = False
    probabilities: bool = False

    def __post_init__(self) -> None:
        if self.evaluate and not self.split.holdout:
            raise ParameterError(
                "evaluate must have rows that were kept out of training; got no holdout. Add one, "
                "such as holdout = 0.2; or evaluate afterwards on the rows that were trained on "
                "with dpadmm evaluate, which adds to what is spent and is optimistic."
            )

    @property
    def histogram(self) -> bool:
        """Whether a histogram is released after the training."""
        return self.evaluate or self.probabilities
