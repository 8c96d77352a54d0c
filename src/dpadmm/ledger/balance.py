r"""The balance of a ledger, from its entries.

:class:`Account` reads the entries in order and refuses the first one that does not follow from the
entries before. It reads the file, its verification and an export alike.

**Positions.** A run may read only some of the rows. A data set is an ordered list, and neighbouring
data sets differ in the content of one position p. A release that reads the range R of positions has
the same distribution for both unless p is in R. So the costs of the releases whose range contains p
add up for p:

.. math:: \mathrm{spent} = \max_p \sum_{r:\,p\in R_r} \mathrm{cost}_r .

For each pair of neighbours a filter (:mod:`dpadmm.ledger.filters`) bounds this sum, whatever was
chosen along the way, ranges included. Training on one part and evaluating on the rest costs the
larger of the two (parallel composition). A run on all rows counts for every position. The costs of
overlapping ranges add up.

A person with k rows, at positions :math:`p_1..p_k`, moves a Gaussian release by at most
:math:`c_r = \#\{i: p_i\in R_r\}` of its sensitivities, and since :math:`c_r^2 \le k\,c_r`

.. math:: \sum_r c_r^2\mu_r^2 \;\le\; k\sum_i\sum_{r:\,p_i\in R_r}\mu_r^2
          \;\le\; k^2\max_p\sum_{r:\,p\in R_r}\mu_r^2 ,

so the maximum holds for Gaussian releases, charged for k rows each. Any of the k rows can move the
whole error of an inexact solve, so that error is charged k^2 times. No such bound is known here for
other releases: every cost is then charged to all positions.

An order that depends on the content of rows, such as a sorted table, is not covered: replacing one
row would move others to another position.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from itertools import pairwise
from typing import Any, Final, NamedTuple

from dpadmm.errors import BudgetError, LedgerError, ParameterError
from dpadmm.ledger.base import LEDGER_VERSION, ChargedData, Entry
from dpadmm.ledger.filters import Policy, PrivacyFilter, affordable
from dpadmm.privacy.events import Event, alone, event_from_dict
from dpadmm.privacy.figures import AtLeast, AtMost, Given
from dpadmm.privacy.gaussian import round_down, round_up
from dpadmm.privacy.statement import adjacency_words, adversary_words


class RowRange(NamedTuple):
    """Positions ``first`` to ``stop - 1``, counted from 0."""

    first: int
    stop: int

    def __str__(self) -> str:
        return f"rows {self.first + 1} to {self.stop}"

    def meets(self, other: RowRange | None) -> bool:
        """Whether the ranges share a position; None means all positions."""
        return other is None or (self.first < other.stop and other.first < self.stop)

    @classmethod
    def checked(cls, value: Any, rows: int) -> RowRange:
        """Return the range that an entry names, in a data set of that many rows, or refuse."""
        given = list(value) if isinstance(value, list | tuple) else []
        whole = len(given) == 2 and all(type(number) is int for number in given)
        if not whole or not 0 <= given[0] < given[1] <= rows:
            raise LedgerError(
                f"rows of a run must be two numbers, 0 <= first < stop <= {rows}; got {value!r}."
            )
        return cls(*given)


@dataclass(frozen=True)
class Piece:
    """Positions with the same charges: their cost, and their cost if all others collude."""

    rows: RowRange
    spent: Fraction = Fraction(0)
    spent_alone: Fraction = Fraction(0)


class PositionCosts:
    """The costs of all positions of a data set.

    Parameters
    ----------
    rows
        How many positions there are.
    """

    def __init__(self, rows: int) -> None:
        self._all = RowRange(0, rows)
        self.pieces: tuple[Piece, ...] = (Piece(self._all),)

    def add(self, cost: Fraction, cost_alone: Fraction, rows: RowRange | None = None) -> None:
        """Charge every position of a range, or all positions."""
        charged, found = rows or self._all, []
        for piece in self.pieces:
            first, stop = piece.rows
            edges = sorted({first, stop, *(e for e in charged if first < e < stop)})
            for start, end in pairwise(edges):
                inside = charged.first <= start < charged.stop
                spent = piece.spent + cost if inside else piece.spent
                apart = piece.spent_alone + cost_alone if inside else piece.spent_alone
                found.append(Piece(RowRange(start, end), spent, apart))
        self.pieces = tuple(found)

    def most(self, rows: RowRange | None = None) -> tuple[Fraction, Fraction]:
        """The largest cost of a position in a range, and the same if all others collude."""
        asked = rows or self._all
        if asked.stop > self._all.stop:
            raise ParameterError(f"rows must be within {self._all}; got {asked}.")
        met = [piece for piece in self.pieces if piece.rows.meets(asked)]
        return max(piece.spent for piece in met), max(piece.spent_alone for piece in met)


#: How the numbers of a message are stored, by the name in its entry; doubles are the default.
STORED_TYPES: Final = {"float64": "<f8", "uint64": "<u8"}


@dataclass(frozen=True)
class StoredMessage:
    """The place of the bytes of a committed message, and their shape, type and digest."""

    number: int
    shape: tuple[int, ...]
    sha256: str
    dtype: str = "float64"


@dataclass
class RunRecord:
    """What a ledger knows of one run.

    ``rows`` are the positions that it reads; None means all of them. ``preparation`` is a word for
    the preparation of the rows; None means that nobody named it.
    """

    fingerprint: str
    opened: str
    rows: RowRange | None = None
    preparation: str | None = None
    events: dict[int, Event] = field(default_factory=dict)
    reservations: dict[int, int] = field(default_factory=dict)
    commits: dict[int, StoredMessage] = field(default_factory=dict)
    spent: Fraction = Fraction(0)


class Account:
    """The balance of one ledger.

    Attributes
    ----------
    dataset
        From the first entry.
    policy, filter
        From the first entry, or the last amendment.
    amendments
        By entry number: the time of each, and what it allowed that was not allowed before.
    costs
        The cost of each position of the data set (:mod:`dpadmm.ledger.balance`).
    runs
        The runs by run id, in the order in which they were opened.
    head
        The last entry.
    """

    dataset: ChargedData
    policy: Policy
    filter: PrivacyFilter
    costs: PositionCosts

    def __init__(self) -> None:
        self.head: Entry | None = None
        self.runs: dict[str, RunRecord] = {}
        self.amendments: dict[int, tuple[str, tuple[str, ...]]] = {}

    @property
    def spent(self) -> Fraction:
        """The spending in the filter's unit: an exact sum, the largest over positions."""
        return self.costs.most()[0]

    @property
    def spent_alone(self) -> Fraction:
        """The spending if all other parties collude; shared noise makes it larger."""
        return self.costs.most()[1]

    @property
    def left(self) -> Fraction:
        """What is left for a run on all rows, in the filter's unit."""
        return self._left(None)

    @property
    def left_alone(self) -> Fraction | None:
        """What is left if all other parties collude; None if the policy sets no bound."""
        return self._left_alone(None)

    def _left(self, rows: RowRange | None) -> Fraction:
        """What is left for a run on these rows."""
        return Fraction(self.filter.limit) - self.costs.most(self._charged(rows))[0]

    def _left_alone(self, rows: RowRange | None) -> Fraction | None:
        if math.isinf(self.filter.limit_alone):
            return None
        return Fraction(self.filter.limit_alone) - self.costs.most(self._charged(rows))[1]

    def _charged(self, rows: RowRange | None) -> RowRange | None:
        """The positions that a release on these rows is charged to; None for all.

        A person with several rows may have some in every part. The largest sum of a position is
        known to cover that for Gaussian releases only.
        """
        return rows if self.keeps_parts else None

    @property
    def keeps_parts(self) -> bool:
        """Whether a release is charged only to the rows that it reads."""
        return self.policy.rows_per_person == 1 or self.filter.name == "gaussian"

    @property
    def parts(self) -> tuple[Piece, ...]:
        """The parts of the rows with different charges; empty if all charges are the same."""
        return self.costs.pieces if len(self.costs.pieces) > 1 else ()

    @property
    def spent_epsilon(self) -> float:
        """The spending of all runs together, as an epsilon at the policy's delta."""
        return self.filter.epsilon(round_up(self.spent))

    @property
    def spent_epsilon_alone(self) -> float:
        """The same if all other parties collude."""
        return self.filter.epsilon_alone(round_up(self.spent_alone))

    @property
    def shares_noise(self) -> bool:
        """Whether any charge relies on the noise of other parties."""
        return self.spent_alone != self.spent

    @property
    def fitting_epsilon(self) -> float:
        """The largest epsilon (at the policy's delta) of a run of Gaussian releases that fits.

        The run uses own noise, which costs the same if all other parties collude.
        """
        return self._fitting(None)

    def _fitting(self, rows: RowRange | None) -> float:
        left, left_alone = self._left(rows), self._left_alone(rows)
        return self.filter.fitting_epsilon(
            round_down(left if left_alone is None else min(left, left_alone))
        )

    def rounds_left(self, event: Event, rows: RowRange | None = None) -> int | None:
        """How many more rounds like this fit on these rows; None if they are free."""
        counts = [affordable(self._left(rows), self.filter.cost(event))]
        left_alone = self._left_alone(rows)
        if left_alone is not None:
            counts.append(affordable(left_alone, self.filter.cost(alone(event))))
        found = [count for count in counts if count is not None]
        return min(found) if found else None

    def require(self, events: Iterable[Event], rows: RowRange | None = None) -> None:
        """Refuse events that together exceed what is left; charge nothing.

        Parameters
        ----------
        events
            The releases.
        rows
            The positions that they read; all unless given.
        """
        total, apart, fitting, asked = Fraction(0), Fraction(0), 0, 0
        there = self._left(rows)
        for event in events:
            total += Fraction(self.filter.cost(event))
            apart += Fraction(self.filter.cost(alone(event)))
            asked += 1
            if total <= there:
                fitting = asked
        if total <= there:
            self._require_alone(apart, asked, rows, shared=apart != total)
            return
        policy, left = self.policy, round_down(there)
        wanted = "this round" if asked == 1 else f"these {asked} rounds"
        buys = (
            "no round like it"
            if asked == 1
            else "none of them"
            if fitting == 0
            else f"the first {fitting} of them"
        )
        raise BudgetError(
            f"{wanted} must fit into the budget left of epsilon = {Given(policy.epsilon)} at "
            f"delta = {Given(policy.delta)}: {AtLeast(left)} of {AtLeast(self.filter.limit)} "
            f"({self.filter.unit}) is left{'' if rows is None else f' for {rows}'} and "
            f"{self._asked(total)} was asked for, so it buys {buys}. A run of Gaussian "
            f"releases with epsilon up to {AtLeast(self._fitting(rows))} fits; "
            f"{self._not_charged(asked)}."
        )

    def _not_charged(self, asked: int) -> str:
        """Say that this ledger was charged none of the refused releases."""
        what = "it was not" if asked == 1 else "none of them was"
        return f"{what} charged to the ledger of {self.dataset.owner}"

    def _require_alone(
        self, cost: Fraction, asked: int, rows: RowRange | None, *, shared: bool
    ) -> None:
        """Refuse what does not fit if all other parties collude."""
        left = self._left_alone(rows)
        if left is None or cost <= left:
            return
        policy, fitting = self.policy, self.filter.fitting_epsilon(round_down(left))
        wanted = "this round" if asked == 1 else f"these {asked} rounds"
        bound = f"epsilon_alone = {Given(policy.epsilon_alone or policy.epsilon)}"
        advice = "Use noise = 'own' or more noise" if shared else "Use more noise"
        if policy.epsilon_alone is None:
            bound = f"epsilon = {Given(policy.epsilon)}"
            advice = (
                "Its owner has not agreed to noise that parties share: use noise = 'own', or let "
                "the owner agree by 'dpadmm ledger amend' with --colluders or --epsilon-alone, "
                "which keeps all that was spent"
            )
        raise BudgetError(
            f"{wanted} must fit into {bound} at delta = {Given(policy.delta)}, for the case that "
            f"all other parties collude: {AtLeast(round_down(left))} of "
            f"{AtLeast(self.filter.limit_alone)} ({self.filter.unit}) is left, a run of Gaussian "
            f"releases with epsilon up to {AtLeast(fitting)}, and {self._asked(cost)} was "
            f"asked for. {advice}; {self._not_charged(asked)}."
        )

    def _asked(self, cost: Fraction) -> str:
        """A cost in the filter's unit, and the epsilon that it amounts to alone."""
        found = self.filter.epsilon(round_up(cost))
        return f"{AtMost(round_up(cost))} (epsilon = {AtMost(found)})"

    def apply(self, entry: Entry) -> None:
        """Apply the next entry, or say what is wrong with it."""
        expected = 0 if self.head is None else self.head.number + 1
        if entry.number != expected:
            raise LedgerError(f"row {expected} is missing: row {entry.number} was found instead.")
        if not entry.follows(self.head):
            raise LedgerError(f"row {entry.number} was changed: its hash does not match.")
        try:
            content = json.loads(entry.content)
            if entry.number == 0:
                self._begin(entry, content)
            else:
                self._continue(entry, content)
        except (ValueError, BudgetError) as error:
            raise LedgerError(f"row {entry.number} cannot be read: {error}") from None
        except (TypeError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
            kind = type(error).__name__
            raise LedgerError(
                f"row {entry.number} cannot be read: {kind}: {str(error)[:200]}."
            ) from None
        self.head = entry

    def _begin(self, entry: Entry, content: dict[str, Any]) -> None:
        if entry.kind != "ledger":
            raise LedgerError(f"row 0 must open the ledger; it is a {entry.kind!r}.")
        if content["version"] != LEDGER_VERSION:
            raise LedgerError(
                f"the ledger's version must be {LEDGER_VERSION}; it is {content['version']!r}."
            )
        self.dataset = ChargedData(**content["dataset"])
        self.policy = Policy(**content["policy"])
        self.filter = self.policy.make_filter()
        self.costs = PositionCosts(self.dataset.rows)

    def _continue(self, entry: Entry, content: dict[str, Any]) -> None:
        number, run, round_ = entry.number, entry.run, entry.round
        if entry.kind == "amendment":
            self._amend(entry, content)
            return
        if not isinstance(run, str):
            raise LedgerError(f"row {number} must name its run.")
        if entry.kind == "run":
            if run in self.runs:
                raise LedgerError(f"row {number} opens the run {run!r} a second time.")
            named = content.get("rows")
            rows = None if named is None else RowRange.checked(named, self.dataset.rows)
            prepared = content.get("preparation")
            self.runs[run] = RunRecord(content["fingerprint"], entry.time, rows, prepared)
            return
        record = self.runs.get(run)
        if record is None:
            raise LedgerError(f"row {number} belongs to the run {run!r}, which was never opened.")
        if not isinstance(round_, int) or round_ < 0:
            raise LedgerError(f"row {number} must name its round.")
        if entry.kind == "reservation":
            if round_ in record.events:
                raise LedgerError(f"row {number} charges round {round_} of {run!r} a second time.")
            event = event_from_dict(content["event"])
            cost = Fraction(self.filter.cost(event))
            apart = Fraction(self.filter.cost(alone(event)))
            left = self._left_alone(record.rows)
            if cost > self._left(record.rows) or (left is not None and apart > left):
                raise LedgerError(f"row {number} exceeds the budget of the policy.")
            record.events[round_] = event
            record.reservations[round_] = number
            record.spent += cost
            self.costs.add(cost, apart, self._charged(record.rows))
        elif entry.kind == "commit":
            if record.reservations.get(round_) != content["reservation"]:
                raise LedgerError(f"row {number} commits round {round_} without its reservation.")
            if round_ in record.commits:
                raise LedgerError(f"row {number} commits round {round_} of {run!r} a second time.")
            dtype = content.get("dtype", "float64")
            if dtype not in STORED_TYPES:
                raise LedgerError(f"row {number} commits a message of the unknown type {dtype!r}.")
            record.commits[round_] = StoredMessage(
                number, tuple(content["shape"]), content["sha256"], dtype
            )
        else:
            raise LedgerError(f"row {number} is of the unknown kind {entry.kind!r}.")

    def _amend(self, entry: Entry, content: dict[str, Any]) -> None:
        if (entry.run, entry.round) != (None, None):
            raise LedgerError(f"row {entry.number} amends the policy: it must name no run.")
        policy = Policy(**content["policy"])
        self.check_amendment(policy, loosen=content["loosen"] is True)
        self.amendments[entry.number] = (entry.time, self.policy.looser(policy))
        self.policy, self.filter = policy, policy.make_filter()

    def check_amendment(self, policy: Policy, *, loosen: bool) -> None:
        """Refuse a policy that cannot replace the current one; change nothing.

        Parameters
        ----------
        policy
            The new policy.
        loosen
            The owner allows it to be looser.
        """
        for name in ("filter", "order", "rows_per_person"):
            before, now = getattr(self.policy, name), getattr(policy, name)
            if now != before:
                raise LedgerError(
                    f"{name} must stay as it is, {before!r}: by it every charge was counted; got "
                    f"{now!r}."
                )
        looser = self.policy.looser(policy)
        if looser and not loosen:
            raise LedgerError(
                "a policy must not become looser without its owner's word, --loosen: "
                f"{'; '.join(looser)}. Nothing was changed."
            )
        rule = policy.make_filter()
        for words, spent, limit in (
            (f"epsilon = {Given(policy.epsilon)}", self.spent, rule.limit),
            (
                f"epsilon_alone = {Given(policy.bound_alone)}, if all others collude,",
                self.spent_alone,
                rule.limit_alone,
            ),
        ):
            if spent > limit:
                raise LedgerError(
                    f"{words} at delta = {Given(policy.delta)} must be at least what was spent, "
                    f"{AtMost(rule.epsilon(round_up(spent)))}: that stays spent. Nothing was "
                    "changed."
                )

    def lines(self) -> list[tuple[str, str]]:
        """The budget as pairs of a heading and its words."""
        policy, dataset = self.policy, self.dataset
        return [
            ("Data set", f"{dataset.name} of {dataset.owner}, {dataset.rows} rows"),
            (
                "Guarantee",
                f"({Given(policy.epsilon)}, {Given(policy.delta)})-differential privacy, total "
                "over all runs ever charged here, also where a run was chosen after seeing earlier "
                "ones",
            ),
            *self._lines_of_amendments(),
            ("Adjacency", adjacency_words(policy.rows_per_person)),
            ("Adversary", adversary_words(self._events())),
            ("Filter", f"{self.filter.name}: {self.filter.theorem}"),
            ("Spent", f"epsilon = {AtMost(self.spent_epsilon)} at delta = {Given(policy.delta)}"),
            *self._lines_of_parts(),
            *self._lines_alone(),
            (
                "Left",
                f"Gaussian releases with epsilon up to {AtLeast(self.fitting_epsilon)} together",
            ),
            (
                "Not covered",
                "what the statements of its runs do not cover; runs that were not charged here; a "
                "person with rows in another data set; a ledger put back to an older copy (compare "
                "its head with one noted elsewhere)",
            ),
        ]

    def _lines_of_amendments(self) -> list[tuple[str, str]]:
        """Say that the policy was amended, and what that means."""
        if not self.amendments:
            return []
        when, _ = self.amendments[max(self.amendments)]
        loosened = sum(bool(looser) for _, looser in self.amendments.values())
        return [
            (
                "Amended",
                f"{'once' if len(self.amendments) == 1 else f'{len(self.amendments)} times'}, "
                f"{loosened} of them to be looser; the last on "
                f"{when.partition('T')[0]}. All that was ever spent is counted. The guarantee is "
                "that of the policy of now; one that was chosen from what was released is not "
                "covered",
            )
        ]

    def _lines_of_parts(self) -> list[tuple[str, str]]:
        """What each part was charged, if runs read only some of the rows."""
        if not self.parts:
            return []
        spent = "; ".join(
            f"{piece.rows}: epsilon = {AtMost(self.filter.epsilon(round_up(piece.spent)))}"
            for piece in self.parts
        )
        return [
            (
                "Accounts",
                f"{spent}. The largest counts: a release that does not read a row tells nothing "
                "about it. An order of rows that depends on what they hold, or that changes "
                "between runs, is not covered",
            )
        ]

    def _events(self) -> Iterator[Event]:
        """Everything that was ever charged."""
        for record in self.runs.values():
            yield from record.events.values()

    def _lines_alone(self) -> list[tuple[str, str]]:
        """What the policy demands of shared noise, and the cost if all others collude."""
        policy, lines = self.policy, []
        if self.shares_noise:
            spent = f"epsilon = {AtMost(self.spent_epsilon_alone)} at delta = {Given(policy.delta)}"
            lines.append(("Spent if all others collude", spent))
        demands = []
        if policy.colluders is not None:
            demands.append(f"it holds against at least {policy.colluders} colluders")
        if policy.epsilon_alone is not None:
            demands.append(
                f"epsilon is at most {Given(policy.epsilon_alone)} if all others collude"
            )
        if demands:
            lines.append(("Noise may be shared if", " and ".join(demands)))
        return lines

    def to_dict(self) -> dict[str, Any]:
        """Plain data for machines."""
        assert self.head is not None
        spent, limit = round_up(self.spent), self.filter.limit
        apart = {"spent_epsilon_alone": self.spent_epsilon_alone} if self.shares_noise else {}
        return {
            "dataset": asdict(self.dataset),
            "policy": self.policy.to_dict(),
            "filter": {"name": self.filter.name, "theorem": self.filter.theorem},
            "unit": self.filter.unit,
            "limit": limit,
            "spent": spent,
            "left": round_down(self.left),
            "spent_epsilon": self.spent_epsilon,
            "fitting_epsilon": self.fitting_epsilon,
            **apart,
            **self._plain_parts(),
            **self._plain_amendments(),
            "runs": [
                {
                    "run": name,
                    "opened": record.opened,
                    "fingerprint": record.fingerprint,
                    "reserved": len(record.events),
                    "committed": len(record.commits),
                    "spent": round_up(record.spent),
                    "more_like_last": self._more_like_last(record),
                    **({} if record.rows is None else {"rows": list(record.rows)}),
                }
                for name, record in self.runs.items()
            ],
            "head": f"{self.head.number}:{self.head.hash}",
            "statement": dict(self.lines()),
        }

    def _plain_parts(self) -> dict[str, Any]:
        """An account for each part, if there are several."""
        accounts = [
            {
                "rows": list(piece.rows),
                "spent": round_up(piece.spent),
                "spent_epsilon": self.filter.epsilon(round_up(piece.spent)),
            }
            for piece in self.parts
        ]
        return {"accounts": accounts} if accounts else {}

    def _plain_amendments(self) -> dict[str, Any]:
        """The amendments of the policy, if there are any."""
        amendments = [
            {"number": number, "time": time, "looser": list(looser)}
            for number, (time, looser) in self.amendments.items()
        ]
        return {"amendments": amendments} if amendments else {}

    def _more_like_last(self, record: RunRecord) -> int | None:
        """How many more rounds like the run's last fit; None if free or none yet."""
        if not record.events:
            return None
        try:
            return self.rounds_left(record.events[max(record.events)], record.rows)
        except BudgetError:
            # An amendment demands protection against more colluders than this round offers.
            return 0


def recompute(export: Iterable[str]) -> Account:
    """Recompute every hash and cost of an exported ledger from its JSON lines alone."""
    account = Account()
    for line in export:
        if line.strip():
            try:
                data = json.loads(line)
            except json.JSONDecodeError as error:
                raise LedgerError(f"an export must be lines of JSON; {error}.") from None
            account.apply(Entry.from_dict(data))
    if account.head is None:
        raise LedgerError("an export must have at least one line; it has none.")
    return account
