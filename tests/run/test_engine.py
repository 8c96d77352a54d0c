import dataclasses
import json
from types import SimpleNamespace

import numpy as np
import pytest
from tests.helpers import oracles

from dpadmm.algorithms.admm import ADMM
from dpadmm.algorithms.base import Algorithm, Settings
from dpadmm.algorithms.consensus_admm import ConsensusADMM
from dpadmm.errors import ConvergenceError, DataError, ExchangeError, ParameterError
from dpadmm.ledger.base import Ledger
from dpadmm.privacy.events import NON_PRIVATE, NonPrivate, PostProcessing, event_from_dict
from dpadmm.privacy.mechanisms import Released, release_unprotected
from dpadmm.privacy.noise import SimulatedNoise
from dpadmm.problem.losses import LOSSES, get_loss
from dpadmm.problem.rows import Shard
from dpadmm.problem.site import Site, build_topology
from dpadmm.run.engine import Checkpoint, Exchange, InProcess, MemoryLedger, run
from dpadmm.run.options import TrainingParameters
from dpadmm.run.plan import plan
from dpadmm.solvers.workspace import Workspace

# The setting of the convergence evidence: N = 6, 60 to 200 rows, d = 5, lambda = .05, c = 1.
COUNTS = (60, 85, 110, 140, 170, 200)
LAM = 0.05


def site_of(counts=COUNTS, topology="ring", *, loss="logistic", features=5, runs=1, weight="equal"):
    return Site.of_all(
        np.array(counts),
        build_topology(topology, len(counts)),
        get_loss(loss),
        features=features,
        regularization=LAM,
        runs=runs,
        party_weight=weight,
    )


def workspace_of(parties, site):
    return Workspace(
        Shard.from_parties([(rows, labels[:, None]) for rows, labels in parties]), site
    )


def train(algorithm, site, parties, rounds, **extra):
    extra.setdefault("ledgers", [MemoryLedger() for _ in site.index])
    extra.setdefault("exchange", InProcess(server=site.topology.server))
    extra.setdefault("noise", SimulatedNoise(0))
    return run(algorithm, site, workspace_of(parties, site), rounds=rounds, **extra)


def messages_of(algorithm, site, parties, rounds, **extra):
    seen = []
    outcome = train(
        algorithm, site, parties, rounds, on_round=lambda t, y: seen.append(y.copy()), **extra
    )
    return np.array(seen), outcome


def neighbours_of(site):
    return [site.topology.neighbours(party) for party in range(site.parties)]


# -- against the papers' equations --------------------------------------------------------------


@pytest.mark.parametrize("topology", ["ring", "star", "path", "complete"])
@pytest.mark.parametrize("weight", ["equal", "rows"])
def test_admm_is_the_paper_s_iteration(topology, weight):
    counts = (20, 9, 31, 14)
    parties = oracles.random_parties(1, counts, 3)
    site = site_of(counts, topology, features=3, weight=weight)
    seen, _ = messages_of(ADMM(0.05, 1e-12), site, parties, 12)
    expected, _ = oracles.decentralised_admm(
        parties, neighbours_of(site), rounds=12, eta=0.05, lam=LAM, weights=site.weight
    )
    np.testing.assert_allclose(seen[:, :, 0, 0], expected, atol=1e-8)


@pytest.mark.parametrize("loss", sorted(LOSSES))
def test_admm_is_the_paper_s_iteration_for_every_loss(loss):
    counts = (20, 9, 31)
    parties = oracles.random_parties(2, counts, 3)
    site = site_of(counts, features=3, loss=loss)
    seen, _ = messages_of(ADMM(0.1, 1e-12), site, parties, 8)
    expected, _ = oracles.decentralised_admm(
        parties, neighbours_of(site), rounds=8, eta=0.1, lam=LAM, weights=[1, 1, 1], loss=loss
    )
    np.testing.assert_allclose(seen[:, :, 0, 0], expected, atol=1e-8)


