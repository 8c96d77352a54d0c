"""Columns of a formula such as ``y ~ age + C(ward)``, by formulaic, from public facts alone."""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from dpadmm.errors import ParameterError

# Functions of numbers that know nothing of other rows, alone or of numpy.
_ROW_BY_ROW: Final = frozenset(
    (
        *("abs", "sqrt", "square", "exp", "expm1", "exp2", "exp10", "log", "log1p", "log2"),
        *("log10", "sin", "cos", "tanh", "minimum", "maximum", "floor", "ceil", "sign"),
    )
)
_OPERATORS: Final = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow)


def formula_columns(
    formula: str, data: Any, levels: Mapping[Any, Sequence[Any]]
) -> tuple[Any, Any]:
    """The columns and the response of a formula, as frames without a constant.

    Levels are those of ``levels`` or of categorical columns that declare theirs: a formula that
    would look them up in the rows, or learn anything else from them, is refused.

    Parameters
    ----------
    formula
        With the response on its left.
    data
        A pandas frame.
    levels
        Public levels of its columns, the reference first.
    """
    try:
        import pandas as pd
        from formulaic import Formula, model_matrix
    except ImportError:
        raise ParameterError(
            "formula must be read by formulaic, which is not installed: install the extra "
            "'formula', or give fit the columns themselves."
        ) from None
    frame = data.copy()
    for name, known in levels.items():
        if name in frame.columns:
            declared = [str(level) for level in known]
            frame[name] = pd.Categorical(frame[name].astype(str), categories=declared)
    parsed = Formula(formula)
    if not hasattr(parsed, "lhs"):
        raise ParameterError(f"formula must have a response, as 'y ~ x' has; got {formula!r}.")
    for name in sorted(str(each) for each in parsed.required_variables):
        if name not in frame.columns:
            raise ParameterError(f"formula must name columns of data; {name!r} is none of them.")
        column = frame[name]
        if not (pd.api.types.is_numeric_dtype(column) or hasattr(column.dtype, "categories")):
            raise ParameterError(
                f"levels of {name} must be given: which there are must not be looked up in private "
                "rows."
            )
    for side in (parsed.lhs, parsed.rhs):
        for factor in {factor for term in side for factor in term.factors}:
            _check_factor(factor, frame.columns)
    # Rows with missing cells stay, and become a fixed row: how many there are is private.
    found = model_matrix(formula, frame, na_action="ignore")
    spec = found.rhs.model_spec
    for factor in spec.factor_contrasts:
        raw = str(factor)
        inner = raw[2:-1].strip() if raw.startswith("C(") else raw
        if not hasattr(getattr(frame.get(inner), "dtype", None), "categories"):
            raise ParameterError(
                f"levels of {inner} must be given: which there are must not be looked up in "
                "private rows."
            )
    X = found.rhs.drop(columns=["Intercept"], errors="ignore")
    if "Intercept" not in found.rhs.columns:
        raise ParameterError("formula must keep the constant; leave out '- 1' and '+ 0'.")
    if found.lhs.shape[1] != 1:
        raise ParameterError(
            f"formula must have one column as its response; got {list(found.lhs.columns)}."
        )
    return pd.DataFrame(X), pd.DataFrame(found.lhs).iloc[:, 0]


def _check_factor(factor: Any, columns: Collection[str]) -> None:
    """Refuse what could make a row depend on others: one row would then move all of them."""
    if factor.eval_method.value in ("literal", "lookup"):
        return
    expression = str(factor.expr)
    try:
        tree = ast.parse(expression.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError):
        tree = None
    if tree is None or not _is_row_by_row(tree, columns):
        raise ParameterError(
            "formula must make each row from that row alone, by + - * / ** and functions such as "
            f"log, exp, sqrt and np.minimum, of columns and numbers; {expression} is not known to. "
            "Use public constants, and names without spaces."
        )


def _is_row_by_row(tree: ast.expr, columns: Collection[str]) -> bool:
    """Whether an expression gives each row a number that depends on that row alone."""
    match tree:
        case ast.Constant(value=bool() | int() | float()):
            return True
        case ast.Name(id=name):
            return name in columns
        case ast.BinOp(left=left, op=op, right=right):
            sides = (left, right)
            return isinstance(op, _OPERATORS) and all(
                _is_row_by_row(each, columns) for each in sides
            )
        case ast.UnaryOp(op=ast.UAdd() | ast.USub(), operand=operand):
            return _is_row_by_row(operand, columns)
        case ast.Call(func=ast.Name(id="C"), args=[ast.Name(id=name)], keywords=[]):
            return name in columns
        case (
            ast.Call(func=ast.Name(id=name), args=arguments, keywords=[])
            | ast.Call(
                func=ast.Attribute(value=ast.Name(id="np"), attr=name), args=arguments, keywords=[]
            )
        ):
            known = name in _ROW_BY_ROW or name == "I"
            return (
                known and "np" not in columns and all(_is_row_by_row(e, columns) for e in arguments)
            )
    return False
