"""The model file: a classifier, what its columns mean, and what its privacy rests on.

One file. ``model.json`` in it has:

``format``, ``created``, ``dpadmm``
    Version of the layout, time, version of the package.
``parameters``
    What :class:`~dpadmm.estimators.ADMMClassifier` was asked for.
``privacy``
    The statement, with each party's epsilon after each round.
``schema``, ``schema_sha256``
    How a row is encoded; null for a model fitted on arrays.
``provenance``
    For a run from a configuration: its hash, the parties and their public row counts.
``classes``, ``parties``, ``feature_names``, ``arrays``
    In words, and the shapes of the arrays.
``columns``
    How many columns rows have before the estimator's feature map; left out without one.
``quality``
    Where it was evaluated: the histogram that was released, and what it cost.

The arrays are ``coef``, ``intercept``, ``node_coef``, ``node_intercept``, ``classes``, ``parties``
and the two of the history. Weights are for the columns as they were given. In files of format 1
they are for rows divided by ``data_norm``, which is the same where that is 1, as it is with a
schema: such models are still written so, and others as format 2.

**Sealed.** A file of one JSON document and some arrays, in which a single changed byte shows.

It is a zip file without compression: ``model.json`` and one ``.npy`` member per array (numbers in
little-endian order, or text). The comment at its end is ``dpadmm-model/<version> sha256:<digest>``
with the sha256 of every byte before the digest. Nothing in it is ever executed: there is no pickle.

The digest finds damage. It does not prove who made the file.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import re
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dpadmm.data.encode import assemble
from dpadmm.data.feature_maps import asked_map
from dpadmm.data.schema import Schema
from dpadmm.data.tables import encoded_batches
from dpadmm.data.values import is_table
from dpadmm.durable import FileRefusal, parse_json, read_regular, write_whole
from dpadmm.plain import Array, canonical_json, json_data
from dpadmm.privacy.statement import PrivacyStatement
from dpadmm.problem.site import Topology
from dpadmm.run.classifier import HISTORY, Classifier, Quality
from dpadmm.version import __version__

if TYPE_CHECKING:
    from dpadmm.estimators import ADMMClassifier


MODEL_VERSION: Final = 1
"""Version of the layout."""
COLUMNS_VERSION: Final = 2
"""Version of the layout where weights are for columns as given, before ``data_norm`` divides."""
_VERSIONS: Final = (MODEL_VERSION, COLUMNS_VERSION)

DOCUMENT: Final = "model.json"
DIGEST_LENGTH: Final = 64
COMMENT: Final = re.compile(rb"dpadmm-model/(\d{1,9}) sha256:[0-9a-f]{64}\Z")
LARGEST_COMMENT: Final = 128
# A fixed time keeps the bytes a function of the content; zip knows none before 1980.
TIME: Final = (1980, 1, 1, 0, 0, 0)
_KINDS: Final = "biufU"
MOST_EMPTY_TEXTS: Final = 1_000_000


class ModelError(ValueError):
    """A model that cannot be saved or loaded, in one sentence."""


def pack(
    document: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], version: int = MODEL_VERSION
) -> bytes:
    """Put a document and arrays together."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as file:
        text = json.dumps(document, indent=1, allow_nan=False)
        file.writestr(zipfile.ZipInfo(DOCUMENT, TIME), text)
        for name, array in arrays.items():
            file.writestr(zipfile.ZipInfo(f"{name}.npy", TIME), _array_bytes(array))
        file.comment = f"dpadmm-model/{version} sha256:{'0' * DIGEST_LENGTH}".encode()
    covered = buffer.getvalue()[:-DIGEST_LENGTH]
    return covered + hashlib.sha256(covered).hexdigest().encode()


