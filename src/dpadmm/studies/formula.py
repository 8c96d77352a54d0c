"""Columns of a formula such as ``y ~ age + C(ward)``, by formulaic, from public facts alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dpadmm.errors import ParameterError


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
    # Rows with missing cells stay, and become a fixed row: how many there are is private.
    found = model_matrix(formula, frame, na_action="ignore")
    spec = found.rhs.model_spec
    learnt = sorted(str(name) for name in spec.transform_state)
    if learnt:
        raise ParameterError(
            f"formula must not learn from private rows; {learnt[0]} does. Use public constants."
        )
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
