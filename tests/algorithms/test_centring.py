"""Rows around their mean: the map and its formula, rows mapped one by one, and what it costs."""

import dataclasses
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import sparse
from tests.helpers.row_parts import parted_shard

from dpadmm import ADMMClassifier
from dpadmm.audit.witness import SilentNoise
from dpadmm.errors import ParameterError
from dpadmm.privacy.accountant import epsilon_spent
from dpadmm.privacy.noise import SimulatedNoise
from dpadmm.problem.centring import (
    LEAST_LENGTH,
    centring_map,
    largest_stretch,
    mapped,
    mapped_back,
    row_lengths,
)
from dpadmm.problem.losses import LOSSES
from dpadmm.problem.rows import Shard
from dpadmm.run.engine import Checkpoint, InProcess, MemoryLedger, run
from dpadmm.run.options import TrainingParameters
from dpadmm.run.plan import announced, plan
from dpadmm.run.session import train
from dpadmm.solvers.workspace import Workspace

COUNTS, FEATURES, ROUNDS = (30, 45, 25, 60), 6, 12
LEAST = 1 / math.sqrt(FEATURES)


def planned_of(
    counts=COUNTS, *, rounds=ROUNDS, outputs=1, features=FEATURES, runs=1, least=LEAST, **changes
):
    options = {"center": "on", **changes.pop("options", {})}
    told = {"epsilon": 2.0, "delta": 1e-3, "loss": "huber-hinge", "regularization": 0.1}
    return plan(
        TrainingParameters("dp-gd", rounds=rounds, algorithm_options=options, **(told | changes)),
        counts,
        features=features,
        outputs=outputs,
        runs=runs,
        least_constant=least,
    )


def parties_of(counts=COUNTS, outputs=1, features=FEATURES, seed=0):
    """Mostly positive columns, some zeros, and a constant."""
    random = np.random.default_rng([seed, outputs])
    found = []
    for count in counts:
        rows = random.uniform(0, 1, (count, features)) * (random.random((count, features)) < 0.6)
        rows[:, -1] = 1.0
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        found.append((rows, random.choice([-1.0, 1.0], size=(count, outputs))))
    return found


