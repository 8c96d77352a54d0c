"""Table I as the paper prints it."""

from __future__ import annotations

from typing import Final, NamedTuple

from dpadmm_papers.pdml.scheme import Variant

__all__ = ["COLUMNS", "PRINTED", "SETS", "BenchmarkSet"]


class BenchmarkSet(NamedTuple):
    """A data set of the table.

    Attributes
    ----------
    rows
        As the paper states them.
    test_rows
        The smallest number that leaves ten equal groups to train on and of which all seven printed
        accuracies are whole multiples. Each is thus of one classifier on one split.
    columns
        Of a row.
    unknown
        Why it cannot be told whether our rows are the paper's, where that is so.
    """

    rows: int
    test_rows: int
    columns: int
    unknown: str = ""


SETS: Final[dict[str, BenchmarkSet]] = {
    "german": BenchmarkSet(1000, 300, 20),
    "image": BenchmarkSet(
        2086, 626, 18, "which of the seven classes the benchmark joined is not documented"
    ),
    "ringnorm": BenchmarkSet(7400, 3900, 20),
    "banana": BenchmarkSet(5300, 1800, 2),
    "splice": BenchmarkSet(2991, 901, 60),
    "twonorm": BenchmarkSet(7400, 3900, 20),
    "waveform": BenchmarkSet(5000, 1500, 21),
}

#: The table's columns: their headings and what they are.
COLUMNS: Final[dict[str, Variant]] = {
    "without privacy": Variant("reference"),
    "epsilon 0.4, no phase 2": Variant("phase 1", 0.4),
    "epsilon 1, no phase 2": Variant("phase 1", 1.0),
    "epsilon 0.4, R 1": Variant("published", 0.4, 1.0),
    "epsilon 0.4, R 9": Variant("published", 0.4, 9.0),
    "epsilon 1, R 1": Variant("published", 1.0, 1.0),
    "epsilon 1, R 9": Variant("published", 1.0, 9.0),
}

#: Accuracies in percent, in the order of the columns.
PRINTED: Final[dict[str, tuple[float, ...]]] = {
    "german": (75.00, 71.00, 74.00, 69.67, 64.00, 74.33, 67.67),
    "image": (75.56, 70.13, 72.84, 69.33, 63.10, 70.45, 65.50),
    "ringnorm": (77.38, 73.44, 76.82, 73.74, 66.18, 75.77, 70.23),
    "banana": (58.22, 54.33, 56.06, 54.28, 43.11, 55.89, 54.44),
    "splice": (56.60, 46.84, 56.60, 54.94, 46.39, 55.83, 52.50),
    "twonorm": (97.90, 96.59, 97.38, 96.51, 92.28, 97.41, 94.77),
    "waveform": (88.93, 84.60, 87.93, 84.07, 80.47, 87.67, 81.73),
}
