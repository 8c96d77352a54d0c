"""Predictions for the rows of a file, streamed: as many rows out as in, in the same order."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from dpadmm.data.encode import EncodedBatch, is_sparse
from dpadmm.data.schema import Schema
from dpadmm.data.spelling import Reading
from dpadmm.data.tables import PARQUET_SUFFIXES, check_columns, encoded_batches
from dpadmm.durable import check_writable, written_whole
from dpadmm.errors import unknown_name
from dpadmm.estimators import ADMMClassifier
from dpadmm.problem.losses import get_loss
from dpadmm.run.config import validated
from dpadmm.run.model import Model
from dpadmm.run.sealed import ModelError
from dpadmm.sentences import DataError

__all__ = [
    "OUTPUT_SUFFIXES",
    "encoded_pieces",
    "has_labels",
    "offers_probabilities",
    "predict_file",
    "prediction_columns",
    "without_party",
]

OUTPUT_SUFFIXES: Final = (".csv", *PARQUET_SUFFIXES)
_PIECE_BYTES: Final = 2**24


def prediction_columns(model: Model) -> list[str]:
    """Names of the columns written: the label, then scores, then probabilities.

    With two classes there is one ``score`` (above zero, or above the model's threshold: the second
    class) and its ``probability``, otherwise one of each per class. Probabilities are those that
    were fitted to a histogram; without them those of the logistic loss, which are not calibrated
    for noise.
    """
    kinds = ["score"]
    if offers_probabilities(model):
        kinds.append("probability")
    if len(model.classifier.classes) == 2:
        return ["label", *kinds]
    return ["label", *(f"{kind} of {name}" for kind in kinds for name in model.classifier.classes)]


def offers_probabilities(model: Model) -> bool:
    """Whether a model has probabilities: fitted ones, or those of its loss."""
    quality = model.classifier.quality
    fitted = quality is not None and bool(quality.links)
    return fitted or get_loss(model.estimator_parameters["loss"]).probabilistic


def has_labels(model: Model, source: Path, *, delimiter: str | None = None) -> bool:
    """Whether a file has the column of labels; its header is looked at, and no row."""
    if model.schema is None:
        return False
    try:
        schema = without_party(model.schema)
        check_columns(source, schema, delimiter=delimiter, only_known=False)
    except DataError:
        return False
    return True


def predict_file(
    model: Model,
    source: Path,
    output: Path | BinaryIO,
    *,
    delimiter: str | None = None,
    party: str | None = None,
) -> int:
    """Predict the rows of a CSV or Parquet file; return how many there are.

    Parameters
    ----------
    model
        One with a schema.
    source
        The file. It needs no label column, and may have more than the schema names; a row with odd
        content is encoded as the schema says.
    output
        A ``.csv`` or ``.parquet`` file to make, complete or not at all; or a stream for CSV.
    delimiter
        Between the cells of a CSV file that is read.
    party
        Whose file it is: it is read as that party's rows were, by what the run was told.
    """
    if model.schema is None:
        raise ModelError(
            "model must have a schema to read files by; this one was fitted on arrays: use "
            "load_model(...).to_estimator().predict(...)"
        )
    schema = without_party(model.schema)
    if party is not None:
        schema = schema.read_as(_reading_of(model, party))
    check_columns(source, schema, delimiter=delimiter, require_label=False, only_known=False)
    types = [pa.string(), *[pa.float64()] * (len(prediction_columns(model)) - 1)]
    layout = pa.schema(list(zip(prediction_columns(model), types, strict=True)))
    estimator, count = model.to_estimator(), 0
    batches = encoded_batches(
        source, schema, delimiter=delimiter, require_label=False, only_known=False
    )
    with _writer(output, layout) as writer:
        for encoded in batches:
            for rows in encoded_pieces(encoded, schema):
                writer.write_table(_predicted(estimator, rows, layout))
            count += encoded.counts.rows
    return count


def _reading_of(model: Model, party: str) -> Reading:
    """How the file of one party of the model's run was written."""
    config = model.provenance.get("config")
    parties = config.get("party") if isinstance(config, dict) else None
    told = {str(each.get("name")): each for each in parties or () if isinstance(each, dict)}
    if party not in told:
        raise unknown_name("party", party, told)
    content = {key: value for key, value in told[party].items() if key in Reading.model_fields}
    return validated(Reading, content, Path(), f"the model's party {party!r}")


def without_party(schema: Schema) -> Schema:
    """Whose rows they are does not matter here: the column may be there or not."""
    ignore = schema.ignore if schema.party is None else (*schema.ignore, schema.party)
    return Schema.from_dict(schema.model_dump() | {"party": None, "ignore": ignore})


def encoded_pieces(batch: EncodedBatch, schema: Schema) -> Iterator[Any]:
    """The rows of a batch as arrays of bounded size."""
    rows, features = batch.counts.rows, len(schema.feature_names)
    if is_sparse(schema, 2**40):
        if rows:
            yield batch.to_sparse(features)
        return
    step = max(1, _PIECE_BYTES // (8 * features))
    for start in range(0, rows, step):
        dense = np.zeros((min(step, rows - start), features))
        batch.write_into(dense, start)
        yield dense


def _predicted(estimator: ADMMClassifier, rows: Any, layout: pa.Schema) -> pa.Table:
    scores = np.atleast_2d(estimator.decision_function(rows).T)
    columns = [pa.array(estimator.predict(rows), pa.string()), *map(pa.array, scores)]
    if len(layout) > len(columns):
        chances = estimator.predict_proba(rows)
        columns += map(pa.array, chances.T if len(scores) > 1 else chances[:, 1:].T)
    return pa.Table.from_arrays(columns, schema=layout)


@contextmanager
def _writer(output: Path | BinaryIO, layout: pa.Schema) -> Iterator[Any]:
    if not isinstance(output, Path):
        with pyarrow.csv.CSVWriter(output, layout) as writer:
            yield writer
        return
    if output.suffix.lower() not in OUTPUT_SUFFIXES:
        raise DataError(
            f"output must end in {', '.join(OUTPUT_SUFFIXES)}; got {output.name!r}: rename it"
        )
    check_writable(output, "output")
    parquet = output.suffix.lower() in PARQUET_SUFFIXES
    make = pyarrow.parquet.ParquetWriter if parquet else pyarrow.csv.CSVWriter
    # A line about each of the rows, which may be private.
    with written_whole(output, "output", private=True) as file, make(file, layout) as writer:
        yield writer