def laid_out(parties, layout):
    if layout == "parted":
        return parted_shard(parties, lambda rows: (rows // 3, rows - rows // 3))
    if layout == "sparse":
        parties = [(sparse.csr_array(rows), labels) for rows, labels in parties]
    return Shard.from_parties(parties)


def models_of(planned, shard, noise):
    seen = []
    train(planned, shard, noise=noise, on_round=lambda done, model: seen.append(model.copy()))
    return np.array(seen)


# -- the map --------------------------------------------------------------------------------------


@pytest.mark.parametrize("spread", [0.0, 0.01, 0.2, 3.0])
def test_the_map_is_that_of_its_formula(spread):
    random = np.random.default_rng(3)
    mean, least = np.append(random.normal(0, 0.3, 7), 0.4), 0.35
    shift = centring_map(mean, spread, least)
    a, constant, d = mean[:-1], max(mean[-1], least), 8
    phi = max(0.0, 1 - spread**2 * (d - 1) / (a @ a))
    g = np.clip(phi * a / constant, -1, 1)
    var = max(
        0.02,
        1
        - constant**2
        - sum(2 * a[j] * g[j] * constant - (g[j] * constant) ** 2 for j in range(7))
        + (d - 1) * spread**2 * (2 * phi - phi**2),
    )
    np.testing.assert_allclose(shift[:-1], g, rtol=1e-13, atol=1e-15)
    assert shift[-1] == pytest.approx(0.3 * math.sqrt(var) / constant, rel=1e-13)


@pytest.mark.parametrize("size", [0.0, 1e-9, 0.1, 1.0, 1e6])
def test_no_message_stretches_rows_further_than_is_counted(size):
    random = np.random.default_rng(5)
    for spread in (0.0, 0.1, 2.0):
        means = size * random.normal(size=(200, FEATURES))
        shifts = centring_map(means, spread, LEAST)
        assert np.isfinite(shifts).all()
        for shift in shifts:
            matrix = np.stack([mapped(unit, shift) for unit in np.eye(FEATURES)], axis=1)
            stretched = np.linalg.norm(matrix, 2)
            assert stretched <= largest_stretch(FEATURES, spread, LEAST)


def test_the_way_back_is_the_transpose():
    random = np.random.default_rng(1)
    shift = np.append(random.uniform(-1, 1, FEATURES - 1), 0.7)
    row, model = random.normal(size=(2, FEATURES))
    assert mapped(row, shift) @ model == pytest.approx(row @ mapped_back(model, shift), rel=1e-13)


@pytest.mark.parametrize("layout", ["dense", "sparse"])
def test_no_mapped_row_is_longer_than_one(layout):
    random = np.random.default_rng(2)
    worst = Fraction(0)
    for attempt in range(60):
        shift = np.append(random.uniform(-1, 1, FEATURES - 1), 10.0 ** random.uniform(-3, 1))
        # Rows that the map leaves almost nothing of, others, and one of zeros.
        rows = random.normal(size=(8, FEATURES))
        rows[:4, :-1] = shift[:-1] * rows[:4, -1:] * (1 + 10.0 ** random.uniform(-16, 0))
        rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1.0)
        rows[7] *= attempt % 2
        given = sparse.csr_array(rows) if layout == "sparse" else rows[None]
        lengths = row_lengths(given, shift[None, None])[0, :, 0]
        assert (lengths <= 1 / LEAST_LENGTH).all()
        for row, length in zip(rows, lengths, strict=True):
            pairs = zip(row[:-1], shift[:-1], strict=True)
            exact = [Fraction(x) - Fraction(g) * Fraction(row[-1]) for x, g in pairs]
            exact.append(Fraction(shift[-1]) * Fraction(row[-1]))
            square = Fraction(length) ** 2 * sum(each**2 for each in exact)
            assert square <= 1 + Fraction(1, 10**15)
            worst = max(worst, square)
    assert worst > 1 - Fraction(1, 10**9)


# -- the run --------------------------------------------------------------------------------------


def written_out(parties, algorithm, site, rounds):
    """The whole algorithm on mapped rows, one by one, without noise."""
    rows, labels = (np.concatenate(each) for each in zip(*parties, strict=True))
    shift = centring_map(rows.mean(axis=0), algorithm.mean_row_noise, site.least_constant)
    moved = mapped(rows, shift)
    moved /= np.maximum(np.linalg.norm(moved, axis=1, keepdims=True), LEAST_LENGTH)
    z = v = np.zeros((labels.shape[1], rows.shape[1]))
    models = [z]
    for _ in range(rounds - 1):
        slopes = LOSSES["huber-hinge"].slope(moved @ z.T * labels)
        slopes /= np.maximum(np.linalg.norm(slopes, axis=1, keepdims=True), 1.0)
        v = algorithm.momentum * v + (slopes * labels).T @ moved / len(rows)
        v += site.regularization / site.parties * z
        z = z - algorithm.step * v
        models.append(mapped_back(z, shift))
    return np.array(models)


@pytest.mark.parametrize("layout", ["stacked", "sparse", "parted"])
@pytest.mark.parametrize("outputs", [1, 4])
@pytest.mark.parametrize("noise", ["own", "shared"])
def test_a_run_trains_on_rows_that_are_mapped_one_by_one(layout, outputs, noise):
    planned = planned_of(outputs=outputs, options={"noise": noise})
    parties = parties_of(outputs=outputs)
    seen = models_of(planned, laid_out(parties, layout), SilentNoise())
    expected = written_out(parties, planned.algorithm, planned.site, ROUNDS)
    np.testing.assert_allclose(seen[:, 0, 0], expected, atol=1e-10)
    assert (seen == seen[:, :1]).all()


def test_repeated_runs_have_a_map_each():
    planned, parties = planned_of(runs=3, outputs=3), parties_of(outputs=3)
    together = models_of(planned, Shard.from_parties(parties), SimulatedNoise(4))
    assert not np.allclose(together[:, :, 0], together[:, :, 1])
    alone = models_of(planned_of(outputs=3), Shard.from_parties(parties), SimulatedNoise(4))
    np.testing.assert_allclose(together[:, :, :1], alone, atol=1e-10)


def test_a_large_party_gives_what_a_stack_gives(monkeypatch):
    planned, parties = planned_of((60,)), parties_of((60,))
    stacked = models_of(planned, Shard.from_parties(parties), SimulatedNoise(4))
    monkeypatch.setattr("dpadmm.problem.rows._PIECE_BYTES", 8 * FEATURES * 64)
    pieces = models_of(planned, Shard.from_parties(parties), SimulatedNoise(4))
    np.testing.assert_allclose(pieces, stacked, atol=1e-12)


@pytest.mark.parametrize("noise", ["own", "shared"])
@pytest.mark.parametrize("topology", ["server", "complete"])
def test_a_party_alone_computes_what_the_site_of_all_does(noise, topology):
    planned = planned_of(options={"noise": noise}, topology=topology)
    parties, site, algorithm = parties_of(), planned.site, planned.algorithm
    state = algorithm.init(site)
    for t in range(3):
        together = algorithm.local_step(
            state, Workspace(Shard.from_parties(parties), site), site, SimulatedNoise(2), t
        )
        for place in range(len(COUNTS)):
            own = planned.of_party(place)
            here = type(state)(*(part[[place]] for part in state))
            shard = Shard.from_parties([parties[place]])
            message = own.algorithm.local_step(
                here, Workspace(shard, own.site), own.site, SimulatedNoise(2), t
            )
            assert message.events == together.events[place : place + 1]
            np.testing.assert_allclose(message.values[0], together.values[place], atol=1e-10)
        inbox = together.values
        if algorithm.hears_mean(site):
            inbox = inbox.mean(axis=0, keepdims=True)
        state = algorithm.absorb(state, together.values, inbox, site, t)


# -- what it costs --------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", ["own", "shared"])
@pytest.mark.parametrize("people", [1, 2])
def test_the_first_round_has_a_twentieth_of_the_budget(noise, people):
    planned = planned_of(options={"noise": noise}, rows_per_person=people, outputs=3)
    shares = []
    for events in announced(planned):
        squares = [(event.sensitivity / event.sigma) ** 2 for event in events]
        shares.append(squares[0] / sum(squares))
        spent = epsilon_spent(events, 1e-3 * (1 - 1e-9), rows_per_person=people).epsilon
        assert spent <= 2.0
        assert squares[1:] == squares[1:2] * (ROUNDS - 1)
    np.testing.assert_allclose(shares, 0.05, rtol=1e-4)
    assert max(
        epsilon_spent(events, 1e-3 * (1 - 1e-9), rows_per_person=people).epsilon
        for events in announced(planned)
    ) == pytest.approx(2.0, rel=1e-6)


def test_the_statement_says_what_centring_takes():
    rows, labels = parties_of((400,))[0]
    model = ADMMClassifier("dp-gd", n_parties=4, rounds=20, delta=1e-3, random_state=0)
    model.fit(rows[:, :-1], labels.ravel())
    assert "5% of the budget centres the rows" in str(model.privacy_)
    model.set_params(algorithm_options={"center": "off"}).fit(rows[:, :-1], labels.ravel())
    assert "centres" not in str(model.privacy_)


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("noise", ["own", "shared"])
@pytest.mark.parametrize("layout", ["stacked", "sparse"])
def test_one_row_moves_a_summand_by_no_more_than_its_sensitivity(noise, outputs, layout):
    counts = (5, 9, 4)
    planned = planned_of(counts, outputs=outputs, options={"noise": noise}, rounds=3)
    algorithm, site = planned.algorithm, planned.site
    worst = [0.0, 0.0]
    random = np.random.default_rng(outputs)
    for attempt in range(40):
        parties = parties_of(counts, outputs, seed=attempt)
        # Any map that messages can lead to, and any model.
        mean = 10.0 ** random.uniform(-2, 3) * random.normal(size=FEATURES)
        shift = centring_map(mean, algorithm.mean_row_noise, site.least_constant)
        state = algorithm.init(site)._replace(shift=np.broadcast_to(shift, (3, 1, 1, FEATURES)))
        model = random.normal(size=(outputs, FEATURES)) * (attempt % 2)
        state = state._replace(model=np.broadcast_to(model, site.shape))
        row = random.normal(size=FEATURES)
        row[-1] *= attempt % 3
        row /= np.linalg.norm(row)
        # The opposite row, and one that the map leaves almost nothing of.
        other = -row if attempt % 4 else np.append(shift[:-1], 1.0)
        other /= max(1.0, np.linalg.norm(other))
        sent = []
        for replaced in (row, other):
            rows, labels = (each.copy() for each in parties[0])
            rows[0], labels[0] = replaced, 1.0
            workspace = Workspace(laid_out([(rows, labels), *parties[1:]], layout), site)
            sent.append(
                [
                    algorithm.local_step(state, workspace, site, SilentNoise(), t).values[0]
                    for t in (0, 1)
                ]
            )
        for t in (0, 1):
            moved = float(np.linalg.norm(sent[0][t] - sent[1][t]))
            worst[t] = max(worst[t], moved)
    for t in (0, 1):
        charged = announced(planned)[0][t].sensitivity
        assert 0.9999 * charged < worst[t] <= charged


def test_the_map_comes_from_messages_alone():
    # Rows that differ and messages that do not: the same state, hence the same map.
    planned = planned_of()
    algorithm, site = planned.algorithm, planned.site
    message = np.random.default_rng(0).normal(size=site.shape)
    inbox = message.mean(axis=0, keepdims=True)
    one = algorithm.absorb(algorithm.init(site), message, inbox, site, 0)
    other = algorithm.absorb(algorithm.init(site), message, inbox, site, 0)
    np.testing.assert_array_equal(one.shift, other.shift)
    expected = centring_map(inbox[0, 0, 0], algorithm.mean_row_noise, LEAST)
    np.testing.assert_allclose(one.shift[0, 0, 0], expected, rtol=1e-14)
    later = algorithm.absorb(one, message, inbox, site, 1)
    assert later.shift is one.shift


def test_noise_of_the_first_round_is_noise_of_the_mean_row():
    planned = planned_of(runs=3000)
    algorithm, site = planned.algorithm, planned.site
    workspace = Workspace(Shard.from_parties(parties_of()), site)
    sent = algorithm.local_step(algorithm.init(site), workspace, site, SimulatedNoise(1), 0).values
    spread = sent.mean(axis=0)[:, 0].std(axis=0)
    np.testing.assert_allclose(spread, algorithm.mean_row_noise, rtol=0.1)


# -- a checkpoint ---------------------------------------------------------------------------------


@pytest.mark.parametrize("every", [1, 4])
def test_a_run_goes_on_with_the_map_that_was_released(tmp_path, every):
    planned, parties = planned_of(), parties_of()
    whole = models_of(planned, Shard.from_parties(parties), SimulatedNoise(3))

    class Stopped(Exception):
        pass

    def stop(done, models):
        if done == 7:
            raise Stopped

    def go_on(on_round):
        run(
            planned.algorithm,
            planned.site,
            Workspace(Shard.from_parties(parties), planned.site),
            rounds=ROUNDS,
            exchange=InProcess(server=True),
            ledgers=[MemoryLedger() for _ in COUNTS],
            noise=SimulatedNoise(3),
            checkpoint=Checkpoint(tmp_path / "saved", every),
            on_round=on_round,
        )

    with pytest.raises(Stopped):
        go_on(stop)
    seen = []
    go_on(lambda done, models: seen.append(models.copy()))
    assert 0 < len(seen) < ROUNDS
    np.testing.assert_array_equal(np.array(seen), whole[-len(seen) :])


# -- the public rule ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "centres"),
    [
        ({"counts": (4000,) * 5}, True),
        ({"counts": (4000,) * 5, "rounds": 9}, False),
        ({"counts": (4000,) * 5, "least": None}, False),
        ({"counts": (4000,) * 5, "features": 3}, False),
        ({"counts": (4000,) * 5, "features": 4}, True),
        ({"counts": (4000,) * 5, "options": {"center": "off"}}, False),
        ({"counts": (40,) * 5, "epsilon": 0.1}, False),
        ({"counts": (40,) * 5, "epsilon": 0.1, "options": {"center": "on"}}, True),
        ({"counts": (4000,) * 5, "outputs": 3}, True),
        ({"counts": (400_000,) * 5, "outputs": 3, "epsilon": 0.1}, False),
        ({"counts": (400_000,) * 5, "epsilon": 0.1}, True),
    ],
)
def test_the_rule_is_public(changes, centres):
    options = {"center": "auto", **changes.pop("options", {})}
    planned = planned_of(**({"rounds": 50, "delta": 1e-7} | changes), options=options)
    assert planned.algorithm.centres == centres
    assert planned.algorithm.decided_options == {"center": "on" if centres else "off"}


