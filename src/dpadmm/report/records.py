"""A run record (the JSON file that ``dpadmm train`` writes), read back and checked."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from dpadmm.durable import FileRefusal, read_json
from dpadmm.errors import ParameterError
from dpadmm.privacy.odds import Odds, attacker_odds

__all__ = ["LedgerCheck", "PartyGuarantee", "RecordedRun", "read_record"]


def _epsilon(value: Any) -> Any:
    return math.inf if value == "infinite" else value


Epsilon = Annotated[float, Field(ge=0), BeforeValidator(_epsilon)]
Number = Annotated[float, Field(allow_inf_nan=False)]


class _Part(BaseModel):
    # Records of later versions of the package may carry more.
    model_config = ConfigDict(frozen=True, extra="ignore")


class PartyGuarantee(_Part):
    """What one party's people are guaranteed."""

    epsilon: Epsilon
    delta: Annotated[float, Field(ge=0, le=1)]
    accountant: str
    theorem: str

    @property
    def odds(self) -> Odds:
        """What that means to somebody who guesses."""
        return attacker_odds(self.epsilon, self.delta, self.accountant)


class _Privacy(_Part):
    algorithm: str
    epsilon: Epsilon
    delta: Annotated[float, Field(ge=0, le=1)]
    adjacency: str
    adversary: str
    noise: str
    simulated: bool
    calibration: str
    reviewed: bool = True
    claim: str | None = None
    details: dict[str, str] = Field(default_factory=dict)
    not_covered: tuple[str, ...]
    caveats: tuple[str, ...] = ()
    parties: dict[str, PartyGuarantee] = Field(min_length=1)


class _Party(_Part):
    name: str
    rows: Annotated[int, Field(ge=0)]


class _History(_Part):
    disagreement: tuple[Number, ...] = ()
    change: tuple[Number, ...] = ()


class _Topology(_Part):
    name: str
    server: bool = False
    edges: tuple[tuple[int, int], ...] = ()
    parties: tuple[tuple[str, int], ...] = ()


class _Weight(_Part):
    feature: str
    towards: str
    weight: Number


class _Learnt(_Part):
    label: str
    columns: tuple[str, ...] = ()
    weights: tuple[_Weight, ...] = ()


class _Account(_Part):
    """The parts of a ledger's account that a report shows."""

    dataset: dict[str, Any]
    policy: dict[str, Any]
    limit: Number
    left: Number
    spent_epsilon: Epsilon
    runs: tuple[dict[str, Any], ...]
    head: str


class LedgerCheck(_Part):
    """A ledger and whether everything in it could be worked out again."""

    account: _Account | None = None
    error: str | None = None
    when: Literal["end", "now"] = "end"


class _Federation(_Part):
    """How the run of a node went."""

    rounds_complete: int
    lost: Any = None
    went_on_without: tuple[str, ...] = ()


class RecordedRun(_Part):
    """What a record says of a run; fields that older records lack are None or empty."""

    version: Literal[1]
    dpadmm: str
    python: str = ""
    numpy: str = ""
    ended: str
    command: str = ""
    config: dict[str, Any]
    run_sha256: str
    schema_sha256: str = ""
    model_sha256: str = ""
    algorithm: str
    rounds: int
    classes: tuple[str, ...]
    features: int
    parties: tuple[_Party, ...] = Field(min_length=1)
    privacy: _Privacy
    warnings: tuple[str, ...] = ()
    seconds: Number | None = None
    history: _History = _History()
    epsilon_after_rounds: dict[str, tuple[Epsilon, ...]] = Field(default_factory=dict)
    topology: _Topology | None = None
    learnt: _Learnt | None = None
    ledger_checks: dict[str, LedgerCheck] = Field(default_factory=dict)
    federation: _Federation | None = None

    @classmethod
    def from_dict(cls, content: Any, where: str = "record") -> RecordedRun:
        """Check plain data; what is wrong is said in one sentence."""
        try:
            run = cls.model_validate(content)
        except ValidationError as error:
            finding = error.errors(include_url=False)[0]
            place = ".".join(str(part) for part in finding["loc"]) or "the whole"
            raise ParameterError(
                f"{where} must be a run record of dpadmm; at {place}: {finding['msg']}."
            ) from None
        for name in (party.name for party in run.parties):
            if name not in run.privacy.parties:
                raise ParameterError(f"{where} must have a guarantee of party {name!r}; has none.")
        places = range(len(run.everybody))
        for edge in run.topology.edges if run.topology else ():
            if not set(edge) <= set(places):
                raise ParameterError(f"{where} must link parties of the run; got {edge!r}.")
        return run

    @property
    def everybody(self) -> tuple[_Party, ...]:
        """All who took part; the record of a node has guarantees of its own party alone."""
        if self.topology is None or not self.topology.parties:
            return self.parties
        return tuple(_Party(name=name, rows=rows) for name, rows in self.topology.parties)

    @property
    def names(self) -> tuple[str, ...]:
        """The parties, in order."""
        return tuple(party.name for party in self.parties)

    @property
    def private(self) -> bool:
        """Whether anything is guaranteed."""
        return math.isfinite(self.privacy.epsilon)

    @property
    def weakest(self) -> tuple[str, ...]:
        """The parties with the largest epsilon; empty where all have the same to four digits."""
        spent = {name: self.privacy.parties[name].epsilon for name in self.names}
        most = max(spent.values())
        found = tuple(name for name, epsilon in spent.items() if epsilon >= most * (1 - 1e-4))
        return () if len(found) == len(spent) else found

    def budget(self, name: str) -> float | None:
        """The epsilon that the configuration allows a party in this run."""
        asked = self.config.get("run", {}).get("epsilon")
        asked = asked.get(name) if isinstance(asked, dict) else asked
        if isinstance(asked, bool) or not isinstance(asked, int | float) or not self.private:
            return None
        return float(asked)


def read_record(path: Path) -> RecordedRun:
    """Read a record from its file."""
    try:
        content = read_json(path)
    except FileRefusal as error:
        raise ParameterError(f"run must be a readable JSON file; got {path}: {error}.") from None
    return RecordedRun.from_dict(content, str(path))
