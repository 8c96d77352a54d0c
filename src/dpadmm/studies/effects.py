r"""Coefficients in the units of their columns: errors, intervals, ratios, and their table.

With :math:`\hat\beta_j` and its standard error :math:`s_j` (sampling and noise), an interval is
:math:`\hat\beta_j\pm q\,s_j`, q the quantile of the normal distribution, or of Student's t with
n - p degrees of freedom for a linear regression, as in statsmodels.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
from scipy.special import ndtr, ndtri, stdtr, stdtrit

from dpadmm.errors import ParameterError
from dpadmm.plain import Array
from dpadmm.studies.design import Design, Response
from dpadmm.studies.glm import Coefficients, Regression

_WIDTH: Final = 78


class Rule(NamedTuple):
    """When a family's intervals are to be trusted: before anything is spent, and afterwards.

    Attributes
    ----------
    refused, warned
        Below these q is refused, and warned of.
    least, better
        Below these ratios no interval is given, and one is warned of.
    """

    refused: float = 10.0
    warned: float = 75.0
    least: float = 0.4
    better: float = 1.5


#: What they lead to is measured by ``benchmarks/inference.py``.
RULES: Final = {
    "gaussian": Rule(least=1.0, better=1.0),
    "binomial": Rule(),
    "poisson": Rule(),
    # Below that, of the few fits that had intervals in 2,000 rows, down to 29% of them held.
    "survival": Rule(least=1.5),
}

TITLES: Final = {
    "gaussian": "Linear Regression Results",
    "binomial": "Logistic Regression Results",
    "poisson": "Poisson Regression Results",
    "survival": "Discrete-Time Survival Regression Results",
}
RATIOS: Final = {
    "gaussian": "",
    "binomial": "odds ratio",
    "poisson": "rate ratio",
    "survival": "hazard ratio",
}


_REMEDY: Final = "More rows, fewer columns or a larger budget would do."


class InferenceWarning(UserWarning):
    """Intervals may not cover what they say, or are not given."""


def check_strength(study: Regression) -> float:
    """Return q of a planned regression; refuse it where it is hopeless, warn where it is weak."""
    strength, facts = study.strength, study.facts
    rule = RULES[facts.family]
    if strength >= rule.warned:
        return strength
    rows = math.ceil(facts.rows * (rule.warned / strength))
    fewer = facts.size * (strength / rule.warned) ** (2 / 3) - facts.constants
    columns = f", no more than {math.floor(fewer)} columns" if fewer >= 1 else ""
    words = (
        f"q = n mu / p^1.5 is {strength:.3g} for {facts.rows} rows and {facts.size} coefficients, "
        f"and should be {rule.warned:g}: {rows} rows{columns}, or "
        f"{rule.warned / strength:.2g} times the budget in mu would do"
    )
    if strength < rule.refused:
        raise ParameterError(
            f"a regression must not drown in its noise: {words}. Nothing was spent."
        )
    warnings.warn(f"{words}; intervals may be wide or not be given.", InferenceWarning, 3)
    return strength


@dataclass(frozen=True)
class Effects:
    """What a regression found, in the user's units.

    Attributes
    ----------
    family
        Its name.
    names
        Of the coefficients, constants first.
    constants
        How many of them are constants.
    rows
        Of all parties together.
    estimate
        What was found, in the user's units.
    strength
        q; infinite without noise.
    robust
        Whether errors are robust ones.
    response_unit
        Of the responses, by which they were divided.
    """

    family: str
    names: tuple[str, ...]
    constants: int
    rows: int
    estimate: Coefficients = field(repr=False)
    strength: float = math.inf
    robust: bool = False
    response_unit: float = 1.0

    def warned(self) -> Effects:
        """Warn of intervals that are not given, or may not cover; return what was found."""
        if self.doubt:
            warnings.warn(self.doubt, InferenceWarning, stacklevel=3)
        return self

    @property
    def doubt(self) -> str:
        """Why no intervals are given, or what they are warned of; empty if there is nothing."""
        ratio = f"the noisy matrix is {{}} its noise (ratio {self.estimate.ratio:.2g}, {{}})"
        if not self.estimate.settled:
            return (
                "no intervals are given: coefficients still moved in the last round, as they do "
                "where columns separate the outcomes or effects are very strong."
            )
        if not self.given:
            why = ratio.format("not told from", f"needed {self.rule.least:g}")
            return f"no intervals are given: {why}. {_REMEDY}"
        if self.estimate.ratio < self.rule.better:
            why = ratio.format("close to", f"better {self.rule.better:g}")
            return f"intervals may cover less than they say: {why}. {_REMEDY}"
        if self.weak:
            return (
                "intervals may cover less than they say: the last round began where noise had "
                "moved it far, or outcomes of some rows are all but decided. As where outcomes or "
                f"levels are rare, or effects very strong. {_REMEDY}"
            )
        return ""

    @property
    def rule(self) -> Rule:
        """Of its family."""
        return RULES[self.family]

    @property
    def given(self) -> bool:
        """Whether intervals are given."""
        return self.estimate.settled and self.estimate.ratio >= self.rule.least

    @property
    def weak(self) -> bool:
        """Whether intervals may cover less than they say."""
        return self.estimate.ratio < self.rule.better or not self.estimate.begun

    @property
    def coefficients(self) -> Array:
        """What was found."""
        return self.estimate.coefficients

    @property
    def scale(self) -> float:
        """The residual variance of a linear regression, else 1."""
        return self.estimate.scale * self.response_unit**2

    @property
    def errors(self) -> Array:
        """Standard errors; not a number where no intervals are given."""
        if not self.given:
            return np.full(len(self.names), np.nan)
        robust = self.estimate.robust if self.robust else None
        found: Array = np.sqrt(np.diag(self.estimate.covariance if robust is None else robust))
        return found

    @property
    def _freedom(self) -> float:
        exact = self.family == "gaussian" and not self.robust
        return self.rows - len(self.names) if exact else math.inf

    def intervals(self, level: float = 0.95) -> Array:
        """``(coefficients, 2)``."""
        if not 0 < level < 1:
            raise ParameterError(f"level must be between 0 and 1; got {level!r}.")
        upper = (1 + level) / 2
        finite = math.isfinite(self._freedom)
        quantile = float(stdtrit(self._freedom, upper) if finite else ndtri(upper))
        reach = quantile * self.errors
        return np.column_stack([self.coefficients - reach, self.coefficients + reach])

    @property
    def statistics(self) -> Array:
        """Coefficients over their errors."""
        return self.coefficients / self.errors

    @property
    def pvalues(self) -> Array:
        """Of no effect, against any."""
        size = -np.abs(self.statistics)
        finite = math.isfinite(self._freedom)
        found: Array = 2 * (stdtr(self._freedom, size) if finite else ndtr(size))
        return found

    @property
    def letter(self) -> str:
        """How the statistic is called."""
        return "t" if math.isfinite(self._freedom) else "z"

    def to_dict(self, level: float = 0.95) -> dict[str, Any]:
        """As plain data; numbers that are not given are None."""
        columns = (self.coefficients, self.errors, self.statistics, self.pvalues)
        rows = zip(self.names, *(_plain(each) for each in columns), strict=True)
        low, high = (_plain(each) for each in self.intervals(level).T)
        found = []
        for place, (name, coefficient, error, statistic, pvalue) in enumerate(rows):
            entry: dict[str, Any] = {
                "name": name,
                "constant": place < self.constants,
                "coefficient": coefficient,
                "standard_error": error,
                "statistic": statistic,
                "pvalue": pvalue,
                "low": low[place],
                "high": high[place],
            }
            if RATIOS[self.family] and place >= self.constants:
                entry["ratio"] = _exponential(coefficient)
                entry["ratio_low"] = _exponential(low[place])
                entry["ratio_high"] = _exponential(high[place])
            found.append(entry)
        return {
            "family": self.family,
            "level": level,
            "effect": RATIOS[self.family],
            "robust": self.robust,
            "settled": self.estimate.settled,
            "conditioning": None if math.isinf(self.estimate.ratio) else self.estimate.ratio,
            "strength": None if math.isinf(self.strength) else self.strength,
            "coefficients": found,
        }

    def summary(self, *, level: float = 0.95, response: str = "y", privacy: str = "") -> Summary:
        """The table people know from statsmodels."""
        lines = [TITLES[self.family].center(_WIDTH).rstrip(), "=" * _WIDTH]
        errors = "HC1" if self.robust else "nonrobust"
        pairs = [
            ("Dep. Variable:", response, "No. Observations:", f"{self.rows}"),
            ("Covariance Type:", errors, "Conditioning:", _number(self.estimate.ratio)),
        ]
        if privacy:
            pairs.append(("Privacy:", privacy, "", ""))
        for heading, value, right, other in pairs:
            half = f"{heading:<18}{value:>20}" if right else f"{heading:<18}{value}"
            lines.append(f"{half}   {right:<18}{other:>19}".rstrip())
        wide = min(max(12, *(len(name) for name in self.names)), 24)
        tail = (1 - level) / 2
        ends = (f"[{tail:.3g}", f"{1 - tail:.3g}]")
        ratios = RATIOS[self.family]
        head = ["coef", "std err", self.letter, f"P>|{self.letter}|", *ends]
        lines += ["=" * _WIDTH, _line("", head, wide), "-" * _WIDTH]
        table = np.column_stack(
            [self.coefficients, self.errors, self.statistics, self.pvalues, self.intervals(level)]
        )
        for name, row in zip(self.names, table, strict=True):
            cells = [_number(cell, 3 if k in (1, 2, 3) else 4) for k, cell in enumerate(row)]
            lines.append(_line(name, cells, wide))
        if ratios:
            lines += ["-" * _WIDTH, _line(ratios, ["exp(coef)", "", "", "", *ends], wide)]
            for name, row in list(zip(self.names, table, strict=True))[self.constants :]:
                cells = [_number(_safe_exp(cell)) for cell in (row[0], row[4], row[5])]
                lines.append(_line(name, [cells[0], "", "", "", *cells[1:]], wide))
        lines.append("=" * _WIDTH)
        return Summary("\n".join(lines))


def effects_of(
    estimate: Coefficients,
    design: Design,
    response: Response,
    rows: int,
    *,
    strength: float = math.inf,
    robust: bool = False,
) -> Effects:
    """Of an estimate of prepared columns, which gets the user's units; warns as its ratio says."""
    constants = len(response.constants)
    in_units = estimate.mapped(design.change(constants, response.unit))
    in_units.coefficients[:constants] += response.centre
    # Those of a private linear fit always are.
    robust = robust or (in_units.robust is not None and math.isfinite(in_units.ratio))
    return Effects(
        response.family,
        (*response.constants, *design.names),
        constants,
        rows,
        in_units,
        strength,
        robust,
        response.unit,
    ).warned()


@dataclass(frozen=True)
class Summary:
    """A table as text."""

    text: str

    def as_text(self) -> str:
        """The text."""
        return self.text

    def __str__(self) -> str:
        return self.text

    __repr__ = __str__


def _line(name: str, cells: list[str], wide: int) -> str:
    each = (_WIDTH - wide) // 6
    return f"{name[:wide]:<{wide}}" + "".join(f"{cell:>{each}}" for cell in cells)


def _number(value: float, digits: int = 4) -> str:
    if not math.isfinite(value):
        return "none" if math.isinf(value) else "nan"
    text = f"{value:.{digits}f}"
    fits = len(text) <= 9 and (abs(value) >= 10.0**-digits or value == 0)
    return text if fits else f"{value:.2e}"


def _safe_exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf


def _plain(values: Array) -> list[float | None]:
    return [float(each) if math.isfinite(each) else None for each in values]


def _exponential(value: float | None) -> float | None:
    if value is None:
        return None
    found = _safe_exp(value)
    return found if math.isfinite(found) else None
