"""Figs. 2 and 3: the hyper-parameters of PR-ADMM, one varied at a time."""

from __future__ import annotations

from abc import ABC
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Final, NamedTuple

from dpadmm.experiments.figures import Curve, Panel
from dpadmm.experiments.jobs import Job, Result
from dpadmm.experiments.meaning import bound_of
from dpadmm.experiments.measures import mean_interval
from dpadmm.report.document import Table
from dpadmm_papers.experiment import (
    Conclusion,
    Evaluation,
    Finding,
    Setting,
    ours,
    part_name,
    split,
)
from dpadmm_papers.pr_admm.section import (
    CALIBRATIONS,
    CHOICES,
    ITERATION,
    MEASURES,
    PERIODIC,
    Regime,
    Section5,
    Way,
)
from dpadmm_papers.verdicts import is_best

_GRID: Final = "the values on the paper's axis are not in the text; the best one is among these"


class _Varied(NamedTuple):
    """A hyper-parameter: its part of the figure, symbol, option, grid and the paper's best."""

    part: str
    symbol: str
    option: str
    grid: str
    best: str


class _Tuning(Section5, ABC):
    """A figure that varies hyper-parameters of one schedule."""

    who: ClassVar[str]
    varied: ClassVar[tuple[_Varied, ...]]

    def _points(self) -> Iterator[tuple[str, Regime, _Varied, Any]]:
        for calibration in CALIBRATIONS:
            for regime in self.regimes:
                for varied in self.varied:
                    for value in self[varied.grid]:
                        yield calibration, regime, varied, value

    def _result(
        self,
        results: Mapping[str, Result],
        calibration: str,
        regime: Regime,
        varied: _Varied,
        value: Any,
    ) -> Result:
        epsilon = self["epsilon of Figs. 2 to 4"]
        return results[self.label(self.who, calibration, regime, epsilon, **{varied.option: value})]

    def _labels(self, calibration: str, regime: Regime, varied: _Varied) -> list[str]:
        epsilon = self["epsilon of Figs. 2 to 4"]
        return [
            self.label(self.who, calibration, regime, epsilon, **{varied.option: value})
            for value in self[varied.grid]
        ]

    def cells(self) -> dict[str, Job]:
        """Every value of every hyper-parameter, the rest as the paper found them best."""
        epsilon = self["epsilon of Figs. 2 to 4"]
        found = [
            self.cell(self.who, calibration, regime, epsilon, **{varied.option: value})
            for calibration, regime, varied, value in self._points()
        ]
        return dict([*found, *(self.non_private(regime) for regime in self.regimes)])

    def evaluate(self, results: Mapping[str, Result]) -> Evaluation:
        """Accuracy over each hyper-parameter, and whether the paper's best is the best."""
        panels: list[Panel] = []
        findings: list[Finding] = []
        for regime in self.regimes:
            for varied in self.varied:
                panels.append(self._panel(results, regime, varied))
        for calibration in CALIBRATIONS:
            for way in self.ways:
                for varied in self.varied:
                    findings += self._judge(results, calibration, way, varied)
        return Evaluation(
            tuple(panels),
            {"Testing accuracy in percent, and provable epsilon": self._table(results)},
            tuple(findings),
            (self.reading_remark(results), self._flat_remark(results)),
        )

    def _judge(
        self, results: Mapping[str, Result], calibration: str, way: Way, varied: _Varied
    ) -> Iterator[Finding]:
        """Whether the paper's best is the best, for testing and for training."""
        claimed = _word(varied.symbol, self[varied.best])
        for word, measure in MEASURES.items():
            samples = {}
            for value in self[varied.grid]:
                result = self._result(results, calibration, way.regime, varied, value)
                sample = self.final(result, measure, primal=way.primal)
                samples[_word(varied.symbol, value)] = {word: sample}
            yield Finding.judged(
                part_name(varied.part, word),
                calibration,
                *is_best(claimed, samples),
                **way.words,
                rests_on=self._labels(calibration, way.regime, varied),
            )

    def _panel(self, results: Mapping[str, Result], regime: Regime, varied: _Varied) -> Panel:
        grid = self[varied.grid]
        words = None in grid
        curves = [
            Curve.of_runs(
                word,
                [_value(value) if words else value for value in grid],
                [
                    self.final(self._result(results, calibration, regime, varied, value), measure)
                    for value in grid
                ],
                calibration,
            )
            for word, measure in MEASURES.items()
            for calibration in CALIBRATIONS
        ]
        scale: Any = "log" if not words and max(grid) > 10 * min(grid) else "linear"
        return Panel(
            f"({varied.part}) {varied.symbol}, {regime.words}",
            varied.symbol,
            "accuracy",
            tuple(curves),
            x_scale=scale,
        )

    def _table(self, results: Mapping[str, Result]) -> Table:
        rows = []
        for calibration, regime, varied, value in self._points():
            result = self._result(results, calibration, regime, varied, value)
            own, sent = (
                mean_interval(100 * self.final(result, MEASURES["testing"], primal=primal))
                for primal in (True, False)
            )
            spent = bound_of(result.facts["privacy"])
            setting = _word(varied.symbol, value)
            rows.append((calibration, regime.words, setting, f"{own:.2f}", f"{sent:.2f}", spent))
        columns = (
            "calibration",
            "with",
            "setting",
            "x before noise",
            "the message",
            "provable epsilon of the messages",
        )
        return Table.of(columns, rows)

    def _flat_remark(self, results: Mapping[str, Result]) -> str:
        """How much the hyper-parameters change at all."""
        spreads = []
        for calibration in CALIBRATIONS:
            for regime in self.regimes:
                means = [
                    100
                    * float(self.final(self._result(results, *point), MEASURES["testing"]).mean())
                    for point in self._points()
                    if point[:2] == (calibration, regime)
                ]
                words = f"{calibration}, {regime.words}"
                spreads.append(f"{words}: {min(means):.1f}% to {max(means):.1f}%")
        return (
            "**How much they matter.** Mean testing accuracy over all values of the figure: "
            + "; ".join(spreads)
            + "."
        )


