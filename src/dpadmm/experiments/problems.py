"""Public data, split among parties, with held-out rows for testing."""

from __future__ import annotations

import hashlib
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Self, final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dpadmm.data.dataset import Dataset
from dpadmm.data.named import adult_schema, load
from dpadmm.data.tables import PartyRows, check_columns, encode_party
from dpadmm.errors import DataError, ParameterError
from dpadmm.plain import Array
from dpadmm.problem.rows import Rows, label_signs
from dpadmm.run.config import RunConfig, load_config
from dpadmm.run.files import prepare, read_parties

# Rows with a smaller share of non-zero entries are kept sparse. On Adult (an eighth) this halves
# the time of a pass over them.
_MOSTLY_ZERO: Final = 0.2

# Words by which the source of a data set says that a paper used other rows.
_NOT_THE_ORIGINAL: Final = ("stand", "not identical", "not the benchmark")


@dataclass(frozen=True, eq=False)
class Problem:
    """The rows of every party, and public rows for testing.

    Attributes
    ----------
    members
        For each party its rows and its labels, one column of -1 and +1 per output.
    test_rows, test_codes
        Rows for testing, and the class of each as a number from 0.
    names
        Names of the parties.
    facts
        The origin of the rows, for a manifest; ``stand_in`` says if they replace a paper's rows.
    least_constant
        The smallest value that the last column, a constant, has in a row; None without one.
    """

    members: tuple[tuple[Rows, Array], ...] = field(repr=False)
    test_rows: Rows = field(repr=False)
    test_codes: NDArray[np.int64] = field(repr=False)
    names: tuple[str, ...]
    facts: dict[str, Any]
    least_constant: float | None = None

    @property
    def counts(self) -> list[int]:
        """Rows of each party."""
        return [rows.shape[0] for rows, _ in self.members]

    @property
    def features(self) -> int:
        """Columns of a row."""
        return int(self.test_rows.shape[1])

    @property
    def outputs(self) -> int:
        """Columns of the labels: 1 for two classes."""
        return int(self.members[0][1].shape[1])


@dataclass(frozen=True)
class ProblemSource(ABC):
    """A frozen description that any process can load the problem from."""

    @abstractmethod
    def load(self) -> Problem:
        """Read the rows; the same description gives the same rows."""

    def dealt_again(self, times: int) -> Self:
        """The same rows, split otherwise; unchanged if the split is given."""
        return self


def dense(rows: Rows) -> Array:
    """Rows as a dense array."""
    return np.asarray(rows.toarray() if sparse.issparse(rows) else rows)


@final
@dataclass(frozen=True)
class NamedProblem(ProblemSource):
    """A named data set, split among parties at random.

    Attributes
    ----------
    dataset
        One of :data:`dpadmm.data.named.NAMES`.
    parties
        How many.
    rows_per_party
        Rows of each party; 0 uses all rows that are not held out.
    test_rows
        Held-out rows for testing: a number, or a share of all rows below 1.
    split_seed
        The seed of the split.
    drawn_rows
        How many rows a generator draws; 0 takes its default.
    """

    dataset: str
    parties: int
    rows_per_party: int = 0
    test_rows: float = 0.3
    split_seed: int = 0
    drawn_rows: int = 0

    def load(self) -> Problem:
        """Read and split the rows."""
        return _deal(self)

    def dealt_again(self, times: int) -> Self:
        """Draw other held-out rows, and other rows for every party."""
        return replace(self, split_seed=self.split_seed + times)


@final
@dataclass(frozen=True)
class OnePartyProblem(ProblemSource):
    """A problem with one party: the pooled rows of all parties, or the rows of one.

    Attributes
    ----------
    whole
        The problem.
    party
        The party whose rows are used; -1 pools all rows.
    """

    whole: ProblemSource
    party: int = -1

    def load(self) -> Problem:
        """The same held-out rows, and one party."""
        whole = self.whole.load()
        if self.party >= 0:
            one = whole.members[self.party]
            return replace(whole, members=(one,), names=(whole.names[self.party],))
        blocks, labels = zip(*whole.members, strict=True)
        thin = any(sparse.issparse(block) for block in blocks)
        rows = sparse.vstack(blocks, format="csr") if thin else np.concatenate(blocks)
        return replace(whole, members=((rows, np.concatenate(labels)),), names=("all",))

    def dealt_again(self, times: int) -> Self:
        """Split the whole problem again."""
        return replace(self, whole=self.whole.dealt_again(times))


@lru_cache(maxsize=4)
def _named(dataset: str, drawn_rows: int) -> Dataset:
    return load(dataset, rows=drawn_rows or None, download=False)


