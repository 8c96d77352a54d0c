"""The round loop with a durable ledger: stored bytes win, and the ledger wins over a checkpoint."""

from contextlib import ExitStack

import numpy as np
import pytest

from dpadmm.errors import BudgetError, LedgerError, ParameterError
from dpadmm.ledger.base import ChargedData
from dpadmm.ledger.filters import Policy
from dpadmm.ledger.sqlite import SQLiteLedger
from dpadmm.privacy.mechanisms import release_covered
from dpadmm.privacy.noise import DiscreteNoise, SecureNoise, SimulatedNoise
from dpadmm.problem.rows import Shard
from dpadmm.run.charges import open_runs
from dpadmm.run.engine import Checkpoint, Exchange, run
from dpadmm.run.options import TrainingParameters
from dpadmm.run.plan import announced, plan
from dpadmm.run.session import train
from dpadmm.solvers.workspace import Workspace

# Large penalties keep these runs cheap; how far they get does not matter here.
pytestmark = pytest.mark.filterwarnings("ignore::dpadmm.run.options.ConvergenceWarning")

PARTIES, ROWS, FEATURES, ROUNDS = 3, 30, 2, 4


def make_plan(epsilon=1.0, rounds=ROUNDS, **changes):
    parameters = TrainingParameters(
        "pr-admm", rounds=rounds, epsilon=epsilon, delta=1e-3, penalty=1.0, **changes
    )
    return plan(parameters, [ROWS] * PARTIES, features=FEATURES)


def make_shard():
    random = np.random.default_rng(1)
    labels = np.where(random.random((PARTIES, ROWS, 1)) < 0.5, 1.0, -1.0)
    return Shard.from_parties(
        list(zip(random.normal(size=(PARTIES, ROWS, FEATURES)), labels, strict=True))
    )


@pytest.fixture
def paths(tmp_path):
    paths = [tmp_path / f"{party}.ledger" for party in range(PARTIES)]
    for party, path in enumerate(paths):
        dataset = ChargedData("rows", f"party {party}", ROWS)
        SQLiteLedger.create(path, dataset, Policy(1.0, 1e-3, colluders=1)).close()
    return paths


def train_once(
    paths, run_id="run", planned=None, stop_after=None, checkpoint=None, source=SecureNoise
):
    """Train, or stop after so many rounds; the messages of every round and the spending."""
    planned, seen = planned or make_plan(), []

    def on_round(done, message):
        seen.append(message)
        if done == stop_after:
            raise KeyboardInterrupt

    # Closed also where the runs are refused.
    with ExitStack() as opened:
        ledgers = [opened.enter_context(SQLiteLedger(path)) for path in paths]
        runs = open_runs(planned, ledgers, run_id, source())
        try:
            train(
                planned,
                make_shard(),
                noise=source(),
                ledgers=runs,
                checkpoint=checkpoint,
                on_round=on_round,
            )
        except KeyboardInterrupt:
            pass
        finally:
            for run in runs:
                run.close()
    return np.array(seen), [ledger.account.spent for ledger in ledgers]


def test_a_finished_run_is_sent_again_and_not_charged_again(paths):
    first, spent = train_once(paths)
    again, spent_again = train_once(paths)
    np.testing.assert_array_equal(first, again)
    assert spent == spent_again
    with pytest.raises(BudgetError, match="these 4 rounds must fit"):
        train_once(paths, "another run")


def test_an_interrupted_run_replays_and_goes_on(paths):
    first, _ = train_once(paths, stop_after=2)
    again, spent = train_once(paths)
    assert len(again) == ROUNDS
    np.testing.assert_array_equal(first, again[:2])
    for path, charged in zip(paths, spent, strict=True):
        with SQLiteLedger(path) as ledger:
            assert ledger.verify().spent == charged
            assert 1 - 1e-6 < ledger.account.spent_epsilon <= 1.0


