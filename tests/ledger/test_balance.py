"""What entries add up to: to the last digit, and in the words that are read."""

import hashlib
import json
import re
from dataclasses import asdict
from fractions import Fraction

import pytest

from dpadmm.errors import BudgetError, LedgerError
from dpadmm.ledger.balance import Account, RowRange
from dpadmm.ledger.base import ChargedData, Entry
from dpadmm.ledger.filters import Policy
from dpadmm.plain import canonical_json
from dpadmm.privacy.events import GaussianRelease, PostProcessing, SharedGaussian

EVENT, SHARED = GaussianRelease(1.0, 20.0), SharedGaussian(1.0, 40.0, 20, 9)
AGREED = {"colluders": 9, "epsilon_alone": 2.0}


def opened(**policy):
    """An account of ten rows with the runs "a", of all of them, and "b", of the first four."""
    account = Account()
    content = {
        "version": 1,
        "dataset": asdict(ChargedData("patients", "north", 10)),
        "policy": Policy(**{"epsilon": 1.0, "delta": 1e-5} | policy).to_dict(),
    }
    take(account, "ledger", None, None, content)
    take(account, "run", "a", None, {"fingerprint": "x"})
    take(account, "run", "b", None, {"fingerprint": "y", "rows": [0, 4]})
    return account


def take(account, kind, run, round_, content):
    account.apply(Entry.after(account.head, kind, "now", run, round_, content))


def charge(account, run, round_, event):
    take(account, "reservation", run, round_, {"event": event.to_dict()})


# Borders -----------------------------------------------------------------------------------------

TINY = Fraction(1, 10**40)


@pytest.mark.parametrize("name", ["gaussian", "renyi"])
@pytest.mark.parametrize("beyond", [Fraction(0), TINY])
def test_a_round_may_take_exactly_what_is_left(name, beyond):
    account = opened(filter=name, **AGREED)
    cost = Fraction(account.filter.cost(EVENT))
    account.costs.add(Fraction(account.filter.limit) - cost + beyond, Fraction(0))
    if beyond:
        with pytest.raises(BudgetError, match=r"this round must fit .* it buys no round like it"):
            account.require([EVENT])
        with pytest.raises(LedgerError, match="row 3 exceeds the budget"):
            charge(account, "a", 0, EVENT)
        words = "these 2 rounds must fit .* it buys none of them"
    else:
        account.require([EVENT])
        words = "these 2 rounds must fit .* it buys the first 1 of them"
    with pytest.raises(BudgetError, match=words):
        account.require([EVENT] * 2)
    if not beyond:
        charge(account, "a", 0, EVENT)
        assert account.left == 0
        assert account.fitting_epsilon == 0
        account.require([PostProcessing()])


@pytest.mark.parametrize("beyond", [Fraction(0), TINY])
def test_nor_more_if_all_others_collude(beyond):
    account = opened(**AGREED)
    cost = Fraction(account.filter.cost(SHARED.alone))
    account.costs.add(Fraction(0), Fraction(account.filter.limit_alone) - cost + beyond)
    if beyond:
        words = (
            r"this round must fit into epsilon_alone = 2 .* is left, a run of Gaussian releases "
            r"with epsilon up to [0-9.e-]+, and [0-9.e-]+ \(epsilon = [0-9.e-]+\) was asked for\. "
            r"Use noise = 'own' or more noise;"
        )
        with pytest.raises(BudgetError, match=words):
            account.require([SHARED])
        with pytest.raises(LedgerError, match="row 3 exceeds the budget"):
            charge(account, "a", 0, SHARED)
    else:
        account.require([SHARED])
        assert (account.rounds_left(SHARED), account.rounds_left(EVENT)) == (1, 2)
        charge(account, "a", 0, SHARED)
        assert account.left_alone == 0
        # Noise of its own costs the same if all others collude.
        words = r"these 2 rounds must fit into epsilon_alone = 2 .* was asked for\. Use more noise;"
        with pytest.raises(BudgetError, match=words):
            account.require([EVENT] * 2)
        assert account.left > 0


def test_an_owner_who_did_not_agree_to_shared_noise_is_told_of_epsilon():
    """No epsilon_alone was ever given: what does not fit is the budget itself."""
    account = opened()
    rounds = account.rounds_left(SHARED)
    words = rf"these {rounds + 1} rounds must fit into epsilon = 1 at .* has not agreed to noise"
    with pytest.raises(BudgetError, match=words):
        account.require([SHARED] * (rounds + 1))