def missing_data(names: Iterable[str]) -> dict[str, str]:
    """The named data sets that are not on this machine, and where to get each."""
    missing = {}
    for name in dict.fromkeys(names):
        try:
            _named(name, 0)
        except DataError as error:
            missing[name] = str(error)
    return missing


def compact(rows: Array) -> Rows:
    """Rows in the faster form: sparse if most entries are zero."""
    return sparse.csr_array(rows) if np.count_nonzero(rows) < _MOSTLY_ZERO * rows.size else rows


@lru_cache(maxsize=4)
def _deal(problem: NamedProblem) -> Problem:
    data = _named(problem.dataset, problem.drawn_rows)
    total = len(data.y)
    held = round(problem.test_rows * total) if problem.test_rows < 1 else int(problem.test_rows)
    used = problem.rows_per_party * problem.parties or total - held
    if held < 1 or used < problem.parties or used + held > total:
        raise ParameterError(
            f"rows_per_party and test_rows must fit into the {total} rows of {problem.dataset}; "
            f"got {used} rows for {problem.parties} parties and {held} for testing."
        )
    order = np.random.default_rng(problem.split_seed).permutation(total)
    shares = np.array_split(order[:used], problem.parties)
    test = order[used : used + held]
    positive = float((data.y[test] > 0).mean())
    stand_in = data.source if any(word in data.source for word in _NOT_THE_ORIGINAL) else None
    rows = compact(data.X)
    return Problem(
        members=tuple((rows[share], data.y[share][:, None]) for share in shares),
        test_rows=rows[test],
        test_codes=(data.y[test] > 0).astype(np.int64),
        names=tuple(f"party {number}" for number in range(problem.parties)),
        facts={
            "dataset": data.name,
            "source": data.source,
            "stand_in": stand_in,
            "checksum": data.checksum,
            "notes": data.notes,
            "rows": [len(share) for share in shares],
            "features": data.X.shape[1],
            "test_rows": held,
            "majority_of_test_rows": max(positive, 1 - positive),
        },
        # Of the named sets, this one alone has a constant.
        least_constant=adult_schema().least_constant if problem.dataset == "adult" else None,
    )


@final
@dataclass(frozen=True)
class FileProblem(ProblemSource):
    """The rows of a run configuration, and a file of public rows for testing.

    Attributes
    ----------
    config
        The configuration; only its ``[data]`` and ``[[party]]`` tables matter.
    evaluation
        A file with the same columns and public rows.
    checksum
        The hash of all these files: other rows are another problem.
    """

    config: str
    evaluation: str
    checksum: str

    @classmethod
    def of(cls, config: Path, evaluation: Path) -> FileProblem:
        """Describe the files; refuse early, before a row is read."""
        told = load_config(config)
        schema = prepare(told)
        check_columns(evaluation, schema.without_party())
        digest = hashlib.sha256()
        for file in [*_inputs(told), evaluation]:
            with file.open("rb") as content:
                digest.update(hashlib.file_digest(content, "sha256").digest())
        return cls(str(config.resolve()), str(evaluation.resolve()), digest.hexdigest())

    def load(self) -> Problem:
        """Encode the rows by the public schema."""
        return _read(self)


def _inputs(config: RunConfig) -> list[Path]:
    elsewhere = [party.name for party in config.party if party.scheduler is not None]
    if elsewhere:
        raise ParameterError(
            f"scheduler of party {elsewhere[0]!r} must be left out here: a comparison keeps all "
            "rows in memory. Compare on a sample in a separate file."
        )
    return [config.data.schema_file, *config.files]


@lru_cache(maxsize=2)
def _read(problem: FileProblem) -> Problem:
    config = load_config(problem.config)
    schema = prepare(config)
    with tempfile.TemporaryDirectory(prefix="dpadmm-") as folder:
        with ExitStack() as stack:
            parties = read_parties(config, schema, Path(folder), {}, stack)
        test = encode_party(Path(problem.evaluation), schema.without_party(), Path(folder))
    if not len(test.labels):
        raise ParameterError(
            f"the file of public rows must have at least one row; {problem.evaluation} has none."
        )
    return Problem(
        members=tuple(
            (party.rows, label_signs(party.labels, schema.outputs))
            for party in parties.values()
            if isinstance(party, PartyRows)
        ),
        test_rows=test.rows,
        test_codes=np.asarray(test.labels, dtype=np.int64),
        names=tuple(parties),
        facts={
            "dataset": Path(problem.config).name,
            "source": "the files of the configuration",
            "stand_in": None,
            "checksum": problem.checksum,
            "rows": [len(party) for party in parties.values()],
            "test_rows": len(test.labels),
        },
        least_constant=schema.least_constant,
    )