@pytest.mark.parametrize("weight", ["equal", "rows"])
def test_consensus_admm_is_the_server_s_own_formula(weight):
    counts = (20, 9, 31, 14)
    parties = oracles.random_parties(3, counts, 3)
    site = site_of(counts, "server", features=3, weight=weight)
    algorithm = ConsensusADMM(0.1, 1e-12)
    seen, _ = messages_of(algorithm, site, parties, 15)
    expected, z, duals = oracles.consensus_admm(
        parties, rounds=15, rho=0.1, lam=LAM, weights=site.weight
    )
    np.testing.assert_allclose(seen[:, :, 0, 0], expected, atol=1e-8)
    state = algorithm.init(site)
    for t, message in enumerate(seen):
        inbox = message.mean(axis=0, keepdims=True)
        state = algorithm.absorb(state, message, inbox, site, t)
    np.testing.assert_allclose(state.consensus[2, 0, 0], z, atol=1e-8)
    np.testing.assert_allclose(state.dual[:, 0, 0], duals, atol=1e-8)


@pytest.mark.parametrize("topology", ["ring", "random", "star"])
def test_the_duals_add_up_to_zero_and_are_twice_the_paper_s(topology):
    parties = oracles.random_parties(4, COUNTS, 5)
    site = site_of(topology=topology)
    algorithm = ADMM(0.05, 1e-11)
    seen, _ = messages_of(algorithm, site, parties, 10)
    state = algorithm.init(site)
    for t, message in enumerate(seen):
        state = algorithm.absorb(state, message, message, site, t)
        assert np.abs(state.dual.sum(axis=0)).max() < 1e-13
    _, halved = oracles.decentralised_admm(
        parties, neighbours_of(site), rounds=10, eta=0.05, lam=LAM, weights=np.ones(6)
    )
    np.testing.assert_allclose(state.dual[:, 0, 0], 2 * halved, atol=1e-8)


@pytest.mark.parametrize("topology", ["ring", "path", "star", "complete"])
def test_it_converges_to_the_pooled_optimum(topology):
    parties = oracles.random_parties(5, COUNTS, 5)
    site = site_of(topology=topology)
    outcome = train(ADMM(0.02, 1e-10), site, parties, 400)
    expected = oracles.pooled_optimum(parties, lam=LAM, weights=np.ones(6))
    assert np.linalg.norm(outcome.last[:, 0, 0] - expected, axis=-1).max() < 1e-6
    assert outcome.history.disagreement[-1, 0] < 1e-6


def test_consensus_admm_converges_to_the_weighted_pooled_optimum():
    parties = oracles.random_parties(6, COUNTS, 5)
    site = site_of(topology="server", weight="rows")
    outcome = train(ConsensusADMM(0.05, 1e-10), site, parties, 400)
    expected = oracles.pooled_optimum(parties, lam=LAM, weights=site.weight)
    assert np.linalg.norm(outcome.last[:, 0, 0] - expected, axis=-1).max() < 1e-6


@pytest.mark.parametrize(
    ("algorithm", "topology"), [(ADMM(0.3, 1e-10), "ring"), (ConsensusADMM(0.3, 1e-10), "server")]
)
def test_one_party_alone_is_an_ordinary_classifier(algorithm, topology):
    parties = oracles.random_parties(7, (50,), 5)
    outcome = train(algorithm, site_of((50,), topology), parties, 300)
    expected = oracles.pooled_optimum(parties, lam=LAM, weights=[1.0])
    np.testing.assert_allclose(outcome.last[0, 0, 0], expected, atol=1e-6)


