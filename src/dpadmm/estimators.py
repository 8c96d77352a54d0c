"""The scikit-learn face of the package."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, ParamSpec

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from dpadmm.data.given_rows import (
    Preparation,
    class_codes,
    even_split,
    finite_rows,
    label_epsilons,
    row_owners,
    rows_of_owners,
)
from dpadmm.errors import ParameterError, positive_number
from dpadmm.evaluation.histogram import Link, class_probabilities
from dpadmm.plain import Array
from dpadmm.problem.losses import get_loss
from dpadmm.problem.rows import Rows, Shard, label_signs, scaled_margins
from dpadmm.run.options import (
    ALGORITHM,
    ALGORITHM_ROUNDS,
    AUTO,
    DEFAULT,
    TrainingParameters,
    chosen_loss,
    documented,
    one_of,
    refuse_weights,
    say_repeated_once,
    say_scale_once,
)

# Training is loaded by ``fit``: whoever only predicts does without it.
if TYPE_CHECKING:
    from dpadmm.privacy.noise import NoiseSource
    from dpadmm.run.charges import Part
    from dpadmm.run.options import Wish
    from dpadmm.run.plan import Plan

_Given = ParamSpec("_Given")
_CLASSES_FROM_ROWS: Final = (
    "the list of classes and whether all numbers are finite, which were taken from the rows, and "
    "what scikit-learn says where it refuses a row or a label (without classes)"
)


def _part(member: NDArray[np.intp], part: Part) -> NDArray[np.intp]:
    """A part of a party's rows, in their order."""
    first, stop = part(len(member)) or (0, len(member))
    return member[first:stop]


def _without_weights(begin: Callable[_Given, None]) -> Callable[_Given, None]:
    """The same ``__init__``, which refuses weights in words instead of as unknown names."""

    @functools.wraps(begin)
    def begin_without(*given: _Given.args, **named: _Given.kwargs) -> None:
        refuse_weights(named)
        begin(*given, **named)

    return begin_without


def _with_defaults(begin: Callable[..., None], **changed: Any) -> Callable[..., None]:
    """An ``__init__`` with the parameters of another and some other defaults, for scikit-learn."""
    theirs = inspect.signature(begin)
    parameters = [
        each.replace(default=changed.get(name, each.default))
        for name, each in theirs.parameters.items()
    ]
    signature = theirs.replace(parameters=parameters)

    @functools.wraps(begin)
    def begin_with(*given: Any, **named: Any) -> None:
        told = signature.bind(*given, **named)
        told.apply_defaults()
        begin(*told.args, **told.kwargs)

    vars(begin_with)["__signature__"] = signature
    return begin_with


