r"""A model for other systems: an ONNX graph, a model card, an MLflow run.

**ONNX.** The preparation of rows and the model as one graph:

.. math:: \text{columns} \to \text{encoded row} \to \text{feature map} \to
          \frac{x}{\max(1, \|x\|)} \to x W^\top + b \to \text{label, score, probability}

Whoever runs the graph needs neither this package nor Python. With a schema every column of a file
is an input, ``(rows, 1)``: numbers as doubles, NaN where one is missing, and categories as texts.
Without a schema there is one input, ``X``. The outputs are those of ``dpadmm predict``.

Graphs compare texts letter by letter: spellings that a schema allows beside its levels (``trim``,
``ignore_case``) and blanks around a text are for ``dpadmm predict``; aliases are in the graph.

**Card.** Markdown: what the model is for, how good it is, what it cost and what that does not
cover. Everything in it is public: it comes from the model file alone.
"""

from __future__ import annotations

import json
import math
import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from dpadmm.data.feature_maps import FeatureMap, FourierFeatures, ProductFeatures
from dpadmm.data.schema import CategoricalColumn, NumericColumn, Schema
from dpadmm.data.values import twin
from dpadmm.errors import ParameterError
from dpadmm.plain import LONGEST_TEXT, visible
from dpadmm.run.classifier import Quality, shown_estimate
from dpadmm.run.model import Model, model_bytes
from dpadmm.run.predict import offers_probabilities

_OPSET: Final = 18
_ML_OPSET: Final = 3
# What a graph of that operator set is written as; newer runtimes read it as well.
_FORMAT: Final = 9
# What a card shows of anybody's file, at most: names in a list, letters of a statement's line.
_MOST_NAMES: Final = 50
_LONGEST_LINE: Final = 4000


class _Graph:
    """Nodes that are put one after the other; a name stands for what a node makes."""

    def __init__(self) -> None:
        try:
            import onnx
        except ImportError:
            raise ParameterError(
                "onnx must be installed to export a model; it is not. Use pip install "
                "'dpadmm[onnx]'."
            ) from None
        self.onnx, self.nodes, self.constants = onnx, list[Any](), list[Any]()
        self.inputs, self.outputs = list[Any](), list[Any]()

    def put(self, kind: str, *names: str, domain: str = "", **attributes: Any) -> str:
        """Add a node, and name what it makes."""
        made = f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(
            self.onnx.helper.make_node(kind, list(names), [made], domain=domain, **attributes)
        )
        return made

    def constant(self, values: Any) -> str:
        """Add a constant, and name it."""
        name = f"constant_{len(self.constants)}"
        array = np.asarray(values)
        if array.dtype.kind == "U":
            array = array.astype(object)
        self.constants.append(self.onnx.numpy_helper.from_array(array, name))
        return name

    def input(self, name: str, kind: str, width: int) -> str:
        """Declare an input with so many columns."""
        self.inputs.append(self._declared(name, kind, [None, width]))
        return name

    def output(self, made: str, name: str, kind: str, width: int | None) -> None:
        """Declare what is handed out."""
        self.nodes.append(self.onnx.helper.make_node("Identity", [made], [name]))
        shape = [None] if width is None else [None, width]
        self.outputs.append(self._declared(name, kind, shape))

    def _declared(self, name: str, kind: str, shape: Sequence[int | None]) -> Any:
        element = getattr(self.onnx.TensorProto, kind)
        return self.onnx.helper.make_tensor_value_info(name, element, shape)

    def file(self, notes: Mapping[str, str]) -> bytes:
        """The checked graph as the bytes of a file."""
        helper = self.onnx.helper
        graph = helper.make_graph(
            self.nodes, "dpadmm", self.inputs, self.outputs, initializer=self.constants
        )
        operators = [
            helper.make_opsetid("", _OPSET),
            helper.make_opsetid("ai.onnx.ml", _ML_OPSET),
        ]
        model = helper.make_model(
            graph, producer_name="dpadmm", opset_imports=operators, ir_version=_FORMAT
        )
        helper.set_model_props(model, dict(notes))
        self.onnx.checker.check_model(model, full_check=True)
        return bytes(model.SerializeToString())