# -- runs, history, output ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("algorithm", "topology"), [(ADMM(0.05, 1e-12), "ring"), (ConsensusADMM(0.1, 1e-12), "server")]
)
def test_runs_together_are_the_runs_apart(algorithm, topology):
    parties = oracles.random_parties(8, COUNTS, 5)
    together = train(algorithm, site_of(topology=topology, runs=3), parties, 12)
    alone = train(algorithm, site_of(topology=topology), parties, 12)
    for number in range(3):
        np.testing.assert_allclose(together.last[:, [number]], alone.last, atol=1e-10)
        np.testing.assert_allclose(together.tail[:, [number]], alone.tail, atol=1e-10)
        np.testing.assert_allclose(
            together.history.change[:, [number]], alone.history.change, atol=1e-9
        )


@pytest.mark.parametrize("rounds", [1, 2, 3, 7])
def test_last_tail_and_history_are_functions_of_the_messages(rounds):
    parties = oracles.random_parties(9, COUNTS, 5)
    seen, outcome = messages_of(ADMM(0.05, 1e-9), site_of(runs=2), parties, rounds)
    np.testing.assert_array_equal(outcome.last, seen[-1])
    third = max(1, rounds // 3)
    np.testing.assert_allclose(outcome.tail, seen[-third:].mean(axis=0), atol=1e-15)
    np.testing.assert_allclose(outcome.mean, np.mean(seen, axis=0), atol=1e-15)
    means = seen.mean(axis=1)
    before = np.concatenate([np.zeros_like(means[:1]), means[:-1]])
    change = np.linalg.norm(means - before, axis=-1)[..., 0]
    apart = np.linalg.norm(seen - means[:, None], axis=-1)[..., 0].max(axis=1)
    np.testing.assert_allclose(outcome.history.change, change, atol=1e-14)
    np.testing.assert_allclose(outcome.history.disagreement, apart, atol=1e-14)
    assert outcome.events == ((NON_PRIVATE,) * rounds,) * 6


# -- checkpoints --------------------------------------------------------------------------------


class Killed(Exception):
    pass


def kill_after(rounds):
    def on_round(done, message):
        if done == rounds:
            raise Killed

    return on_round


CASES = [(ADMM(0.05, 1e-9), "ring"), (ConsensusADMM(0.1, 1e-9), "server")]


@pytest.mark.parametrize(("algorithm", "topology"), CASES)
@pytest.mark.parametrize("killed_at", [3, 4, 11])
def test_a_killed_run_resumes_bit_for_bit(tmp_path, algorithm, topology, killed_at):
    parties = oracles.random_parties(10, COUNTS, 5)
    site = site_of(topology=topology, runs=2)
    whole, expected = messages_of(algorithm, site, parties, 15)
    place = Checkpoint(tmp_path / "run.npz", every=4)
    with pytest.raises(Killed):
        train(algorithm, site, parties, 15, checkpoint=place, on_round=kill_after(killed_at))
    done = killed_at // 4 * 4
    assert place.path.exists() == (done > 0)
    seen, resumed = messages_of(algorithm, site, parties, 15, checkpoint=place)
    np.testing.assert_array_equal(seen, whole[done:])
    np.testing.assert_array_equal(resumed.last, expected.last)
    np.testing.assert_array_equal(resumed.tail, expected.tail)
    np.testing.assert_array_equal(resumed.mean, expected.mean)
    np.testing.assert_array_equal(resumed.history.change, expected.history.change)
    np.testing.assert_array_equal(resumed.history.disagreement, expected.history.disagreement)
    assert resumed.events == expected.events
    assert [path.name for path in tmp_path.iterdir()] == ["run.npz"]


def test_a_finished_run_is_not_computed_again(tmp_path):
    parties = oracles.random_parties(10, COUNTS, 5)
    place = Checkpoint(tmp_path / "run.npz", every=5)
    first = train(ADMM(0.05, 1e-9), site_of(), parties, 10, checkpoint=place)
    seen, again = messages_of(ADMM(0.05, 1e-9), site_of(), parties, 10, checkpoint=place)
    assert len(seen) == 0
    np.testing.assert_array_equal(again.last, first.last)
    assert again.events == first.events


@pytest.fixture
def saved(tmp_path):
    parties = oracles.random_parties(11, COUNTS, 5)
    place = Checkpoint(tmp_path / "run.npz", every=2)
    train(ADMM(0.05, 1e-9), site_of(), parties, 4, checkpoint=place)
    return parties, place


OTHERS = {
    "penalty": (ADMM(0.06, 1e-9), {}, 4),
    "tolerance": (ADMM(0.05, 1e-8), {}, 4),
    "rounds": (ADMM(0.05, 1e-9), {}, 5),
    "topology": (ADMM(0.05, 1e-9), {"topology": "star"}, 4),
    "loss": (ADMM(0.05, 1e-9), {"loss": "huber-hinge"}, 4),
    "weight": (ADMM(0.05, 1e-9), {"weight": "rows"}, 4),
    "runs": (ADMM(0.05, 1e-9), {"runs": 2}, 4),
    "algorithm": (ConsensusADMM(0.05, 1e-9), {"topology": "server"}, 4),
}


@pytest.mark.parametrize("other", sorted(OTHERS))
def test_a_checkpoint_of_another_run_is_refused(saved, other):
    parties, place = saved
    algorithm, changes, rounds = OTHERS[other]
    with pytest.raises(ParameterError, match="must belong to this run") as refusal:
        train(algorithm, site_of(**changes), parties, rounds, checkpoint=place)
    assert str(place.path) in str(refusal.value)


def test_a_checkpoint_of_other_rows_is_refused(saved):
    # What the solver kept is about the old rows: resuming with it would certify a wrong residual.
    parties, place = saved
    rows, labels = parties[3]
    changed = rows.copy()
    changed[7] = -changed[7]
    for party in ((changed, labels), (rows, np.where(np.arange(140) == 7, -labels, labels))):
        others = [*parties[:3], party, *parties[4:]]
        with pytest.raises(ParameterError, match="must belong to this run"):
            train(ADMM(0.05, 1e-9), site_of(), others, 4, checkpoint=place)


def test_a_checkpoint_of_another_noise_key_is_refused(saved):
    parties, place = saved
    with pytest.raises(ParameterError, match="must belong to this run"):
        train(ADMM(0.05, 1e-9), site_of(), parties, 4, checkpoint=place, noise=SimulatedNoise(1))


def damage(kind, path):
    content = path.read_bytes()
    if kind == "empty":
        path.write_bytes(b"")
    elif kind == "truncated":
        path.write_bytes(content[: len(content) // 2])
    elif kind == "text":
        path.write_text("not a checkpoint")
    elif kind == "flipped":
        with np.load(path) as whole:
            place = content.index(whole["last"].tobytes()) + 5
        path.write_bytes(content[:place] + bytes([content[place] ^ 255]) + content[place + 1 :])
    elif kind == "array":
        np.save(path, np.zeros(3))
        path.with_name("run.npz.npy").rename(path)
    else:
        with np.load(path) as old:
            arrays = dict(old)
        if kind == "no header":
            del arrays["header"]
        elif kind == "no state":
            del arrays["state.dual"]
        elif kind == "wrong shape":
            arrays["last"] = arrays["last"][:1]
        elif kind == "bad header":
            arrays["header"] = np.array("{")
        elif kind == "unknown event":
            header = json.loads(str(arrays["header"]))
            header["events"][0][0]["kind"] = "free"
            arrays["header"] = np.array(json.dumps(header))
        with path.open("wb") as file:
            np.savez(file, **arrays)


@pytest.mark.parametrize(
    "kind",
    [
        "empty",
        "truncated",
        "text",
        "flipped",
        "array",
        "no header",
        "no state",
        "bad header",
        "wrong shape",
        "unknown event",
    ],
)
def test_a_damaged_checkpoint_is_refused_in_one_sentence(saved, kind):
    parties, place = saved
    damage(kind, place.path)
    with pytest.raises(ParameterError, match=r"checkpoint .* must be a whole file") as refusal:
        train(ADMM(0.05, 1e-9), site_of(), parties, 4, checkpoint=place)
    assert str(place.path) in str(refusal.value)


@pytest.mark.parametrize("every", [0, -1, 1.5])
def test_a_checkpoint_is_saved_every_positive_number_of_rounds(tmp_path, every):
    with pytest.raises(ParameterError, match="every must be a whole number of at least 1"):
        Checkpoint(tmp_path / "run.npz", every=every)


def test_a_failed_save_leaves_the_old_checkpoint(saved, monkeypatch):
    parties, place = saved
    before = place.path.read_bytes()
    place.path.rename(place.path.with_suffix(".kept"))

    def fail(*args):
        raise OSError("disk full")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(DataError, match="checkpoint must be writable with enough room"):
        train(ADMM(0.05, 1e-9), site_of(), parties, 4, checkpoint=place)
    assert place.path.with_suffix(".kept").read_bytes() == before
    assert [path.name for path in place.path.parent.iterdir()] == ["run.kept"]


# -- the seam -----------------------------------------------------------------------------------


class RecordingLedger(Ledger):
    def __init__(self, log, party):
        self.log, self.party, self._events = log, party, []

    def reserve(self, t, event):
        self.log.append(("reserve", self.party, t))
        self._events.append(event)

    def commit(self, t, message):
        self.log.append(("commit", self.party, t, message.copy()))

    def committed(self, t):
        return None

    def resume(self, events, last):
        self._events = list(events)

    @property
    def events(self):
        return tuple(self._events)


class RecordingExchange(Exchange):
    def __init__(self, log):
        self.log = log

    def __call__(self, message, t):
        self.log.append(("exchange", None, t, message.values.copy()))
        return message.values


@dataclasses.dataclass(frozen=True)
class Wrapped(Algorithm):
    """ADMM whose steps are written to a log and may be tampered with."""

    name = "wrapped"
    paper = "none"

    inner: ADMM
    log: list
    announced: object = NON_PRIVATE
    tamper: object = None

    @classmethod
    def configure(cls, site, settings):
        return cls(ADMM.configure(site, settings), [])

    def init(self, site):
        return self.inner.init(site)

    def announce(self, state, site, t):
        self.log.append(("announce", None, t))
        return (self.announced,) * len(site.index)

    def local_step(self, state, workspace, site, noise, t):
        self.log.append(("local_step", None, t))
        message = self.inner.local_step(state, workspace, site, noise, t)
        return self.tamper(message) if self.tamper else message

    def absorb(self, state, message, inbox, site, t):
        self.log.append(("absorb", None, t))
        return self.inner.absorb(state, message, inbox, site, t)


def recorded(rounds=2, ledger=RecordingLedger, **extra):
    counts = (12, 10, 14)
    site = site_of(counts, features=3)
    log = []
    algorithm = Wrapped(ADMM(0.1, 1e-9), log, **extra)
    ledgers = [ledger(log, party) for party in range(3)]
    parties = oracles.random_parties(12, counts, 3)
    return log, lambda: train(
        algorithm, site, parties, rounds, ledgers=ledgers, exchange=RecordingExchange(log)
    )


def test_every_round_is_reserved_computed_committed_and_then_sent():
    log, go = recorded()
    go()
    names = [(entry[0], entry[1], entry[2]) for entry in log]
    expected = []
    for t in range(2):
        expected.append(("announce", None, t))
        expected += [("reserve", party, t) for party in range(3)]
        expected.append(("local_step", None, t))
        expected += [("commit", party, t) for party in range(3)]
        expected += [("exchange", None, t), ("absorb", None, t)]
    assert names == expected


def test_what_was_committed_is_what_is_sent():
    log, go = recorded()
    go()
    for t in range(2):
        committed = [entry[3] for entry in log if entry[0] == "commit" and entry[2] == t]
        (sent,) = [entry[3] for entry in log if entry[0] == "exchange" and entry[2] == t]
        np.testing.assert_array_equal(committed, sent)


def test_a_release_that_was_announced_as_cheaper_is_not_sent():
    log, go = recorded(announced=PostProcessing())
    with pytest.raises(RuntimeError, match=r"announced PostProcessing.*released NonPrivate"):
        go()
    assert {entry[0] for entry in log} == {"announce", "reserve", "local_step"}


@pytest.mark.parametrize(
    "tamper",
    [
        lambda message: message.values,
        lambda message: SimpleNamespace(values=message.values, events=message.events),
        lambda message: None,
    ],
)
def test_only_what_a_mechanism_made_is_sent(tamper):
    log, go = recorded(tamper=tamper)
    with pytest.raises(TypeError, match="Released"):
        go()
    assert not {"commit", "exchange"} & {entry[0] for entry in log}


def test_a_ledger_that_refuses_stops_the_round_before_rows_are_read():
    class Refusing(RecordingLedger):
        def reserve(self, t, event):
            if self.party == 2 and t == 1:
                raise PermissionError("over budget")
            super().reserve(t, event)

    log, go = recorded(rounds=3, ledger=Refusing)
    with pytest.raises(PermissionError, match="over budget"):
        go()
    assert [entry[2] for entry in log if entry[0] == "local_step"] == [0]


def test_a_ledger_that_cannot_commit_stops_the_message():
    class Full(RecordingLedger):
        def commit(self, t, message):
            raise OSError("disk full")

    log, go = recorded(ledger=Full)
    with pytest.raises(OSError, match="disk full"):
        go()
    assert "exchange" not in {entry[0] for entry in log}


@pytest.mark.parametrize("count", [2, 4])
def test_there_is_one_ledger_per_party(count):
    parties = oracles.random_parties(12, (12, 10, 14), 3)
    with pytest.raises((ParameterError, ValueError)):
        train(
            ADMM(0.1, 1e-9),
            site_of((12, 10, 14), features=3),
            parties,
            2,
            ledgers=[MemoryLedger() for _ in range(count)],
        )


def test_released_is_made_by_mechanisms_only():
    values = np.zeros((2, 1, 1, 3))
    for maker in (None, object(), "maker"):
        with pytest.raises(TypeError, match="mechanisms only"):
            Released(maker, values, (PostProcessing(), PostProcessing()))


def test_released_values_are_a_copy_that_cannot_be_written():
    values = np.zeros((2, 1, 1, 3))
    released = release_unprotected(values)
    values[:] = 7
    np.testing.assert_array_equal(released.values, 0)
    with pytest.raises(ValueError, match="read-only"):
        released.values[0] = 1
    with pytest.raises(AttributeError):
        released.values = values
    with pytest.raises(AttributeError):
        released.extra = 1
    assert released.events == (NON_PRIVATE, NON_PRIVATE)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_is_not_released(value):
    with pytest.raises(ConvergenceError, match="nothing was released"):
        release_unprotected(np.full((1, 1, 1, 2), value))


def test_a_memory_ledger_commits_only_what_was_reserved():
    ledger = MemoryLedger()
    with pytest.raises(RuntimeError, match="round 0 must be reserved"):
        ledger.commit(0, np.zeros(1))
    ledger.reserve(1, NON_PRIVATE)
    ledger.reserve(0, PostProcessing())
    ledger.reserve(0, PostProcessing())
    assert ledger.events == (PostProcessing(), NON_PRIVATE)
    assert ledger.committed(0) is None


@pytest.mark.parametrize("event", [PostProcessing(), NonPrivate()])
def test_events_survive_being_written_down(event):
    assert event_from_dict(json.loads(json.dumps(event.to_dict()))) == event


@pytest.mark.parametrize(
    ("record", "text"),
    [
        ({"kind": "free", "version": 1}, "kind must be one of"),
        ({"version": 1}, "kind must be one of"),
        ({"kind": "non-private", "version": 2}, "must have version 1; got 2"),
        ({"kind": "non-private"}, "must have version 1; got None"),
        ({"kind": "non-private", "version": 1, "epsilon": 0}, "must have the fields"),
    ],
)
def test_an_unknown_event_is_refused_never_ignored(record, text):
    with pytest.raises(ValueError, match=text):
        event_from_dict(record)


def test_simulated_noise_depends_on_its_coordinates_and_on_nothing_else():
    def draw(parties, t, purpose, key=5):
        zero = np.zeros((len(parties), 2, 1, 4))
        return SimulatedNoise(key).add_gaussian(zero, np.ones(1), np.array(parties), t, purpose)

    all_three = draw([0, 1, 2], 7, "output")
    only_two = draw([2, 1], 7, "output")
    np.testing.assert_array_equal(only_two[0], all_three[2])
    np.testing.assert_array_equal(only_two[1], all_three[1])
    draws = [
        all_three,
        draw([0, 1, 2], 7, "output", key=6),
        draw([0, 1, 2], 8, "output"),
        draw([0, 1, 2], 7, "objective"),
    ]
    numbers = np.concatenate([draw.ravel() for draw in draws])
    assert len(np.unique(numbers)) == numbers.size


def test_configured_algorithms_keep_what_they_were_given():
    settings = Settings(rounds=3, penalty=0.25, tolerance=1e-7)
    assert ADMM.configure(site_of(), settings) == ADMM(0.25, 1e-7)


@pytest.mark.parametrize("fault", ["nan", "huge", "shape"])
def test_bad_messages_stop_the_run_before_another_round_is_charged(fault):
    class Faulty(RecordingExchange):
        def __call__(self, message, t):
            inbox = np.array(super().__call__(message, t))
            if fault == "shape":
                return inbox[:, :, :, :-1]
            inbox[0, 0, 0, 0] = np.nan if fault == "nan" else 1e7
            return inbox

    log = []
    parties = oracles.random_parties(12, (12, 10, 14), 3)
    ledgers = [RecordingLedger(log, party) for party in range(3)]
    with pytest.raises(ExchangeError, match="messages must"):
        train(
            ADMM(0.1, 1e-9),
            site_of((12, 10, 14), features=3),
            parties,
            3,
            ledgers=ledgers,
            exchange=Faulty(log),
        )
    assert {entry[2] for entry in log if entry[0] == "reserve"} == {0}


def test_a_run_goes_on_from_the_state_that_another_one_left():
    """Another step, and other weights: what was absorbed before stays as it was absorbed."""

    def planned(step):
        parameters = TrainingParameters(
            "dp-gd", rounds=4, topology="server", algorithm_options={"step": step}
        )
        return plan(parameters, (30, 30, 40), features=5)

    before, after = planned(0.5), planned(0.25)
    parties = oracles.random_parties(0, (30, 30, 40), 5)
    first, second, *_ = messages_of(before.algorithm, before.site, parties, 4)[0]
    sums = []

    class Taped(Exchange):
        def __call__(self, message, t):
            if t >= len(sums):
                sums.append(message.values.mean(axis=0, keepdims=True))
            return sums[t]

    messages_of(before.algorithm, before.site, parties, 2, exchange=Taped())
    models = messages_of(
        after.algorithm,
        after.site,
        parties,
        4,
        exchange=Taped(),
        replayed=[np.zeros(after.site.shape)] * 2,
        absorbed_by=[(before.algorithm, before.site)] * 2,
    )[0]
    np.testing.assert_array_equal(models[0], first)
    np.testing.assert_array_equal(models[1], second)
    velocity = (first - second) / 0.5
    gradient = sums[2] + after.site.regularization / 3 * second[:1]
    wanted = second[0] - 0.25 * (0.9 * velocity[0] + gradient[0])
    np.testing.assert_allclose(models[2][0], wanted, rtol=0, atol=1e-12)
