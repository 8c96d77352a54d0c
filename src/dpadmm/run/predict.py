"""Predictions for the rows of a file, streamed: as many rows out as in, in the same order."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from dpadmm.data.encode import EncodedBatch, encode_batch, is_sparse
from dpadmm.data.schema import Schema
from dpadmm.data.tables import PARQUET_SUFFIXES, check_columns, own_words, read_batches
from dpadmm.data.values import Reading, cells_as_text, holds_text, valid_text
from dpadmm.durable import check_writable, written_whole
from dpadmm.errors import DataError, unknown_name
from dpadmm.problem.losses import get_loss
from dpadmm.run.model import Model, ModelError

if TYPE_CHECKING:
    from dpadmm.estimators import ADMMClassifier

OUTPUT_SUFFIXES: Final = (".csv", *PARQUET_SUFFIXES)
_PIECE_BYTES: Final = 2**24


def prediction_columns(model: Model, keep: str | None = None) -> list[str]:
    """Names of the columns written: one that is kept, the label, scores, probabilities.

    With two classes there is one ``score`` (above zero, or above the model's threshold: the second
    class) and its ``probability``, otherwise one of each per class. Probabilities are those that
    were fitted to a histogram; without them those of the logistic loss, which are not calibrated
    for noise.
    """
    kinds = ["score"]
    if offers_probabilities(model):
        kinds.append("probability")
    names = model.classifier.classes
    if len(names) > 2:
        kinds = [f"{kind} of {name}" for kind in kinds for name in names]
    columns = ["label", *kinds]
    if keep is None:
        return columns
    if keep in columns:
        raise DataError(
            "the column that is kept must have another name than those of predictions, "
            f"{', '.join(columns)}; got {keep!r}: rename it"
        )
    return [keep, *columns]


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
        schema = model.schema.without_party()
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
    keep: str | None = None,
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
    keep
        A column of the file to copy, such as one of identifiers: first, and text unless it holds
        whole numbers.
    """
    if model.schema is None:
        raise ModelError(
            "model must have a schema to read files by; this one was fitted on arrays: use "
            "load_model(...).predict(...)"
        )
    schema, columns = model.schema.without_party(), prediction_columns(model, keep)
    if party is not None:
        schema = schema.read_as(_reading_of(model, party))
    batches = read_batches(
        source,
        schema,
        delimiter=delimiter,
        require_label=False,
        only_known=False,
        also=[] if keep is None else [keep],
    )
    first = next(batches, None)
    types = [pa.string(), *[pa.float64()] * (len(columns) - 1)]
    if keep is not None:
        kept = pa.string() if first is None else _copied(first[0][keep]).type
        types = [kept, *types[:-1]]
    layout = pa.schema(list(zip(columns, types, strict=True)))
    estimator, count = model.to_estimator(), 0
    with _writer(output, layout) as writer:
        for batch, _ in batches if first is None else chain([first], batches):
            with own_words(source):
                encoded = encode_batch(batch, schema)
            copied = None if keep is None else _copied(batch[keep])
            start = 0
            for rows in encoded_pieces(encoded, schema):
                stop = start + rows.shape[0]
                beside = [] if copied is None else [copied[start:stop]]
                writer.write_table(_predicted(estimator, rows, layout, beside))
                start = stop
            count += encoded.counts.rows
    return count


def _reading_of(model: Model, party: str) -> Reading:
    """The format of one party's file in the model's run."""
    # Configurations are loaded where a party is named, and nowhere else.
    from dpadmm.run.config import validated

    config = model.provenance.get("config")
    parties = config.get("party") if isinstance(config, dict) else None
    told = {str(each.get("name")): each for each in parties or () if isinstance(each, dict)}
    if party not in told:
        raise unknown_name("party", party, told)
    content = {key: value for key, value in told[party].items() if key in Reading.model_fields}
    return validated(Reading, content, Path(), f"the model's party {party!r}")


def _copied(cells: pa.Array) -> pa.Array:
    """Cells as they are written again: whole numbers, and everything else as text."""
    if pa.types.is_dictionary(cells.type):
        cells = cells.dictionary_decode()
    if pa.types.is_integer(cells.type):
        return cells
    texts = valid_text(cells) if holds_text(cells.type) else cells_as_text(cells)
    return texts.cast(pa.string())


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


def _predicted(
    estimator: ADMMClassifier, rows: Any, layout: pa.Schema, beside: list[pa.Array]
) -> pa.Table:
    scores = np.atleast_2d(estimator.decision_function(rows).T)
    columns = [*beside, pa.array(estimator.predict(rows), pa.string()), *map(pa.array, scores)]
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