def test_the_rule_asks_for_the_noise_at_a_tenth_of_the_budget():
    def level(count):
        planned = planned_of((count,) * 5, options={"center": "on"}, rounds=50, delta=1e-5)
        # At a tenth of the budget in place of a twentieth.
        spread = planned.algorithm.mean_row_noise / math.sqrt(2)
        auto = planned_of((count,) * 5, options={"center": "auto"}, rounds=50, delta=1e-5)
        return spread * math.sqrt(FEATURES), auto.algorithm.centres

    for count in range(5, 60):
        size, centres = level(count)
        if abs(size - 1) > 1e-4:
            assert centres == (size < 1)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"least": None}, "rows must have a constant"),
        ({"rounds": 1}, "rounds must be at least 2"),
    ],
)
def test_what_cannot_be_centred_is_refused(changes, words):
    with pytest.raises(ParameterError, match=words):
        planned_of(**changes)


def test_a_loss_before_the_mean_row_is_known_costs_rounds():
    from dpadmm.federation.recovery import Decision

    planned = planned_of(rounds=100)
    cost = planned.algorithm.round_cost(0)
    assert cost == pytest.approx(0.05 / (0.95 / 99), rel=1e-6)
    assert planned.algorithm.round_cost(1) == 1.0
    # Known to all: rounds that were not sent are left, as ever.
    assert Decision("x", 5, 7).rounds(100, planned, planned) == 98
    # One of them had sent it: it is released again, in the place of several gradients.
    left = Decision("x", 0, 1).rounds(100, planned, planned)
    assert cost + (left - 1) <= 99 < cost + left
    assert Decision("x", 0, 0).rounds(100, planned, planned) == 100