def onnx_bytes(model: Model) -> bytes:
    """The bytes of an ``.onnx`` file; its metadata have the privacy statement and the provenance.

    Parameters
    ----------
    model
        A trained model.
    """
    graph, fitted = _Graph(), model.classifier
    estimator = model.to_estimator()
    if model.schema is None:
        columns = model.columns or fitted.coef.shape[1]
        rows = graph.input("X", "DOUBLE", columns)
        told = estimator._preparation.feature_map(columns)
        rows = rows if told is None else _mapped(graph, rows, told)
    else:
        rows = _encoded_rows(graph, model.schema)
    weights, offset = graph.constant(fitted.coef.T), graph.constant(fitted.intercept)
    scores = graph.put("Add", graph.put("MatMul", rows, weights), offset)
    margins = _margins(graph, rows, scores, estimator._preparation.scale)
    _put_label(graph, scores, margins, fitted.classes, fitted.quality)
    graph.output(scores, "score", "DOUBLE", len(fitted.coef))
    if offers_probabilities(model):
        chances = _chances(graph, margins, len(fitted.coef), fitted.quality)
        graph.output(chances, "probability", "DOUBLE", len(fitted.classes))
    notes = {
        "privacy": str(model.privacy),
        "privacy_json": json.dumps(model.privacy.to_dict()),
        "classes": json.dumps([str(name) for name in fitted.classes]),
        "dpadmm": model.version,
    }
    return graph.file(notes)


def _encoded_rows(graph: _Graph, schema: Schema) -> str:
    """Columns of a file as the row that weights act on (:mod:`dpadmm.data.encode`)."""
    numbers, indicators, categories = list[str](), list[str](), list[str]()
    for number in schema.numeric:
        value, missing = _number(graph, number, schema)
        numbers.append(value)
        indicators += [missing] * number.missing
    for category in schema.categorical:
        categories.append(_category(graph, category, schema))
    parts = [*numbers, *indicators, *categories]
    if schema.constant:
        # As many as there are rows: zero times any encoded column.
        zero, weight = graph.constant(np.zeros((1, 1))), graph.constant([[float(schema.constant)]])
        first = graph.put("Slice", parts[0], *map(graph.constant, ([0], [1], [1])))
        parts.append(graph.put("Add", graph.put("Mul", first, zero), weight))
    rows = graph.put("Concat", *parts, axis=1)
    if schema.feature_map is not None:
        rows = _mapped(graph, rows, schema.feature_map)
        if schema.fourier is not None:
            return rows
    return graph.put("Div", rows, _norms(graph, rows))


def _number(graph: _Graph, column: NumericColumn, schema: Schema) -> tuple[str, str]:
    """A numeric column between its ends, and whether it is missing, as doubles."""
    given = graph.input(column.name, "DOUBLE", 1)
    # The difference of a number and itself is 0 unless it is NaN or infinite.
    known = graph.put("Equal", graph.put("Sub", given, given), graph.constant(np.zeros((1, 1))))
    missing = graph.put("Not", known)
    for text in schema.all_missing_values:
        try:
            mark = float(text)
        except ValueError:
            continue
        if math.isfinite(mark):
            marked = graph.put("Equal", given, graph.constant(np.full((1, 1), mark)))
            missing = graph.put("Or", missing, marked)
    fill = graph.constant(np.full((1, 1), column.fill_value))
    value = graph.put("Where", missing, fill, given)
    limits = (graph.constant(np.float64(end)) for end in (column.lower, column.upper))
    value = graph.put("Clip", value, *limits)
    if column.transform is not None:
        value = graph.put("Log", graph.put("Add", value, graph.constant(np.ones((1, 1)))))
    (low, high), (lowest, highest) = column.bounds, column.ends
    share = graph.put("Sub", value, graph.constant([[low]]))
    share = graph.put("Div", share, graph.constant([[high - low]]))
    scaled = graph.put("Mul", share, graph.constant([[highest - lowest]]))
    shifted = graph.put("Add", scaled, graph.constant([[lowest]]))
    return shifted, graph.put("Cast", missing, to=graph.onnx.TensorProto.DOUBLE)


def _category(graph: _Graph, column: CategoricalColumn, schema: Schema) -> str:
    """A categorical column as one column per level, then missing, then other."""
    given, levels = graph.input(column.name, "STRING", 1), len(column.levels)
    width = levels + column.missing + column.other
    # What has no column of its own is in none of those that there are.
    places = {
        "missing": levels if column.missing else width,
        "other": levels + column.missing if column.other else width,
    }
    codes = dict.fromkeys(("", *schema.all_missing_values), places["missing"])
    known = {level: code for code, level in enumerate(column.levels)}
    codes |= {alias: known[meant] for alias, meant in column.aliases}
    codes |= {twin(level): code for level, code in known.items()} | known
    found = graph.put(
        "LabelEncoder",
        given,
        domain="ai.onnx.ml",
        keys_strings=list(codes),
        values_int64s=list(codes.values()),
        default_int64=places["other"],
    )
    chosen = graph.put("Equal", found, graph.constant(np.arange(width)[None]))
    return graph.put("Cast", chosen, to=graph.onnx.TensorProto.DOUBLE)