# Words -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sigma", [17.0, 19.0, 23.0, 29.0])
@pytest.mark.parametrize("name", ["gaussian", "renyi"])
def test_what_is_said_is_rounded_to_the_safe_side(sigma, name):
    account = opened(filter=name, **AGREED)
    charge(account, "a", 0, SharedGaussian(1.0, 2 * sigma, 20, 9))
    charge(account, "b", 0, GaussianRelease(1.0, sigma))
    lines = dict(account.lines())

    def said(heading):
        found = re.findall(r"epsilon (?:=|up to) ([\d.e-]*\d)", heading)
        return [float(number) for number in found]

    spent = [account.filter.epsilon(float(piece.spent)) for piece in account.parts]
    assert said(lines["Spent"]) == [pytest.approx(account.spent_epsilon, rel=1e-4)]
    assert said(lines["Spent"])[0] >= account.spent_epsilon
    (apart,) = said(lines["Spent if all others collude"])
    assert account.spent_epsilon_alone <= apart < account.spent_epsilon_alone * (1 + 1e-4)
    assert [a >= b for a, b in zip(said(lines["Accounts"]), spent, strict=True)] == [True, True]
    (left,) = said(lines["Left"])
    assert account.fitting_epsilon * (1 - 1e-4) < left <= account.fitting_epsilon


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        ({}, None),
        ({"colluders": 9}, "it holds against at least 9 colluders"),
        ({"epsilon_alone": 2.0}, "epsilon is at most 2 if all others collude"),
        (
            AGREED,
            "it holds against at least 9 colluders and epsilon is at most 2 if all others collude",
        ),
    ],
)
def test_what_is_demanded_of_shared_noise_is_said(policy, words):
    account = opened(**policy)
    charge(account, "a", 0, EVENT)
    assert dict(account.lines()).get("Noise may be shared if") == words
    assert "Spent if all others collude" not in dict(account.lines())
    assert "spent_epsilon_alone" not in account.to_dict()


def test_every_run_is_told_with_what_it_spent():
    account = opened()
    none, part = account.to_dict()["runs"]
    assert (none["spent"], none["reserved"], none["more_like_last"]) == (0, 0, None)
    charge(account, "b", 1, GaussianRelease(1.0, 10.0))
    charge(account, "b", 0, EVENT)
    none, part = account.to_dict()["runs"]
    assert (none["spent"], none["more_like_last"]) == (0, None)
    cost = account.filter.cost(GaussianRelease(1.0, 10.0)) + account.filter.cost(EVENT)
    assert (part["reserved"], part["rows"]) == (2, [0, 4])
    assert part["spent"] == pytest.approx(cost, rel=1e-12)
    # The last round is the one with the largest number, not the one that was charged last.
    last = account.rounds_left(GaussianRelease(1.0, 10.0), RowRange(0, 4))
    assert part["more_like_last"] == last < account.rounds_left(EVENT, RowRange(0, 4))
    assert account.rounds_left(PostProcessing()) is None


# Entries -----------------------------------------------------------------------------------------


def forged(previous, kind, run, round_, text):
    """An entry whose hash is right, whatever its text."""
    before, number = ("0" * 64, 0) if previous is None else (previous.hash, previous.number + 1)
    fields = [before, number, kind, "now", run, round_, text]
    digest = hashlib.sha256(canonical_json(fields).encode()).hexdigest()
    return Entry(number, kind, "now", run, round_, text, digest)


def test_the_chain_begins_with_zeros():
    """Of every ledger that there is: its hashes must be found again."""
    first = Entry.after(None, "ledger", "now", None, None, {"x": 1})
    assert first == forged(None, "ledger", None, None, '{"x":1}')
    assert Entry.after(first, "run", "now", "a", None, {}) == forged(first, "run", "a", None, "{}")


@pytest.mark.parametrize(
    ("kind", "text", "words"),
    [
        ("run", "[]", "AttributeError"),
        ("run", "{", "Expecting property name"),
        ("reservation", "[]", "TypeError"),
        ("reservation", "{}", "KeyError"),
        ("reservation", "[" * 100_000, "RecursionError"),
        (
            "reservation",
            json.dumps({"event": EVENT.to_dict() | {"sigma": 10**400}}),
            "OverflowError",
        ),
        ("reservation", '{"event":{"kind":"non-private","version":1}}', "no policy allows it"),
    ],
)
def test_what_cannot_be_read_is_refused_in_a_sentence(kind, text, words):
    account = opened()
    run, round_ = ("c", None) if kind == "run" else ("a", 0)
    with pytest.raises(LedgerError, match=f"row 3 cannot be read: .*{words}"):
        account.apply(forged(account.head, kind, run, round_, text))
    assert (account.head.number, account.spent, list(account.runs)) == (2, 0, ["a", "b"])