def test_the_model_is_in_the_columns_as_they_were():
    random = np.random.default_rng(0)
    rows = random.uniform(0, 1, size=(3000, 4))
    labels = rows @ [1.0, -1.0, 0.5, 0.0] > 0.25
    told = {"n_parties": 3, "data_norm": 2.0, "epsilon": 8.0, "delta": 1e-5, "random_state": 0}
    centred = ADMMClassifier("dp-gd", **told).fit(rows, labels)
    plain = ADMMClassifier("dp-gd", algorithm_options={"center": "off"}, **told).fit(rows, labels)
    np.testing.assert_allclose(
        centred.decision_function(rows), rows @ centred.coef_[0] + centred.intercept_[0]
    )
    assert centred.score(rows, labels) > plain.score(rows, labels) > 0.8
    cosine = centred.coef_[0] @ [1.0, -1.0, 0.5, 0.0] / np.linalg.norm(centred.coef_) / 1.5
    assert cosine > 0.9


def test_several_classes_and_dense_rows_agree_with_sparse_ones():
    planned, parties = planned_of(outputs=3), parties_of(outputs=3)
    dense = models_of(planned, laid_out(parties, "stacked"), SimulatedNoise(9))
    thin = models_of(planned, laid_out(parties, "sparse"), SimulatedNoise(9))
    np.testing.assert_allclose(thin, dense, atol=1e-10)
    assert dataclasses.replace(planned.site, runs=2).least_constant == LEAST