def test_a_party_that_committed_keeps_its_message(paths):
    planned, stored = make_plan(), np.full((1, 1, FEATURES), 0.25)
    with SQLiteLedger(paths[1]) as ledger:
        others = [SQLiteLedger(paths[0]), ledger, SQLiteLedger(paths[2])]
        runs = open_runs(planned, others, "run", SecureNoise())
        runs[1].reserve(0, announced(planned)[1][0])
        runs[1].commit(0, stored)
        for run, other in zip(runs, others, strict=True):
            run.close()
            other.close()
    messages, _ = train_once(paths)
    np.testing.assert_array_equal(messages[0][1], stored)
    assert not (messages[0][[0, 2]] == stored).any()
    np.testing.assert_array_equal(train_once(paths)[0], messages)


def test_a_checkpoint_and_the_ledger_agree(paths, tmp_path):
    checkpoint = Checkpoint(tmp_path / "checkpoint", every=2)
    first, _ = train_once(paths, stop_after=3, checkpoint=checkpoint)
    rest, _ = train_once(paths, checkpoint=checkpoint)  # continues after round 2
    assert len(rest) == ROUNDS - 2
    np.testing.assert_array_equal(rest[0], first[2])


def test_a_checkpoint_ahead_of_the_ledger_is_refused(paths, tmp_path):
    older = paths[0].read_bytes()
    checkpoint = Checkpoint(tmp_path / "checkpoint", every=2)
    train_once(paths, stop_after=3, checkpoint=checkpoint)
    newer = paths[0].read_bytes()
    paths[0].write_bytes(older)
    with pytest.raises(LedgerError, match="put back to an older copy"):
        train_once(paths, checkpoint=checkpoint)
    paths[0].write_bytes(newer)
    assert len(train_once(paths, checkpoint=checkpoint)[0]) == ROUNDS - 2


def test_a_run_is_checked_before_anything_is_charged(paths):
    ledgers = [SQLiteLedger(path) for path in paths]
    heads = [ledger.head for ledger in ledgers]
    for planned, noise, words in (
        (make_plan(epsilon=1.1), SecureNoise(), "these 4 rounds must fit"),
        (make_plan(rows_per_person=2), SecureNoise(), "rows_per_person must be the ledger's"),
        (make_plan(), SimulatedNoise(1), "noise must not be simulated"),
    ):
        with pytest.raises((LedgerError, ParameterError), match=words):
            open_runs(planned, ledgers, "run", noise)
    with pytest.raises(ParameterError, match="one per party"):
        open_runs(make_plan(), ledgers[:2], "run", SecureNoise())
    with pytest.raises(LedgerError, match="one process at a time"):
        open_runs(make_plan(), [ledgers[0]] * 3, "run", SecureNoise())
    parameters = TrainingParameters("pr-admm", rounds=2, delta=1e-3)
    wrong = plan(parameters, [ROWS + 1] * PARTIES, features=FEATURES)
    with pytest.raises(ParameterError, match="must be about its 31 rows"):
        open_runs(wrong, ledgers, "run", SecureNoise())
    admm = plan(TrainingParameters("admm", rounds=2), [ROWS] * PARTIES, features=FEATURES)
    with pytest.raises(BudgetError, match="no policy allows it"):
        open_runs(admm, ledgers, "run", SecureNoise())
    repeated = plan(parameters, [ROWS] * PARTIES, features=FEATURES, runs=2)
    with pytest.raises(ParameterError, match="runs must be 1"):
        open_runs(repeated, ledgers, "run", SecureNoise())
    assert [ledger.refresh().spent for ledger in ledgers] == [0, 0, 0]
    assert heads[1:] == [ledger.head for ledger in ledgers[1:]]
    for ledger in ledgers:
        ledger.close()


def test_a_continued_run_keeps_its_parameters(paths):
    train_once(paths, stop_after=1)
    with pytest.raises(LedgerError, match="parameters it began with"):
        train_once(paths, planned=make_plan(regularization=0.5))


def test_several_runs_of_real_noise_are_refused():
    planned = plan(
        TrainingParameters("pr-admm", rounds=2, delta=1e-3), [ROWS] * PARTIES, features=2, runs=2
    )
    with pytest.raises(ParameterError, match="runs must be 1"):
        train(planned, make_shard(), noise=SecureNoise())