@documented
class ADMMClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    r"""A linear classifier that parties train together without sharing rows.

    .. math:: \min_w \sum_i \frac{c_i}{n_i}\sum_k l(y_k\, w\cdot x_k)
              + \frac{\mathrm{regularization}}{2}\|w\|^2

    over parties i with :math:`n_i` rows. With ``party_weight="rows"``, :math:`c_i = N n_i/\sum n`
    and the optimum is that of the pooled rows: scikit-learn's ``LogisticRegression`` with
    ``C = N / (n_total * regularization)`` on the prepared rows. A row is divided by
    ``data_norm``, gets a 1 appended if ``fit_intercept`` (the intercept is regularised like the
    rest), and is scaled down to norm 1 where it is longer; that changes no row's predicted class,
    and ``predict_proba`` does the same.

    <options>

    Attributes
    ----------
    coef_, intercept_
        The classifier, as in scikit-learn: ``decision_function(X)`` is
        ``X @ coef_.T + intercept_``, with the columns of ``X`` in their own units.
    node_coef_, node_intercept_
        Each party's last message, ``(parties, outputs, features)`` and ``(parties, outputs)``;
        where messages are no models (``dp-gd``) its last model.
    algorithm_, rounds_
        The algorithm that ran, and for how many rounds.
    classes_
        The class labels.
    parties_
        Names of the parties, in the order of ``node_coef_``.
    privacy_
        The statement: epsilon really spent, per party and per round, theorem, adversary.
    coef_noise_
        Error bars of ``coef_`` for noise alone, where they are known.
    history_
        Disagreement and change per round, functions of the messages.
    penalty_
        The penalty used: in the first round, the mean over parties, where it varies.
    quality_
        How good it is, where ``holdout`` or ``probabilities`` asked for it: a released histogram
        (``quality_.evaluation()`` has figures with intervals); else None.
    loss_
        The name of the loss that was asked for, or that ``"auto"`` chose.

    Notes
    -----
    **Every fit spends anew.** ``privacy_`` states one fit; what several fits on the same rows spend
    adds up, whether their models are kept or not: ``cross_val_score`` with five folds reads a row
    in four fits, which with Gaussian noise is twice the mu of one, and a search costs more. Choose
    parameters on public rows, or by ``dpadmm plan``. Clones that are fitted without ledgers and
    without a seed are warned of, once in a process. With ledgers every fit needs a ``run_id`` of
    its own: the second fit of a search is refused.
    """

    # scikit-learn wants every parameter by its name, with its default.
    @_without_weights
    def __init__(
        self,
        algorithm: str = DEFAULT.algorithm,
        epsilon: float | Mapping[Any, float] = DEFAULT.epsilon,
        delta: float | Mapping[Any, float] = DEFAULT.delta,
        calibration: str = DEFAULT.calibration,
        n_parties: int = DEFAULT.n_parties,
        topology: str | Iterable[tuple[int, int]] = DEFAULT.topology,
        rounds: int | str = ALGORITHM_ROUNDS,
        penalty: float
        | str
        | Sequence[float]
        | Mapping[Any, float | Sequence[float]] = DEFAULT.penalty,
        regularization: float = DEFAULT.regularization,
        party_weight: str = DEFAULT.party_weight,
        loss: str = DEFAULT.loss,
        fit_intercept: bool = DEFAULT.fit_intercept,
        intercept_scale: float = DEFAULT.intercept_scale,
        data_norm: float = DEFAULT.data_norm,
        rows_per_person: int = DEFAULT.rows_per_person,
        output: str = DEFAULT.output,
        algorithm_options: Mapping[str, Any] | None = DEFAULT.algorithm_options,
        random_state: int | np.random.RandomState | None = DEFAULT.random_state,
        fourier: int | Mapping[str, Any] | None = DEFAULT.fourier,
        probabilities: bool = DEFAULT.probabilities,
        holdout: float = DEFAULT.holdout,
        noise: str | None = DEFAULT.noise,
        colluders: int | None = DEFAULT.colluders,
        polynomial: int | Mapping[str, Any] | None = DEFAULT.polynomial,
    ) -> None:
        self.algorithm = algorithm
        self.epsilon = epsilon
        self.delta = delta
        self.calibration = calibration
        self.n_parties = n_parties
        self.topology = topology
        self.rounds = rounds
        self.penalty = penalty
        self.regularization = regularization
        self.party_weight = party_weight
        self.loss = loss
        self.fit_intercept = fit_intercept
        self.data_norm = data_norm
        self.rows_per_person = rows_per_person
        self.output = output
        self.algorithm_options = algorithm_options
        self.random_state = random_state
        self.probabilities = probabilities
        self.holdout = holdout
        self.intercept_scale = intercept_scale
        self.fourier = fourier
        self.polynomial = polynomial
        self.noise = noise
        self.colluders = colluders

    # Of this one, and the number of this one among those of another: a search makes many.
    _clones = _clone_number = 0

    def __sklearn_clone__(self) -> ADMMClassifier:
        copy: ADMMClassifier = super().__sklearn_clone__()
        self._clones += 1
        copy._clone_number = self._clones
        return copy

    def set_params(self, **params: Any) -> ADMMClassifier:
        """Set parameters, as in scikit-learn."""
        refuse_weights(params)
        super().set_params(**params)
        return self

    # -- training ---------------------------------------------------------------------------

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        parties: ArrayLike | None = None,
        ledgers: Mapping[str, str | Path] | None = None,
        run_id: str = "",
        label_epsilon: ArrayLike | None = None,
        classes: ArrayLike | None = None,
        resume: bool = False,
        **refused: Any,
    ) -> ADMMClassifier:
        """Train on rows ``X`` with labels ``y``.

        Parameters
        ----------
        X : array or sparse matrix of shape (rows, features)
            Finite numbers; with ``classes``, a row with anything else counts as a row of zeros.
        y : array of shape (rows,)
            At least two classes overall; a party may have one.
        parties : array of shape (rows,), optional
            Whose row it is; None splits the rows evenly at random among ``n_parties``.
        ledgers : mapping of party to path, optional
            The budget ledger of every party; the run is charged to them, and refused before any
            row is read where it does not fit. Needs ``parties`` and ``classes``.
        run_id : str
            The name of the run in the ledgers. A run that a crash cut short is continued by the
            same call in a new process, and never charged twice. A name whose run is complete, or
            was begun in this process, is refused without ``resume``, and so are other arguments.
        label_epsilon : array of shape (rows,), optional
            For ``pdml``, where each label has an epsilon of its own: between its options
            ``label_epsilon`` and ``largest_label_epsilon``.
        classes : array, optional
            The public list of classes; a label outside it, of whatever type, counts as the first.
            Nothing that a row holds is then refused, warned about or printed. Without it the
            classes are taken from ``y``, scikit-learn refuses what it refuses, and the statement
            says that this is not covered.
        resume : bool
            Take what the ledgers have of the run ``run_id``, at no further cost and without a look
            at the rows, which must be the same: its model again, or the rest of it.
        **refused
            ``sample_weight`` and ``class_weight`` are refused: a row that counts more moves the
            model more, and no theorem here covers that.
        """
        from dpadmm.privacy.noise import SimulatedNoise, secure_noise
        from dpadmm.run.charges import plan_whole, refuse_repeated
        from dpadmm.run.session import Charged, Session, lay_out_both

        refuse_weights(refused)
        for name in refused:
            raise TypeError(f"fit() got an unexpected keyword argument {name!r}")
        self._check_asked()
        owners = None if parties is None else row_owners(parties)
        for what, given in (("parties", parties), ("classes", classes)):
            if ledgers and given is None:
                raise ParameterError(
                    f"{what} must be given in a run charged to ledgers: it has to be public and "
                    "the same in every run; got none."
                )
        rows, codes, labels = self._read(X, y, classes)
        random = check_random_state(self.random_state)
        if owners is None:
            names, members = even_split(rows.shape[0], self.n_parties, random)
        else:
            names, members = rows_of_owners(owners, rows.shape[0])
        wish = self._wish()
        whole = plan_whole(
            self._training_parameters(len(names)),
            {str(name): len(member) for name, member in zip(names, members, strict=True)},
            features=self._preparation.features(rows.shape[1]),
            least_constant=self._preparation.least_constant,
            classes=len(labels),
            wish=wish,
        )
        planned = whole.training
        noise: NoiseSource = secure_noise()
        key = None
        if self.random_state is not None:
            key = int(random.randint(np.iinfo(np.int32).max))
            noise = SimulatedNoise(key)
        spends = planned.algorithm.private and not noise.simulated
        if spends and not ledgers and self._clone_number > 1:
            say_repeated_once()

        def lay_out_part(part: Part) -> Shard:
            chosen = label_epsilon if part == wish.split.train else None
            own = [_part(member, part) for member in members]
            return self._shard(planned, noise, rows, codes, own, chosen)

        own = () if classes is not None else (_CLASSES_FROM_ROWS,)
        about = Charged(ledgers, run_id, not_covered=own)
        session = Session(whole, noise, about, self.output, key)
        word = self._preparation.word(rows.shape[1], labels)
        with session.charged(preparation=word) as runs:
            refuse_repeated(whole, ledgers, run_id, resume=resume)
            shard, evaluated = lay_out_both(wish, lay_out_part)
            outcome = session.train(shard, runs)
        judged = None if evaluated is None else session.evaluate_paid(outcome, evaluated)
        session.conclude(
            outcome, judged, classes=labels, parties=names, **self._preparation.scale
        ).give_to(self)
        self._trained = planned, outcome.course
        return self

    def _wish(self) -> Wish:
        """What is asked for beside the training: who keeps rows out wants to know."""
        from dpadmm.run.options import Split, Wish

        split = Split(self.holdout)
        return Wish(split, evaluate=split.holdout > 0, probabilities=bool(self.probabilities))

    def _check_asked(self) -> None:
        """Refuse what is not served, before a row is looked at."""
        one_of("output", self.output)
        positive_number("data_norm", self.data_norm)
        positive_number("intercept_scale", self.intercept_scale)
        if self._preparation.feature_map(1) is None:
            if self.data_norm == 1.0:
                say_scale_once()
        elif self.data_norm != 1:
            name = "polynomial" if self.fourier is None else "fourier"
            raise ParameterError(
                f"data_norm must be 1 with {name}, whose rows have norm 1 at most whatever the "
                f"columns; got {self.data_norm!r}. Leave it out, and scale the columns themselves "
                "to about [-1, 1] by public bounds."
            )
        # Refused before a row is looked at, too.
        self._wish()

    def _read(
        self, X: ArrayLike, y: ArrayLike, classes: ArrayLike | None
    ) -> tuple[Rows, NDArray[np.intp], NDArray[Any]]:
        """Return rows, class numbers and the classes; set what scikit-learn notes of ``X``."""
        if classes is not None:
            validate_data(self, X, skip_check_array=True, ensure_2d=False)
            rows = finite_rows(X)
            self.n_features_in_ = rows.shape[1]
            known, codes = class_codes(y, classes, rows.shape[0])
            return rows, codes, known
        rows, labels = validate_data(self, X, y, accept_sparse="csr", dtype=np.float64, order="C")
        check_classification_targets(labels)
        known, codes = np.unique(labels, return_inverse=True)
        if len(known) < 2:
            (only,) = known.tolist()
            raise ParameterError(f"y must have at least two classes; got one class, {only!r}.")
        return rows, codes, known

    def _shard(
        self,
        planned: Plan,
        noise: NoiseSource,
        rows: Rows,
        codes: NDArray[np.intp],
        members: list[NDArray[np.intp]],
        label_epsilon: ArrayLike | None,
    ) -> Shard:
        """Lay out the rows of every party, prepared one by one."""
        from dpadmm.run.session import lay_out

        signs = label_signs(codes, planned.site.outputs)
        parties = [(self._preparation.rows(rows[member]), signs[member]) for member in members]
        if label_epsilon is None:
            return lay_out(planned, parties, noise=noise)
        chosen = label_epsilons(label_epsilon, len(codes))
        own = [chosen[member] for member in members]
        return lay_out(planned, parties, noise=noise, label_epsilon=own)

    @property
    def algorithm_(self) -> str:
        """The algorithm that ran: what "auto" stood for, or what was asked for."""
        return str(self.privacy_.algorithm)

    @property
    def rounds_(self) -> int:
        """How many rounds it ran."""
        return len(self.history_["change"])

    @property
    def coef_noise_(self) -> Array | None:
        """The standard error that noise gives each of ``coef_``.

        It is worked out when it is asked for, from public facts and what was released. None where
        it is not known: after loading, and for algorithms that draw batches of rows or change
        labels.
        """
        from dpadmm.run.session import noise_error

        check_is_fitted(self)
        planned, course = getattr(self, "_trained", (None, None))
        error = None if planned is None else noise_error(planned, self.output, course=course)
        return None if error is None else np.full_like(self.coef_, error / float(self.data_norm))

    @property
    def loss_(self) -> str:
        """The loss that was minimised: what "auto" stood for, or what was asked for."""
        return self._loss(self.algorithm_)

    @property
    def _preparation(self) -> Preparation:
        """What rows become before parties train on them, or predictions are made."""
        appends = bool(self.fit_intercept) and self.fourier is None
        appended = float(self.intercept_scale) if appends else None
        return Preparation(float(self.data_norm), appended, self.fourier, self.polynomial)

    def _loss(self, algorithm: str) -> str:
        options = self.algorithm_options or {}
        return chosen_loss(self.loss, algorithm, options, self.calibration)

    def _training_parameters(self, parties: int) -> TrainingParameters:
        from dpadmm.run.plan import with_options

        apart = {"tolerance", "algorithm_chosen"}
        names = {item.name for item in fields(TrainingParameters)} - apart
        asked = {name: getattr(self, name) for name in names}
        asked["algorithm_options"] = self.algorithm_options or {}
        return with_options(TrainingParameters(**asked), self._own_options())

    def _own_options(self) -> dict[str, Any]:
        """Options of the algorithm that were given by themselves."""
        given = {name: getattr(self, name) for name in ("noise", "colluders")}
        return {name: value for name, value in given.items() if value is not None}

    # -- prediction -------------------------------------------------------------------------

    def _given(self, X: ArrayLike) -> Rows:
        """What weights act on: rows as they were given, or what a map makes of them."""
        check_is_fitted(self)
        given = validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)
        return self._preparation.mapped(given)

    def _scores(self, X: ArrayLike) -> Array:
        return np.asarray(self._given(X) @ self.coef_.T) + self.intercept_

    def decision_function(self, X: ArrayLike) -> Array:
        """Scores ``X @ coef_.T + intercept_``: above zero for the second class, or one per class.

        Their sign is that of the margin of the row scaled down to norm 1, as training saw it;
        probabilities follow from that margin (:func:`dpadmm.problem.rows.scaled_margins`).
        """
        scores = self._scores(X)
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Class labels."""
        if self._threshold() != 0.0:
            return self.classes_[(self._margins(X)[:, 0] > self._threshold()).astype(int)]
        scores = self._scores(X)
        if scores.shape[1] == 1:
            return self.classes_[(scores[:, 0] > 0).astype(int)]
        return self.classes_[scores.argmax(axis=1)]

    def _threshold(self) -> float:
        """Above which a margin is predicted to be of the second class, of two."""
        check_is_fitted(self)
        return 0.0 if self.quality_ is None else self.quality_.threshold

    def _margins(self, X: ArrayLike) -> Array:
        """Scores of the rows scaled down to norm 1, as training saw them."""
        rows = self._given(X)
        return scaled_margins(rows, self.coef_, self.intercept_, **self._preparation.scale)

    def _links(self) -> tuple[Link, ...]:
        quality = getattr(self, "quality_", None)
        return () if quality is None else quality.links

    def _offers_probabilities(self) -> bool:
        # Asked for and not there after a fit: a ledger refused the histogram.
        if self._links() or (self.probabilities and not hasattr(self, "quality_")):
            return True
        # Whatever "auto" picks takes the loss of the algorithm that is the default.
        named = self.algorithm != AUTO
        loss = self._loss(self.algorithm if named else ALGORITHM)
        if not get_loss(loss).probabilistic:
            chosen = ", which 'auto' chose" if self.loss == "auto" else ""
            raise AttributeError(
                f"predict_proba must have a loss with probabilities; got {loss!r}{chosen}. "
                "Use probabilities=True, which fits them, or loss='logistic', which has them."
            )
        return True

    @available_if(_offers_probabilities)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: ArrayLike) -> Array:
        """Class probabilities: fitted to a histogram with ``probabilities``.

        Without it they are those of the logistic loss, which are not calibrated for noise.
        """
        margins = self._margins(X)
        if self._links():
            each = margins[:, 0] if margins.shape[1] == 1 else margins
            return class_probabilities(self._links(), each)
        scores = expit(margins)
        if scores.shape[1] == 1:
            return np.hstack([1.0 - scores, scores])
        total = scores.sum(axis=1, keepdims=True)
        # Where every class is refused outright the scores vanish: no class is preferred then.
        uniform = np.full_like(scores, 1.0 / scores.shape[1])
        return np.divide(scores, total, out=uniform, where=total > 0)

    @available_if(_offers_probabilities)  # type: ignore[untyped-decorator]
    def predict_log_proba(self, X: ArrayLike) -> Array:
        """Logarithms of the probabilities; minus infinity where one is zero."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        # The few hundred rows of scikit-learn's checks cannot hide a person and be learnt from.
        from dpadmm.algorithms import REGISTRY

        known = REGISTRY.get(self.algorithm) if isinstance(self.algorithm, str) else None
        chosen = self.algorithm == AUTO
        tags.classifier_tags.poor_score = chosen or (known is not None and known.private)
        tags.non_deterministic = self.random_state is None
        return tags


class FederatedClassifier(ADMMClassifier):
    """:class:`ADMMClassifier` under its general name: the algorithm is chosen from public facts.

    Parameters and attributes are the same; ``algorithm`` and ``rounds`` are ``"auto"`` unless
    given.
    """

    __init__ = _without_weights(
        _with_defaults(ADMMClassifier.__init__, algorithm=AUTO, rounds=AUTO)
    )