def unpack(data: bytes, where: str) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Take apart what :func:`pack` made; `where` is how a refusal calls it.

    Raises
    ------
    ModelError
        If it is something else, of another version, or has a changed byte.
    """
    comment = COMMENT.search(data[-LARGEST_COMMENT:])
    if comment is None:
        raise ModelError(
            f"model must be a whole file that dpadmm wrote; got {where}, which is none or damaged"
        )
    version = int(comment[1])
    if version not in _VERSIONS:
        raise ModelError(
            f"model must be of format version {' or '.join(map(str, _VERSIONS))}; {where} is of "
            f"version {version}: use the dpadmm that wrote it"
        )
    damaged = ModelError(f"model must be as it was written; {where} is damaged: get it again")
    covered, digest = data[:-DIGEST_LENGTH], data[-DIGEST_LENGTH:]
    if hashlib.sha256(covered).hexdigest().encode() != digest:
        raise damaged
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as file:
            _check_members(file, len(data))
            document = parse_json(file.read(DOCUMENT))
            names = [name for name in file.namelist() if name != DOCUMENT]
            arrays = {name.removesuffix(".npy"): _array(file.read(name)) for name in names}
    except Exception:  # whatever the parsers of zip files, JSON and arrays raise
        raise damaged from None
    if not isinstance(document, dict):
        raise damaged
    return document, arrays


def _check_members(file: zipfile.ZipFile, size: int) -> None:
    """Refuse members that would take more memory than the file has bytes."""
    members = file.infolist()
    stored = all(item.compress_type == zipfile.ZIP_STORED for item in members)
    if not stored or sum(item.file_size for item in members) > size:
        raise ValueError("not an archive that was written here")


def _array_bytes(array: NDArray[Any]) -> bytes:
    buffer = io.BytesIO()
    little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    np.lib.format.write_array(buffer, little.reshape(array.shape), (1, 0), allow_pickle=False)
    return buffer.getvalue()


def _array(data: bytes) -> NDArray[Any]:
    """Read an array whose header must agree with its length, so that none asks for memory."""
    stream = io.BytesIO(data)
    if np.lib.format.read_magic(stream) != (1, 0):
        raise ValueError("another version of the array format")
    shape, fortran, dtype = np.lib.format.read_array_header_1_0(stream)
    body = data[stream.tell() :]
    if fortran or dtype.kind not in _KINDS or math.prod(shape) * dtype.itemsize != len(body):
        raise ValueError("not an array that was written here")
    if not dtype.itemsize and math.prod(shape) > MOST_EMPTY_TEXTS:
        raise ValueError("texts without letters that take memory")
    # A copy: what is read from bytes cannot be written to. Text without letters has no items.
    flat = np.frombuffer(body, dtype) if dtype.itemsize else np.zeros(math.prod(shape), dtype)
    return flat.reshape(shape).astype(dtype.newbyteorder("="))


WEIGHTS: Final = ("coef", "intercept", "node_coef", "node_intercept")
#: Bytes of the longest model file that is read.
LARGEST: Final = 1 << 30


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


@dataclass(frozen=True, eq=False)
class Model:
    """A trained classifier and where it comes from.

    Attributes
    ----------
    classifier
        What was released, and what may be said about it.
    estimator_parameters
        The parameters given to the estimator; None stands for a ``RandomState``.
    schema
        How a row of a file is encoded; None for a model fitted on arrays.
    provenance
        Public facts about the run.
    feature_names
        Names of the columns the estimator was fitted with, if it was given any.
    columns
        How many columns rows have before the estimator's feature map; None without one.
    created, version
        When, and by which version of the package.
    """

    classifier: Classifier
    estimator_parameters: dict[str, Any]
    schema: Schema | None = field(default=None, repr=False)
    provenance: dict[str, Any] = field(default_factory=dict)
    feature_names: tuple[str, ...] | None = None
    columns: int | None = None
    created: str = field(default_factory=_now)
    version: str = __version__

    @classmethod
    def from_estimator(
        cls,
        estimator: ADMMClassifier,
        *,
        schema: Schema | None = None,
        provenance: Mapping[str, Any] | None = None,
    ) -> Model:
        """Take what the file keeps from a fitted estimator."""
        from sklearn.utils.validation import check_is_fitted

        check_is_fitted(estimator)
        names = getattr(estimator, "feature_names_in_", None)
        # What "auto" chose: another version may choose otherwise.
        asked = estimator.get_params()
        asked |= {name: getattr(estimator, f"{name}_") for name in ("algorithm", "rounds", "loss")}
        maps = [name for name in ("fourier", "polynomial") if asked[name] is not None]
        for name in {"fourier", "polynomial"}.difference(maps):
            # As before there was such a parameter, to the byte.
            del asked[name]
        # One fact, one place: as releases have it that knew them as options only.
        own = {name: asked.pop(name) for name in ("noise", "colluders")}
        given = {name: value for name, value in own.items() if value is not None}
        if given:
            # Of all that plans a run, this alone; whoever only predicts does without it.
            from dpadmm.run.plan import joined_options

            asked["algorithm_options"] = joined_options(asked["algorithm_options"] or {}, given)
        return cls(
            Classifier.of_estimator(estimator),
            asked,
            columns=int(estimator.n_features_in_) if maps else None,
            feature_names=None if names is None else tuple(names),
            schema=schema,
            provenance=dict(provenance or {}),
        )

    @property
    def privacy(self) -> PrivacyStatement:
        """What may be said about it."""
        return self.classifier.privacy

    @property
    def fingerprint(self) -> str:
        """The sha256 of what decides the scores of rows: equal wherever the model is the same.

        It covers the classes, how rows are encoded, and every bit of the weights; neither who
        trained it when, nor how a party's own file is written, nor what was evaluated of it.
        """
        maps = {name: self.estimator_parameters.get(name) for name in ("fourier", "polynomial")}
        content = {
            "format": "dpadmm-fingerprint/1",
            "classes": [str(name) for name in self.classifier.classes],
            "schema_sha256": None if self.schema is None else self.schema.sha256,
            "maps": None if self.schema is not None else json_data(maps),
            "shape": list(self.classifier.coef.shape),
        }
        found = hashlib.sha256(canonical_json(content, allow_nan=True, default=str).encode("ascii"))
        for weights in (self.classifier.coef, self.classifier.intercept):
            found.update(np.ascontiguousarray(weights, dtype="<f8").tobytes())
        return found.hexdigest()

    def to_estimator(self) -> ADMMClassifier:
        """Make a fitted estimator: it predicts what the saved one did, bit for bit.

        For a model with a schema the estimator takes encoded rows (:meth:`rows`).
        """
        from dpadmm.estimators import ADMMClassifier

        estimator = ADMMClassifier(**self.estimator_parameters)
        self.classifier.give_to(estimator)
        estimator.n_features_in_ = self.columns or self.classifier.coef.shape[1]
        if self.feature_names is not None:
            estimator.feature_names_in_ = np.array(self.feature_names, dtype=object)
        return estimator

    def predict(self, X: Any) -> NDArray[Any]:
        """Class labels of rows, as :meth:`rows` takes them."""
        return self.to_estimator().predict(self.rows(X))

    def predict_proba(self, X: Any) -> Array:
        """Class probabilities of rows, as :meth:`rows` takes them, where the model has them."""
        return self.to_estimator().predict_proba(self.rows(X))

    def decision_function(self, X: Any) -> Array:
        """Scores of rows, as :meth:`rows` takes them."""
        return self.to_estimator().decision_function(self.rows(X))

    def rows(self, X: Any) -> Any:
        """What the estimator takes: a table encoded by the schema, and arrays as they are.

        Parameters
        ----------
        X
            With a schema a table with its columns, as ``dpadmm predict`` reads it: a pandas or
            polars frame, an Arrow table, or the path of a CSV or Parquet file. It needs no label
            column and may have others. An array or sparse matrix has encoded columns already.
        """
        if self.schema is None:
            if isinstance(X, str | Path | pa.Table | pa.RecordBatch):
                raise ModelError(
                    "model must have a schema to read tables by; this one was fitted on arrays: "
                    "give it an array or a frame of numbers"
                )
            return X
        if not isinstance(X, str | Path) and not is_table(X):
            return X
        schema = self.schema.without_party()
        batches = encoded_batches(X, schema, require_label=False, only_known=False)
        return assemble(batches, schema).rows


def save_model(
    path: str | Path,
    model: Model | ADMMClassifier,
    *,
    schema: Schema | None = None,
    provenance: Mapping[str, Any] | None = None,
) -> None:
    """Write a model file: complete and durable, or not at all.

    Parameters
    ----------
    path
        The file; it replaces one that is there.
    model
        A :class:`Model`, or a fitted estimator.
    schema, provenance
        With an estimator: how its rows were encoded, and public facts about the run.
    """
    if not isinstance(model, Model):
        model = Model.from_estimator(model, schema=schema, provenance=provenance)
    write_whole(Path(path), model_bytes(model), "model")


def model_bytes(model: Model) -> bytes:
    """Return the bytes of a model file."""
    fitted, schema = model.classifier, model.schema
    names = {"classes": _texts(fitted.classes), "parties": _texts(fitted.parties)}
    arrays = {
        **{name: getattr(fitted, name) for name in WEIGHTS},
        **names,
        **{f"history.{name}": fitted.history[name] for name in HISTORY},
    }
    version = MODEL_VERSION if _data_norm(model.estimator_parameters) == 1.0 else COLUMNS_VERSION
    document = {
        "format": version,
        "created": model.created,
        "dpadmm": model.version,
        "parameters": {
            name: _tagged(value, name) for name, value in model.estimator_parameters.items()
        },
        "penalty": fitted.penalty,
        "privacy": json_data(fitted.privacy.to_dict() | {"rounds": fitted.privacy.rounds}),
        "schema": None if schema is None else schema.model_dump(mode="json"),
        "schema_sha256": None if schema is None else schema.sha256,
        "provenance": json_data(model.provenance),
        "classes": [str(name) for name in fitted.classes],
        "parties": [str(name) for name in fitted.parties],
        "objects": [name for name in names if getattr(fitted, name).dtype == object],
        "feature_names": model.feature_names,
        "arrays": {name: array.shape for name, array in arrays.items()},
    }
    if model.columns is not None:
        document["columns"] = model.columns
    if fitted.quality is not None:
        document["quality"] = fitted.quality.to_dict()
    return pack(document, arrays, version)


def _data_norm(parameters: Mapping[str, Any]) -> float:
    return float(parameters.get("data_norm", 1.0))


def load_model(path: str | Path) -> Model:
    """Read a model file.

    Raises
    ------
    ModelError
        If it cannot be read, is of another version, or has a changed byte.
    """
    try:
        data = read_regular(path, largest=LARGEST)
    except FileRefusal as error:
        raise ModelError(f"model must be a readable file; got {path}: {error}") from None
    document, arrays = unpack(data, str(path))
    try:
        for name in document["objects"]:
            arrays[name] = arrays[name].astype(object)
        schema, names = document["schema"], document["feature_names"]
        parameters = {name: _untagged(value) for name, value in document["parameters"].items()}
        if document["format"] == MODEL_VERSION:
            for name in ("coef", "node_coef"):
                arrays[name] = arrays[name] / _data_norm(parameters)
        _check_arrays(arrays)
        quality = document.get("quality")
        classifier = Classifier(
            **{name: arrays[name] for name in (*WEIGHTS, "classes", "parties")},
            history={name: arrays[f"history.{name}"] for name in HISTORY},
            penalty=float(document["penalty"]),
            privacy=PrivacyStatement.from_dict(document["privacy"]),
            quality=None if quality is None else Quality.from_dict(quality),
        )
        return Model(
            classifier,
            _accepted(parameters),
            feature_names=None if names is None else tuple(names),
            columns=_columns(document, parameters, arrays["coef"]),
            schema=None if schema is None else Schema.from_dict(schema),
            provenance=dict(document["provenance"]),
            created=str(document["created"]),
            version=str(document["dpadmm"]),
        )
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError):
        # The bytes are as they were written: something else wrote them.
        raise ModelError(
            f"model must be written by dpadmm {__version__} or one that agrees with it; {path} "
            "lacks something: use the dpadmm that wrote it"
        ) from None


def _accepted(parameters: dict[str, Any]) -> dict[str, Any]:
    """The saved parameters, if the estimator knows them; new ones keep their defaults."""
    from dpadmm.estimators import ADMMClassifier

    ADMMClassifier(**parameters)
    return parameters


def _columns(
    document: Mapping[str, Any], parameters: Mapping[str, Any], coef: NDArray[Any]
) -> int | None:
    """Columns before the feature map, which must fit the weights; None without one."""
    maps = (parameters.get("fourier"), parameters.get("polynomial"))
    if maps == (None, None):
        return None
    columns = int(document["columns"])
    told = asked_map(*maps, columns) if columns >= 1 else None
    if told is None or coef.shape[1] != told.outputs:
        raise ValueError("columns")
    return columns


def _check_arrays(arrays: Mapping[str, NDArray[Any]]) -> None:
    """Refuse arrays that do not belong together, or that would predict nonsense."""
    coef, intercept, classes = arrays["coef"], arrays["intercept"], arrays["classes"]
    outputs = 1 if len(classes) == 2 else len(classes)
    nodes = (len(arrays["parties"]), *coef.shape)
    shapes = {
        "coef": (outputs, coef.shape[-1]),
        "intercept": (outputs,),
        "node_coef": nodes,
        "node_intercept": nodes[:-1],
    }
    for name, shape in shapes.items():
        array = arrays[name]
        if array.shape != shape or array.dtype.kind != "f" or not np.isfinite(array).all():
            raise ValueError(name)
    if classes.ndim != 1 or len(classes) < 2 or intercept.ndim != 1:
        raise ValueError("classes")


def _texts(values: NDArray[Any]) -> NDArray[Any]:
    """Names as an array of plain numbers or text."""
    if values.dtype.kind in "biufU":
        return values
    if not all(isinstance(value, str) for value in values):
        raise ModelError(
            "classes and parties must be numbers or text to be saved; got "
            f"{sorted({type(value).__name__ for value in values})}"
        )
    texts = values.astype(str)
    if not (texts.astype(object) == values).all():
        raise ModelError("classes and parties must not end in a zero character to be saved")
    return texts


def _tagged(value: Any, name: str) -> Any:
    """A parameter as JSON, with a tag where JSON has no such type."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": repr(value)}
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, np.random.RandomState):
        return None
    if isinstance(value, Topology):
        return {"topology": [value.name, value.parties, [list(edge) for edge in value.edges]]}
    if isinstance(value, Mapping):
        return {"mapping": [[_tagged(k, name), _tagged(v, name)] for k, v in value.items()]}
    if isinstance(value, Iterable) and not isinstance(value, (bytes, bytearray)):
        kind = "tuple" if isinstance(value, tuple) else "list"
        return {kind: [_tagged(item, name) for item in value]}
    raise ModelError(f"{name} must be plain data to be saved; got {type(value).__name__}")


def _untagged(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    ((tag, content),) = value.items()
    if tag == "float":
        return float(content)
    if tag == "topology":
        name, parties, edges = content
        return Topology(name, parties, tuple((i, j) for i, j in edges))
    if tag == "mapping":
        return {_untagged(key): _untagged(item) for key, item in content}
    items = [_untagged(item) for item in content]
    return tuple(items) if tag == "tuple" else items