def _value(value: Any) -> str:
    return "none" if value is None else f"{value:g}"


def _word(symbol: str, value: Any) -> str:
    return f"{symbol} = {_value(value)}"


def _conclusion(part: str, claim: str, setting: str) -> tuple[Conclusion, ...]:
    whole = Conclusion(
        part,
        claim,
        "At epsilon = 10 the 97.5% interval of accuracy at "
        f"{setting} minus accuracy at each other value lies above 0.",
        choices=CHOICES,
    )
    return split(whole, *MEASURES)


class Figure2(_Tuning):
    """Fig. 2: the periodic schedule."""

    name: ClassVar[str] = "pr-admm-figure-2"
    seconds: ClassVar[float] = 50.0
    part: ClassVar[str] = "Fig. 2"
    title: ClassVar[str] = "PR-ADMM with periodic decay: period, threshold and decay rate"
    settings: ClassVar[Mapping[str, Setting]] = {
        **Section5.common,
        "values of K_p": ours((1, 2, 5, 10), _GRID),
        "values of U": ours((0.01, 0.1, 1.0, None), _GRID),
        "values of R_P": ours((0.85, 0.925, 0.975, 0.995), _GRID),
    }
    conclusions: ClassVar[tuple[Conclusion, ...]] = (
        *_conclusion("a", "(a) K_p = 1 achieves the highest testing/training accuracy.", "K_p = 1"),
        *_conclusion("b", "(b) U = 0.1 achieves the best testing/training accuracy.", "U = 0.1"),
        *_conclusion("c", "(c) R_P = 0.925 is best.", "R_P = 0.925"),
    )
    who: ClassVar[str] = PERIODIC
    varied: ClassVar[tuple[_Varied, ...]] = (
        _Varied("a", "K_p", "period", "values of K_p", "K_p"),
        _Varied("b", "U", "threshold", "values of U", "U, periodic"),
        _Varied("c", "R_P", "decay", "values of R_P", "R_P"),
    )


class Figure3(_Tuning):
    """Fig. 3: the iteration-based schedule."""

    name: ClassVar[str] = "pr-admm-figure-3"
    seconds: ClassVar[float] = 40.0
    part: ClassVar[str] = "Fig. 3"
    title: ClassVar[str] = "PR-ADMM with iteration-based decay: threshold and decay rate"
    settings: ClassVar[Mapping[str, Setting]] = {
        **Section5.common,
        "values of U": ours((0.1, 1.0, 10.0, None), _GRID),
        "values of R_T": ours((0.0015, 0.015, 0.15, 1.5), _GRID),
    }
    conclusions: ClassVar[tuple[Conclusion, ...]] = (
        *_conclusion("a", "(a) Testing/training accuracy are highest when U = 1.", "U = 1"),
        *_conclusion(
            "b", "(b) Testing/training accuracy are highest when R_T = 0.015.", "R_T = 0.015"
        ),
    )
    who: ClassVar[str] = ITERATION
    varied: ClassVar[tuple[_Varied, ...]] = (
        _Varied("a", "U", "threshold", "values of U", "U, iteration"),
        _Varied("b", "R_T", "decay", "values of R_T", "R_T"),
    )
