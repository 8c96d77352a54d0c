"""The user's own files as a problem, judged by rows that were declared public."""

from __future__ import annotations

import hashlib
import tempfile
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import final

import numpy as np

from dpadmm.arrays import label_signs
from dpadmm.config import RunConfig, load_config
from dpadmm.datasets.files import check_columns
from dpadmm.datasets.party_rows import encode_party
from dpadmm.errors import ParameterError
from dpadmm.experiments.problems import Problem, ProblemSource
from dpadmm.runs import prepare, read_parties
from dpadmm.schema import Schema

__all__ = ["FileProblem"]


@final
@dataclass(frozen=True)
class FileProblem(ProblemSource):
    """What a run configuration reads, and a file of public rows to judge by.

    Attributes
    ----------
    config
        The configuration; its ``[data]`` and ``[[party]]`` tables count.
    evaluation
        A file of the same columns whose rows are public.
    checksum
        Of all these files: other rows are another problem.
    """

    config: str
    evaluation: str
    checksum: str

    @classmethod
    def of(cls, config: Path, evaluation: Path) -> FileProblem:
        """Describe the files, and refuse what can be refused before a row is read."""
        told = load_config(config)
        schema = prepare(told)
        check_columns(evaluation, _without_party(schema), delimiter=told.data.delimiter)
        digest = hashlib.sha256()
        for file in [*_inputs(told), evaluation]:
            with file.open("rb") as content:
                digest.update(hashlib.file_digest(content, "sha256").digest())
        return cls(str(config.resolve()), str(evaluation.resolve()), digest.hexdigest())

    def load(self) -> Problem:
        """Encode the rows by the public schema."""
        return _read(self)


def _inputs(config: RunConfig) -> list[Path]:
    data = [config.data.file] if config.data.file else [party.file for party in config.party]
    return [config.data.schema_file, *data]


def _without_party(schema: Schema) -> Schema:
    """The schema for rows that belong to nobody."""
    if schema.party is None:
        return schema
    ignore = (*schema.ignore, schema.party)
    return Schema.from_dict(schema.model_dump() | {"party": None, "ignore": ignore})


@lru_cache(maxsize=2)
def _read(problem: FileProblem) -> Problem:
    config = load_config(problem.config)
    schema = prepare(config)
    with tempfile.TemporaryDirectory(prefix="dpadmm-") as folder:
        parties = read_parties(config, schema, Path(folder), {})
        test = encode_party(
            Path(problem.evaluation),
            _without_party(schema),
            Path(folder),
            delimiter=config.data.delimiter,
        )
    outputs = 1 if len(schema.classes) == 2 else len(schema.classes)
    if not len(test.labels):
        raise ParameterError(
            f"the file of public rows must have at least one row; {problem.evaluation} has none."
        )
    return Problem(
        members=tuple(
            (party.rows, label_signs(party.labels, outputs)) for party in parties.values()
        ),
        test_rows=test.rows,
        test_codes=np.asarray(test.labels, dtype=np.int64),
        names=tuple(parties),
        facts={
            "dataset": Path(problem.config).name,
            "source": "the files of the configuration",
            "stand_in": None,
            "checksum": problem.checksum,
            "rows": [len(party.labels) for party in parties.values()],
            "test_rows": len(test.labels),
        },
    )