def _mapped(graph: _Graph, rows: str, told: FeatureMap) -> str:
    """What a feature map makes of rows."""
    if isinstance(told, FourierFeatures):
        angles = graph.put("MatMul", rows, graph.constant(told.frequencies))
        weight = graph.constant(np.full((1, 1), 1 / math.sqrt(told.outputs // 2)))
        # Cosines as sines, which runtimes have in double precision.
        quarter = graph.constant(np.full((1, 1), math.pi / 2))
        waves = [graph.put("Sin", graph.put("Add", angles, quarter)), graph.put("Sin", angles)]
        return graph.put("Mul", graph.put("Concat", *waves, axis=1), weight)
    assert isinstance(told, ProductFeatures)
    first, second = (
        graph.put("Gather", rows, graph.constant(numbers.astype(np.int64)), axis=1)
        for numbers in told.pairs
    )
    products = graph.put("Mul", first, second)
    cut = graph.constant([told.columns])
    columns = graph.put("Slice", rows, graph.constant([0]), cut, graph.constant([1]))
    rest = graph.put("Slice", rows, cut, graph.constant([2**31]), graph.constant([1]))
    return graph.put("Concat", columns, products, rest, axis=1)


def _norms(graph: _Graph, rows: str, also: float = 0.0) -> str:
    """What to divide rows by to bring them to norm 1; ``also`` is a square to add."""
    squares = graph.put(
        "ReduceSum", graph.put("Mul", rows, rows), graph.constant(np.array([1])), keepdims=1
    )
    one, added = graph.constant(np.ones((1, 1))), graph.constant(np.full((1, 1), also))
    return graph.put("Sqrt", graph.put("Max", graph.put("Add", squares, added), one))


def _margins(graph: _Graph, rows: str, scores: str, scale: Mapping[str, Any]) -> str:
    """Scores of rows scaled down to norm 1 (:func:`~dpadmm.problem.rows.scaled_margins`)."""
    appended = scale["intercept_scale"]
    divided = graph.put("Div", rows, graph.constant(np.full((1, 1), float(scale["data_norm"]))))
    also = 0.0 if appended is None else float(appended) ** 2
    return graph.put("Div", scores, _norms(graph, divided, also))


def _put_label(
    graph: _Graph, scores: str, margins: str, classes: Any, quality: Quality | None
) -> None:
    """The label, by the largest score, or by what is above the threshold."""
    if len(classes) == 2:
        threshold = 0.0 if quality is None else quality.threshold
        judged = scores if threshold == 0.0 else margins
        above = graph.put("Greater", judged, graph.constant(np.full((1, 1), threshold)))
        found = graph.put("Cast", above, to=graph.onnx.TensorProto.INT64)
        codes = graph.put("Reshape", found, graph.constant(np.array([-1])))
    else:
        codes = graph.put("ArgMax", scores, axis=1, keepdims=0)
    names = np.asarray(classes)
    whole = names.dtype.kind in "iu"
    names = names.astype(np.int64) if whole else np.array([str(name) for name in names])
    label = graph.put("Gather", graph.constant(names), codes)
    graph.output(label, "label", "INT64" if whole else "STRING", None)


def _chances(graph: _Graph, margins: str, outputs: int, quality: Quality | None) -> str:
    """Probabilities of the classes, as ``predict_proba`` has them."""
    links = () if quality is None else quality.links
    if links:
        slopes = graph.constant([[link.slope for link in links]])
        offsets = graph.constant([[link.offset for link in links]])
        if outputs > 1:
            margins = _above_the_others(graph, margins, outputs)
        margins = graph.put("Add", graph.put("Mul", margins, slopes), offsets)
    chances = graph.put("Sigmoid", margins)
    if outputs == 1:
        others = graph.put("Sub", graph.constant(np.ones((1, 1))), chances)
        return graph.put("Concat", others, chances, axis=1)
    total = graph.put("ReduceSum", chances, graph.constant(np.array([1])), keepdims=1)
    nothing = graph.put("Not", graph.put("Greater", total, graph.constant(np.zeros((1, 1)))))
    one = graph.constant(np.ones((1, 1)))
    shares = graph.put("Div", chances, graph.put("Where", nothing, one, total))
    return graph.put("Where", nothing, graph.constant(np.full((1, outputs), 1 / outputs)), shares)


def _above_the_others(graph: _Graph, margins: str, outputs: int) -> str:
    """By how much each exceeds the largest of the others."""
    along, largest = graph.constant(np.array([1])), list[str]()
    for output in range(outputs):
        others = graph.constant(np.delete(np.arange(outputs), output))
        found = graph.put("Gather", margins, others, axis=1)
        largest.append(graph.put("ReduceMax", found, along, keepdims=1))
    return graph.put("Sub", margins, graph.put("Concat", *largest, axis=1))


def model_card(model: Model, name: str = "model") -> str:
    """The model card: Markdown with the privacy statement.

    Parameters
    ----------
    model
        A trained model.
    name
        What the card calls it.
    """
    fitted, come_from = model.classifier, model.provenance
    rows, quality = come_from.get("rows"), fitted.quality
    facts = [
        ("Classes", _listed(fitted.classes.tolist())),
        ("Columns", _columns_of(model)),
        ("Trained by", f"{len(fitted.parties)} parties: {_listed(fitted.parties.tolist())}"),
    ]
    # The file may be anybody's.
    if isinstance(rows, dict) and all(isinstance(count, int) for count in rows.values()):
        facts.append(("Rows, all parties", f"{sum(rows.values()):,}"))
    facts += [
        (
            "Algorithm",
            markdown_text(f"{model.privacy.algorithm}, {len(fitted.history['change'])} rounds"),
        ),
        ("Made", markdown_text(f"{model.created} by dpadmm {model.version}")),
    ]
    if "run_sha256" in come_from:
        facts.append(("Run", markdown_text(come_from["run_sha256"])))
    parts = [
        f"# {markdown_text(name)}",
        "A linear classifier that organisations trained together without sharing rows, by dpadmm.",
        markdown_table(("", ""), facts),
        "## How good it is",
    ]
    if quality is None:
        parts.append(
            "Not known: no evaluation was released. `dpadmm evaluate` releases one, on public rows "
            "at no cost, or on private rows within their owners' budgets."
        )
    else:
        figures = [(each.name, shown_estimate(each)) for each in quality.evaluation().estimates]
        parts += [
            f"On {quality.histogram.rows:,} {markdown_text(quality.about)} rows, each with a 95% "
            "interval:",
            markdown_table(("figure", "estimate"), figures),
        ]
    parts += [
        "## Privacy",
        markdown_table(("", ""), [map(_line, told) for told in model.privacy.lines()]),
        "## Use",
        "`dpadmm predict MODEL rows.csv` predicts the rows of a file. Scores above zero, or above "
        "the model's threshold, mean the second of two classes. Probabilities that were not fitted "
        "to an evaluation are not calibrated for noise.",
    ]
    return "\n\n".join(parts) + "\n"


def _columns_of(model: Model) -> str:
    if model.schema is None:
        return f"{model.columns or model.classifier.coef.shape[1]} numbers"
    return _listed([column.name for column in model.schema.columns])


def _listed(names: Sequence[object]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(map(markdown_text, names[:_MOST_NAMES])) + more


def _line(text: str) -> str:
    return markdown_text(text, longest=_LONGEST_LINE)


def markdown_text(text: object, *, longest: int = LONGEST_TEXT) -> str:
    """Text from anybody, without markup."""
    return re.sub(r"[\\`*_<>\[\]#&~$!]", r"\\\g<0>", visible(str(text), longest=longest))


def markdown_table(heads: Sequence[str], lines: Iterable[Iterable[str]]) -> str:
    """A table in Markdown; no cell ends early."""
    told = [heads, ["---"] * len(heads)]
    told += [[cell.replace("|", "&#124;") for cell in line] for line in lines]
    return "\n".join(f"| {' | '.join(line)} |" for line in told)


def log_to_mlflow(model: Model, name: str = "model") -> None:
    """Log parameters, figures, statement, card and model file to the active MLflow run.

    Parameters
    ----------
    model
        A trained model.
    name
        What files and card are called.
    """
    try:
        import mlflow
    except ImportError:
        raise ParameterError(
            "mlflow must be installed to log a model; it is not. Use pip install 'dpadmm[mlflow]'."
        ) from None
    told = {key: str(value) for key, value in model.estimator_parameters.items()}
    mlflow.log_params(told)
    figures = {"delta": model.privacy.delta}
    if model.privacy.private:
        figures["epsilon"] = model.privacy.epsilon
    if (quality := model.classifier.quality) is not None:
        for each in quality.evaluation().estimates:
            if each.value is not None:
                ends = {"": each.share, " low": each.low, " high": each.high}
                figures |= {f"{each.name}{end}": value for end, value in ends.items()}
    mlflow.log_metrics(figures)
    mlflow.log_dict(model.privacy.to_dict(), "privacy.json")
    mlflow.log_text(str(model.privacy), "privacy.txt")
    mlflow.log_text(model_card(model, name), "model-card.md")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{name}.model"
        path.write_bytes(model_bytes(model))
        mlflow.log_artifact(str(path))
