"""Regressions between parties as an estimator: coefficients, errors, intervals, a summary."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from dpadmm.algorithms import INFER
from dpadmm.data.given_rows import even_split, row_owners, rows_of_owners
from dpadmm.errors import ParameterError, unknown_name
from dpadmm.plain import Array
from dpadmm.privacy.events import NON_PRIVATE
from dpadmm.privacy.statement import Charges, PrivacyStatement, Terms, make_statement
from dpadmm.run.charges import EvaluationTerms
from dpadmm.run.options import DEFAULT
from dpadmm.studies.design import Design, Response, column_names, declared_levels
from dpadmm.studies.effects import TITLES, Effects, Summary, check_strength, effects_of
from dpadmm.studies.glm import Regression, RegressionFacts, exact_estimate, plan_regression
from dpadmm.studies.study import StudyRows, require_named, run_study, study_noise

_NOT_PRIVATE: Final = "none: epsilon is infinite"
_LEVELS_OF_FRAME: Final = (
    "the list of levels that a frame's categorical columns have, if it was made from the rows"
)


class FederatedGLM(BaseEstimator):  # type: ignore[misc]
    r"""A regression of the rows of all parties, with intervals, under one privacy budget.

    .. math:: g(E[y]) = \beta_0 + x\cdot\beta,\qquad
              \hat\beta_j \pm 1.96\,\sqrt{V_{jj}}

    V covers sampling and the noise of privacy. Only noisy sums leave a party: four rounds of
    gradients and curvatures, or two of moments and scores for a linear regression
    (:mod:`dpadmm.studies.glm`). It keeps the user's columns and units.

    Parameters
    ----------
    family : {"gaussian", "binomial", "poisson", "survival"}
        Linear, logistic or Poisson regression, or an event in discrete time.
    epsilon, delta : float or mapping of party to float
        The budget of each party for one person. ``math.inf`` asks for no privacy: the same sums,
        exact and without bounds, until they settle.
    data_norm : float
        A public bound on the norm of most rows, where ``bounds`` are not given. Longer rows weigh
        less; that does not bias.
    bounds : mapping of column to (low, high), optional
        Public bounds of the columns, by name or number.
    levels : mapping of column to levels, optional
        The public levels of categorical columns, the reference first; those that a pandas frame
        declares are taken, too.
    response_bounds : (low, high), optional
        Public bounds of the response; needed for "gaussian".
    periods : int or sequence of float, optional
        For "survival": how many periods of length 1 begin at 0, or their public edges.
    robust : bool
        For "gaussian": errors that allow residuals to vary with the columns (HC1), without
        privacy. Those of a private fit always do.
    noise : {"own", "shared"}
        Whose noise there is, as for ``dp-gd``.
    colluders : int, optional
        With shared noise: how many parties may collude with whoever sees the sums.
    rows_per_person : int
        How many rows of a party are replaced at once.
    n_parties : int
        Among how many parties rows are split where nobody says whose they are.
    random_state : int or None
        Makes splits and noise reproducible: a simulation, which protects nobody.

    Attributes
    ----------
    coef_, intercept_
        Coefficients of ``effect_names_``, in the user's units, and the constant; for "survival"
        the constant of each period.
    standard_errors_, pvalues_
        Of ``coef_``; not a number where the release does not bear intervals.
    effect_names_
        What ``coef_`` belong to: columns, and levels of categorical ones.
    effects_
        All of it (:class:`~dpadmm.studies.effects.Effects`), the constants too.
    privacy_
        The guarantee, and what was spent.
    n_features_in_, feature_names_in_
        Of X, as in scikit-learn.

    Notes
    -----
    Every fit spends anew. A budget that is too small for so many rows and columns is refused before
    anything is spent (:func:`~dpadmm.studies.effects.check_strength`).

    Examples
    --------
    >>> import numpy as np
    >>> random = np.random.default_rng(0)
    >>> X = random.uniform(-1, 1, (20000, 2))
    >>> y = random.random(20000) < 1 / (1 + np.exp(-X[:, 0]))
    >>> model = FederatedGLM(epsilon=2.0, bounds={0: (-1, 1), 1: (-1, 1)}, random_state=0)
    >>> low, high = model.fit(X, y).conf_int()[0]
    >>> bool(low < 1 < high)
    True
    """

    def __init__(
        self,
        family: str = "binomial",
        epsilon: float | Mapping[Any, float] = DEFAULT.epsilon,
        delta: float | Mapping[Any, float] = DEFAULT.delta,
        data_norm: float = DEFAULT.data_norm,
        bounds: Mapping[Any, Any] | None = None,
        levels: Mapping[Any, Sequence[Any]] | None = None,
        response_bounds: Sequence[float] | None = None,
        periods: int | Sequence[float] | None = None,
        robust: bool = False,
        noise: str = "own",
        colluders: int | None = None,
        rows_per_person: int = DEFAULT.rows_per_person,
        n_parties: int = DEFAULT.n_parties,
        random_state: int | np.random.RandomState | None = DEFAULT.random_state,
    ) -> None:
        self.family = family
        self.epsilon = epsilon
        self.delta = delta
        self.data_norm = data_norm
        self.bounds = bounds
        self.levels = levels
        self.response_bounds = response_bounds
        self.periods = periods
        self.robust = robust
        self.noise = noise
        self.colluders = colluders
        self.rows_per_person = rows_per_person
        self.n_parties = n_parties
        self.random_state = random_state

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        parties: ArrayLike | None = None,
        ledgers: Mapping[str, str | Path] | None = None,
        run_id: str | None = None,
        resume: bool = False,
    ) -> FederatedGLM:
        """Fit rows ``X`` with responses ``y``.

        Parameters
        ----------
        X : array or frame of shape (rows, columns)
            Numbers, or levels for columns that have ``levels``.
        y : array of shape (rows,), or (rows, 3) for "survival"
            The response: 0 or 1 for "binomial", counts for "poisson". For "survival" a frame with
            the columns entry, exit and event, or an array with them in that order: a person is at
            risk from its entry to its exit, and event is 1 if the event ends that time.
        parties : array of shape (rows,), optional
            Whose row it is; None splits the rows at random among ``n_parties``.
        ledgers, run_id
            Each party's budget ledger by its name, and the name of the study in them. Needs
            ``parties``. A study that a crash cut short is continued by the same call in a new
            process; a name whose study is complete, or was begun in this process, is refused.
        resume : bool
            Take what the ledgers have of the study ``run_id``, at no further cost: rows and
            responses must be the same.
        """
        facts = self._check()
        self._check_charged(ledgers, parties, run_id)
        names = column_names(X)
        if len(set(names)) < len(names):
            raise ParameterError("columns of X must have names of their own; one is there twice.")
        response = facts.response(y)
        validate_data(self, X, skip_check_array=True, ensure_2d=False)
        design = self._design(X)
        values = design.values(X)
        self.n_features_in_ = design.width
        if len(response) != len(values):
            raise ParameterError(
                f"y must have a response for each of the {len(values)} rows; got {len(response)}."
            )
        random = check_random_state(self.random_state)
        if parties is None:
            owners, members = even_split(len(values), self.n_parties, random)
        else:
            owners, members = rows_of_owners(row_owners(parties), len(values))
        told = RegressionFacts(self.family, len(design.columns), facts.count, len(values))
        if facts.exact:
            design = design.fitted_to(values)
            prepared = design.prepared(values)
            if not (np.isfinite(prepared).all() and np.isfinite(response).all()):
                raise ParameterError(
                    "X and y must hold finite numbers and declared levels with an infinite epsilon."
                )
            estimate = exact_estimate(told, [(prepared[m], response[m]) for m in members])
            strength, privacy = math.inf, _not_private(owners)
        else:
            terms = EvaluationTerms(
                self.epsilon, self.delta, self.rows_per_person, self.noise, self.colluders
            )
            counts = {str(n): len(m) for n, m in zip(owners, members, strict=True)}
            planned = plan_regression(told, counts, terms)
            study = planned.algorithm
            assert isinstance(study, Regression)
            strength = check_strength(study)
            prepared = design.prepared(values)
            key = None if self.random_state is None else int(random.randint(2**31 - 1))
            done = run_study(
                planned,
                lambda: [(prepared[member], response[member]) for member in members],
                noise=study_noise(key),
                about=StudyRows(
                    ledgers,
                    run_id,
                    question={**design.public, **facts.public},
                    resume=resume,
                ),
                not_covered=self._not_covered(X),
            )
            estimate, privacy = study.estimate(done.sums), done.privacy
        self.design_ = design
        self.privacy_ = privacy
        self.effects_ = effects_of(
            estimate, design, facts, len(values), strength=strength, robust=bool(self.robust)
        )
        return self

    def fit_formula(
        self, formula: str, data: Any, parties: ArrayLike | None = None, **more: Any
    ) -> FederatedGLM:
        """:meth:`fit` with the columns of a formula, such as ``"y ~ age + C(ward)"``.

        Needs the extra ``formula`` (formulaic). ``bounds`` name the columns that a formula makes;
        ``levels`` those of ``data``. Terms that learn from rows are refused.
        """
        from dpadmm.studies.formula import formula_columns

        X, y = formula_columns(formula, data, self.levels or {})
        levels = {name: found for name, found in (self.levels or {}).items() if name in X.columns}
        asked, self.levels = self.levels, levels or None
        try:
            return self.fit(X, y, parties, **more)
        finally:
            self.levels = asked

    def _check(self) -> Response:
        """Refuse what is not served, before a row is looked at."""
        if self.family not in TITLES:
            raise unknown_name("family", self.family, TITLES)
        if self.robust and self.family != "gaussian":
            raise ParameterError(
                f"robust must be left out for the family {self.family!r}: errors of 'gaussian' "
                "alone may be robust; got True."
            )
        return Response.of(self.family, self._exact, self.response_bounds, self.periods)

    def _check_charged(self, ledgers: Any, parties: Any, run_id: str | None) -> None:
        """Refuse what ledgers could not hold: no privacy, random owners, rows without a name."""
        if ledgers is None:
            return
        if self._exact:
            raise ParameterError(
                "ledgers must be left out with an infinite epsilon: such a fit protects nobody, "
                "and no budget covers it. Give a finite epsilon."
            )
        require_named(parties=parties, run_id=run_id)

    def _not_covered(self, X: Any) -> tuple[str, ...]:
        """What a statement cannot promise of this fit."""
        told = set(map(str, self.levels or {}))
        taken = [name for name in declared_levels(X) if name not in told]
        return (f"{_LEVELS_OF_FRAME} ({', '.join(taken)})",) if taken else ()

    @property
    def _exact(self) -> bool:
        """Whether no privacy is asked for."""
        return not isinstance(self.epsilon, Mapping) and self.epsilon == math.inf

    def _design(self, X: Any) -> Design:
        levels = {**declared_levels(X), **{str(k): v for k, v in (self.levels or {}).items()}}
        names = column_names(X)
        by_place = {
            names[int(key)] if key.isdigit() and key not in names else key: value
            for key, value in levels.items()
        }
        bounds = self.bounds
        if self._exact:
            bounds = {name: (-1.0, 1.0) for name in names if name not in by_place}
        return Design.of(names, bounds=bounds, levels=by_place, data_norm=self.data_norm)

    # -- what was found ---------------------------------------------------------------------

    @property
    def _effects(self) -> Effects:
        check_is_fitted(self, "effects_")
        found: Effects = self.effects_
        return found

    @property
    def effect_names_(self) -> tuple[str, ...]:
        """What ``coef_`` belong to."""
        return self._effects.names[self._effects.constants :]

    @property
    def coef_(self) -> Array:
        """Coefficients in the user's units."""
        return self._effects.coefficients[self._effects.constants :]

    @property
    def intercept_(self) -> float | Array:
        """The constant, or that of each period."""
        constants = self._effects.coefficients[: self._effects.constants]
        return constants if self.family == "survival" else float(constants[0])

    @property
    def standard_errors_(self) -> Array:
        """Of ``coef_``."""
        return self._effects.errors[self._effects.constants :]

    @property
    def pvalues_(self) -> Array:
        """Of ``coef_``."""
        return self._effects.pvalues[self._effects.constants :]

    def conf_int(self, level: float = 0.95) -> Array:
        """Intervals of ``coef_``, ``(features, 2)``."""
        return self._effects.intervals(level)[self._effects.constants :]

    def ratios(self, level: float = 0.95) -> Array:
        """Odds, rate or hazard ratios: ``exp`` of each coefficient and its interval, (features, 3).

        For "survival" the ratio of the odds of the event within a period.
        """
        if self.family == "gaussian":
            raise ParameterError("ratios must be asked of another family than 'gaussian'.")
        with np.errstate(over="ignore"):
            found: Array = np.exp(np.column_stack([self.coef_, self.conf_int(level)]))
        return found

    def summary(self, level: float = 0.95) -> Summary:
        """The table that people know from statsmodels."""
        effects, statement = self._effects, self.privacy_
        words = "none (epsilon is infinite)"
        if statement.private:
            words = "noise is in the errors; privacy_ says what is guaranteed"
        if statement.simulated:
            words = "a simulation, which protects nobody; noise is in the errors"
        return effects.summary(level=level, privacy=words)

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The expected response: a mean, a chance or a rate.

        For "survival" the chance to be without the event after each period, ``(rows, periods)``.
        """
        check_is_fitted(self, "effects_")
        validate_data(self, X, skip_check_array=True, ensure_2d=False, reset=False)
        along = self.design_.values(X) @ self.coef_
        if self.family == "survival":
            hazard = expit(along[:, None] + np.asarray(self.intercept_))
            return np.cumprod(1 - hazard, axis=1)
        eta = along + self.intercept_
        if self.family == "gaussian":
            return eta
        with np.errstate(over="ignore"):
            return expit(eta) if self.family == "binomial" else np.exp(eta)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "effects_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.non_deterministic = self.random_state is None
        return tags


def _not_private(names: NDArray[Any]) -> PrivacyStatement:
    """The statement of a fit without privacy."""
    count = len(names)
    events = ((NON_PRIVATE,),) * count
    charges = Charges(tuple(map(str, names)), events, np.zeros(count), 1)
    return make_statement(
        charges, Terms(algorithm=INFER, noise=_NOT_PRIVATE, simulated=False), by_round=False
    )
