"""The manifests that ``dpadmm compare`` and ``dpadmm reproduce`` leave, read back and checked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from dpadmm.errors import ParameterError
from dpadmm.report.records import Epsilon

__all__ = [
    "MANIFEST",
    "ComparisonManifest",
    "Manifest",
    "Panel",
    "ReproductionManifest",
    "read_manifest",
]

#: The name of the file in a folder.
MANIFEST: Final = "manifest.json"

Number = Annotated[float, Field(allow_inf_nan=False)]


class _Part(BaseModel):
    # Manifests of later versions of the package may carry more.
    model_config = ConfigDict(frozen=True, extra="ignore")


class Curve(_Part):
    """Points, perhaps with a band; x may be words."""

    label: str
    x: tuple[Number | str, ...]
    y: tuple[Number | None, ...]
    low: tuple[Number | None, ...] = ()
    high: tuple[Number | None, ...] = ()
    calibration: str = ""


class Panel(_Part):
    """One pair of axes."""

    title: str
    x_label: str
    y_label: str
    curves: tuple[Curve, ...]
    x_scale: Literal["linear", "log"] = "linear"
    y_scale: Literal["linear", "log"] = "linear"
    note: str = ""


class _Interval(_Part):
    mean: Number | None = None
    low: Number | None = None
    high: Number | None = None


class _Line(_Part):
    who: str
    calibration: str
    topology: str
    epsilon: Epsilon
    provable_epsilon: Number | str
    refused: str | None = None
    figures: dict[str, _Interval] = Field(default_factory=dict)


class _Privacy(_Part):
    delta: float | dict[str, float]
    adjacency: str
    adversary: str
    not_covered: tuple[str, ...]


class _Compared(_Part):
    measured: tuple[str, ...]


class ComparisonManifest(_Part):
    """What ``dpadmm compare`` found."""

    version: Literal[1]
    kind: Literal["comparison"]
    command: str
    notice: str
    intervals: str
    dpadmm: str
    data: dict[str, Any]
    stand_ins: tuple[str, ...] = ()
    privacy: _Privacy
    comparison: _Compared
    lines: tuple[_Line, ...] = Field(min_length=1)
    panels: tuple[Panel, ...] = ()


class _Conclusion(_Part):
    name: str
    claim: str
    criterion: str


class _Finding(_Part):
    conclusion: str
    calibration: str
    verdict: str
    number: str


class _Setting(_Part):
    value: Any
    source: str
    why: str = ""


class _Table(_Part):
    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]


class ReproductionManifest(_Part):
    """What ``dpadmm reproduce`` found of one experiment."""

    version: Literal[1]
    experiment: str
    citation: str
    part: str
    title: str
    command: str
    dpadmm: str
    settings: dict[str, _Setting]
    stand_ins: tuple[str, ...] = ()
    conclusions: tuple[_Conclusion, ...]
    findings: tuple[_Finding, ...]
    tables: dict[str, _Table] = Field(default_factory=dict)
    panels: tuple[Panel, ...] = ()
    remarks: tuple[str, ...] = ()


Manifest = ComparisonManifest | ReproductionManifest


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of a folder."""
    path = folder / MANIFEST
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ParameterError(f"manifest must be readable JSON; got {path}: {reason}.") from None
    compared = isinstance(content, dict) and content.get("kind") == "comparison"
    kind: TypeAdapter[Manifest] = TypeAdapter(
        ComparisonManifest if compared else ReproductionManifest
    )
    try:
        return kind.validate_python(content)
    except ValidationError as error:
        finding = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in finding["loc"]) or "the whole"
        raise ParameterError(
            f"{path} must be a manifest of dpadmm; at {place}: {finding['msg']}."
        ) from None