class Covering(Exchange):
    """Words under keys of its own, which change with every start, and who saw which."""

    def __init__(self, summation, key):
        self.summation, self.key, self.sent, self.covered = summation, key, [], []

    def cover(self, message, t):
        self.covered.append(t)
        words = self.summation.to_words(message.values)
        masks = np.random.default_rng([self.key, t]).integers(0, 2**64, words.shape, np.uint64)
        masks[-1] = -masks[:-1].sum(axis=0, dtype=np.uint64)
        return release_covered(message, words + masks)

    def __call__(self, message, t):
        self.sent.append(message.values)
        total = self.summation.from_words(message.values.sum(axis=0, dtype=np.uint64))
        return (total / self.summation.parties)[None]


def cover_once(paths, key, stop_after=None, checkpoint=None):
    """Train with covered messages; the exchange, and the models of every round."""
    parameters = TrainingParameters(
        "dp-gd", rounds=ROUNDS, epsilon=1.0, delta=1e-3, algorithm_options={"noise": "shared"}
    )
    planned, seen = plan(parameters, [ROWS] * PARTIES, features=FEATURES), []

    def on_round(done, models):
        seen.append(models)
        if done == stop_after:
            raise KeyboardInterrupt

    exchange, noise = Covering(planned.algorithm.summation, key), DiscreteNoise()
    ledgers = [SQLiteLedger(path) for path in paths]
    runs = open_runs(planned, ledgers, "covered", noise)
    try:
        run(
            planned.algorithm,
            planned.site,
            Workspace(make_shard(), planned.site),
            rounds=ROUNDS,
            exchange=exchange,
            ledgers=runs,
            noise=noise,
            checkpoint=checkpoint,
            on_round=on_round,
        )
    except KeyboardInterrupt:
        pass
    finally:
        for each, ledger in zip(runs, ledgers, strict=True):
            each.close()
            ledger.close()
    return exchange, np.array(seen)


def test_in_one_process_a_ledger_keeps_the_summand_under_its_share_alone(paths):
    # As docs/ledger.md warns: whoever gets an export with messages needs no other party's word.
    parameters = TrainingParameters(
        "dp-gd", rounds=1, epsilon=1.0, delta=1e-3, algorithm_options={"noise": "shared"}
    )
    planned = plan(parameters, [ROWS] * PARTIES, features=FEATURES)
    train_once(paths, planned=planned, source=DiscreteNoise)
    summation, kept = planned.algorithm.summation, []
    for path in paths:
        with SQLiteLedger(path, read_only=True) as ledger:
            *_, last = (row for row in ledger.export(messages=True) if "message" in row)
        kept.append(np.frombuffer(bytes.fromhex(last["message"])))
    steps = np.array(kept) / summation.step
    np.testing.assert_array_equal(steps, np.rint(steps))
    # Words under masks are uniform: read as numbers they are no multiples, nor within the bound.
    assert 0 < np.abs(kept).max() <= summation.bound


def test_what_was_covered_is_sent_again_and_not_covered_again(paths):
    first, models = cover_once(paths, 1, stop_after=2)
    again, rest = cover_once(paths, 2)
    assert first.covered == [0, 1]
    assert again.covered == [2, 3]
    np.testing.assert_array_equal(np.array(first.sent), np.array(again.sent[:2]))
    np.testing.assert_array_equal(models, rest[:2])
    last, same = cover_once(paths, 3)
    assert last.covered == []
    np.testing.assert_array_equal(np.array(last.sent), np.array(again.sent))
    np.testing.assert_array_equal(same, rest)


def test_a_checkpoint_holds_the_words_of_the_ledger(paths, tmp_path):
    checkpoint = Checkpoint(tmp_path / "checkpoint", every=2)
    _, models = cover_once(paths, 1, stop_after=3, checkpoint=checkpoint)
    again, rest = cover_once(paths, 2, checkpoint=checkpoint)
    assert again.covered == [3]
    np.testing.assert_array_equal(rest[0], models[2])
