"""What every registered algorithm keeps to, ours and an outside package's."""

import dataclasses
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse
from tests.helpers import oracles

from dpadmm.algorithms import HISTOGRAM, REGISTRY, algorithm_names, get_algorithm, reviewed
from dpadmm.algorithms.base import Algorithm, Budget, Settings
from dpadmm.errors import ParameterError
from dpadmm.privacy.accountant import epsilon_spent
from dpadmm.privacy.events import Event, PostProcessing
from dpadmm.privacy.mechanisms import Released
from dpadmm.privacy.noise import SimulatedNoise
from dpadmm.problem.losses import get_loss
from dpadmm.problem.rows import Shard
from dpadmm.problem.site import Site, build_topology
from dpadmm.run.engine import InProcess, MemoryLedger, run
from dpadmm.solvers.workspace import Workspace

COUNTS = (14, 25, 9, 40)
FEATURES = 3
ROUNDS = 4

OUTSIDE = '''
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from dpadmm.algorithms.base import Algorithm, Options
from dpadmm.privacy.events import NON_PRIVATE
from dpadmm.privacy.mechanisms import release_unprotected


class OutsideOptions(Options):
    pull: float = 0.5


class State(NamedTuple):
    centre: np.ndarray


@dataclass(frozen=True)
class Outside(Algorithm):
    """Every party pulls its solution towards the mean of what it heard."""

    name: ClassVar[str] = "outside"
    paper: ClassVar[str] = "none"
    options: ClassVar = OutsideOptions

    pull: float
    tolerance: float

    @classmethod
    def configure(cls, site, settings):
        return cls(cls.parse_options(settings.options).pull, settings.plain_tolerance())

    def init(self, site):
        return State(np.zeros(site.shape))

    def announce(self, state, site, t):
        return (NON_PRIVATE,) * len(site.index)

    def local_step(self, state, workspace, site, noise, t):
        convexity = np.full(len(site.index), self.pull + site.regularization)
        pulled = -self.pull * state.centre
        linear = noise.add_gaussian(pulled, np.array(0.01), site.index, t, "objective")
        return release_unprotected(workspace.argmin(linear, convexity, self.tolerance).point)

    def absorb(self, state, message, inbox, site, t):
        return State((message + site.neighbour_sum(inbox)) / site.per_node(1 + site.degree))


class Usurper(Outside):
    name: ClassVar[str] = "admm"


class Histogram(Outside):
    name: ClassVar[str] = "score-histogram"


NOT_ONE = 42
'''

ENTRY_POINTS = """
[dpadmm.algorithms]
outside = outside_package:Outside
laplace-admm = laplace_package:LaplaceADMM
gradient-admm = laplace_package:GradientADMM
admm = outside_package:Outside
usurper = outside_package:Usurper
score-histogram = outside_package:Histogram
number = outside_package:NOT_ONE
function = math:sqrt
base = dpadmm.algorithms.base:Algorithm
missing = no_such_package:Nothing
"""


def contributed():
    """The algorithms of the page on contributing, as one module."""
    page = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text()
    solving, without = re.findall(r"^```python\n(.*?)^```", page, flags=re.MULTILINE | re.DOTALL)
    return f"{solving}\n\n{without}"


@pytest.fixture
def outside(tmp_path, monkeypatch):
    (tmp_path / "outside_package.py").write_text(OUTSIDE)
    # As CONTRIBUTING.md shows it, with a mechanism of its own.
    (tmp_path / "laplace_package.py").write_text(contributed())
    info = tmp_path / "outside_package-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: outside-package\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    for package in ("outside_package", "laplace_package"):
        sys.modules.pop(package, None)


@pytest.fixture(params=[*algorithm_names(), "outside", "laplace-admm", "gradient-admm"])
def name(request):
    if request.param in ("outside", "laplace-admm", "gradient-admm"):
        request.getfixturevalue("outside")
    return request.param


@dataclasses.dataclass(frozen=True)
class Bench:
    """One algorithm on one small problem."""

    algorithm: Algorithm
    site: Site
    parties: list

    def workspace(self, site=None, parties=None):
        columns = [(rows, labels[:, None]) for rows, labels in parties or self.parties]
        return Workspace(Shard.from_parties(columns), site or self.site)

    def run(self, *, site=None, parties=None, key=0, on_round=None):
        site = site or self.site
        return run(
            self.algorithm,
            site,
            self.workspace(site, parties),
            rounds=ROUNDS,
            exchange=InProcess(server=self.algorithm.hears_mean(site)),
            ledgers=[MemoryLedger() for _ in site.index],
            noise=SimulatedNoise(key),
            on_round=on_round,
        )

    def rounds(self, key=0):
        """State before, message and inbox of every round."""
        workspace, noise = self.workspace(), SimulatedNoise(key)
        state = self.algorithm.init(self.site)
        for t in range(ROUNDS):
            message = self.algorithm.local_step(state, workspace, self.site, noise, t)
            inbox = inbox_of(self.site, message.values)
            yield t, state, message, inbox
            state = self.algorithm.absorb(state, message.values, inbox, self.site, t)


def inbox_of(site, values):
    return values.mean(axis=0, keepdims=True) if site.topology.server else values


def site_of(topology, counts=COUNTS, runs=1):
    return Site.of_all(
        np.array(counts),
        topology,
        get_loss("logistic"),
        features=FEATURES,
        regularization=0.1,
        runs=runs,
    )


def bench_of(name, *, runs=1, edges=((0, 1), (1, 2), (2, 3), (0, 2)), counts=COUNTS, people=1):
    algorithm = get_algorithm(name)
    links = "complete" if algorithm.hears_everybody else edges
    topology = build_topology("server" if algorithm.needs_server else links, len(counts))
    site = site_of(topology, counts, runs)
    parties = oracles.random_parties(1, counts, FEATURES)
    return Bench(algorithm.configure(site, settings_for(site, people)), site, parties)


def settings_for(site, people=1, **options):
    """A budget so large that the noise, which private algorithms add, stays small."""
    count = len(site.index)
    budget = Budget(np.full(count, 1e3), np.full(count, 1e-5), people)
    return Settings(rounds=ROUNDS, penalty=0.1, tolerance=2e-13, options=options, budget=budget)


@pytest.fixture
def bench(name):
    return bench_of(name)


def one_party(site, node):
    """The site of a process that computes one party, and which messages reach it."""
    if site.topology.server:
        adjacency, sources = sparse.csr_array(np.ones((1, 1))), None
    else:
        sources = site.topology.neighbours(node)
        adjacency = sparse.csr_array(np.ones((1, len(sources))))
    own = dataclasses.replace(
        site,
        names=site.names[node : node + 1],
        index=site.index[[node]],
        rows=site.rows[[node]],
        degree=site.degree[[node]],
        weight=site.weight[[node]],
        adjacency=adjacency,
    )
    return own, sources


# -- what it is ---------------------------------------------------------------------------------


def test_it_is_named_and_described(name):
    algorithm = get_algorithm(name)
    assert issubclass(algorithm, Algorithm)
    assert algorithm.name == name
    assert algorithm.paper
    assert algorithm.__doc__
    assert reviewed(name) == (name in REGISTRY)


def test_unknown_options_are_refused_with_the_known_ones(name, bench):
    algorithm = get_algorithm(name)
    with pytest.raises(ParameterError, match="no_such_option") as refusal:
        algorithm.configure(bench.site, settings_for(bench.site, no_such_option=1))
    text = str(refusal.value)
    assert f"algorithm_options of {name!r} must be one of" in text
    for known in algorithm.options.model_fields or ["none"]:
        assert known in text


def test_an_option_of_the_wrong_type_is_refused_by_name(name, bench):
    algorithm = get_algorithm(name)
    for option in algorithm.options.model_fields:
        with pytest.raises(ParameterError) as refusal:
            algorithm.configure(bench.site, settings_for(bench.site, **{option: object()}))
        assert option in str(refusal.value)


def test_it_is_frozen_equal_by_value_and_printable(name, bench):
    algorithm = bench.algorithm
    for field in dataclasses.fields(algorithm):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(algorithm, field.name, 1.0)
    assert type(algorithm).__name__ in repr(algorithm)
    assert " at 0x" not in repr(algorithm)
    again = bench_of(name).algorithm
    for field in dataclasses.fields(algorithm):
        np.testing.assert_array_equal(getattr(again, field.name), getattr(algorithm, field.name))


def test_a_private_algorithm_needs_a_budget(name, bench):
    algorithm = get_algorithm(name)
    without = dataclasses.replace(settings_for(bench.site), budget=None)
    if algorithm.private:
        with pytest.raises(ParameterError, match="epsilon and delta must be given"):
            algorithm.configure(bench.site, without)
    else:
        algorithm.configure(bench.site, without)


@pytest.mark.parametrize("people", [1, 3])
def test_what_a_private_algorithm_charges_is_within_its_budget(name, people):
    bench = bench_of(name, people=people)
    if not bench.algorithm.private:
        return
    events = [bench.algorithm.announce(state, bench.site, t) for t, state, _, _ in bench.rounds()]
    for node in range(len(COUNTS)):
        released = [of_round[node] for of_round in events]
        spent = epsilon_spent(released, 1e-5, rows_per_person=people).epsilon
        assert 0 < spent <= 1e3 * (1 + 1e-9), f"the budget is for {people} rows of a person"


# -- what it may see ----------------------------------------------------------------------------


def assert_same_state(first, second):
    assert type(first) is type(second)
    for one, other in zip(first, second, strict=True):
        np.testing.assert_array_equal(one, other)


def test_the_first_state_is_public_and_the_same_everywhere(bench):
    state = bench.algorithm.init(bench.site)
    assert_same_state(state, bench.algorithm.init(bench.site))
    for node in range(len(COUNTS)):
        own, _ = one_party(bench.site, node)
        for mine, all_of_them in zip(bench.algorithm.init(own), state, strict=True):
            np.testing.assert_array_equal(mine, all_of_them[[node]])
            np.testing.assert_array_equal(mine, all_of_them[[0]])


def test_the_state_is_a_named_tuple_of_arrays_over_nodes_runs_outputs_features(name):
    bench = bench_of(name, runs=2)
    for _, state, message, _ in bench.rounds():
        assert isinstance(state, tuple)
        assert state._fields
        assert message.values.shape == bench.site.shape
        for part in state:
            assert isinstance(part, np.ndarray)
            assert part.dtype == np.float64
            assert part.shape[0] == len(COUNTS)
            assert part.shape[-3:-1] == bench.site.shape[-3:-1]
            # Numbers about a vector, such as its length, have 1 where the vector has features.
            assert part.shape[-1] in (bench.site.features, 1)
            assert np.isfinite(part).all()


def test_it_announces_one_event_per_party_and_releases_just_that(bench):
    for t, state, message, _ in bench.rounds():
        announced = bench.algorithm.announce(state, bench.site, t)
        assert isinstance(message, Released)
        assert isinstance(announced, tuple)
        assert len(announced) == len(COUNTS)
        assert all(isinstance(event, Event) for event in announced)
        assert message.events == announced
        assert announced == bench.algorithm.announce(state, bench.site, t)


def test_absorbing_is_a_function_of_messages_that_changes_nothing_in_place(bench):
    for t, state, message, inbox in bench.rounds():
        before = [part.copy() for part in state]
        heard = inbox.copy()
        first = bench.algorithm.absorb(state, message.values, inbox, bench.site, t)
        second = bench.algorithm.absorb(state, message.values, inbox, bench.site, t)
        assert_same_state(first, second)
        for part, old in zip(state, before, strict=True):
            np.testing.assert_array_equal(part, old)
        np.testing.assert_array_equal(inbox, heard)


def test_a_local_step_leaves_the_state_alone(bench):
    workspace, noise = bench.workspace(), SimulatedNoise(0)
    for t, state, _, _ in bench.rounds():
        before = [part.copy() for part in state]
        bench.algorithm.local_step(state, workspace, bench.site, noise, t)
        for part, old in zip(state, before, strict=True):
            np.testing.assert_array_equal(part, old)


def test_a_party_s_message_depends_on_others_rows_through_their_messages_only(bench):
    others = oracles.random_parties(99, COUNTS, FEATURES)
    mixed = [bench.parties[0], *others[1:]]
    workspace, foreign = bench.workspace(), bench.workspace(parties=mixed)
    for t, state, _, _ in bench.rounds():
        mine = bench.algorithm.local_step(state, workspace, bench.site, SimulatedNoise(0), t)
        same = bench.algorithm.local_step(state, foreign, bench.site, SimulatedNoise(0), t)
        np.testing.assert_allclose(mine.values[0], same.values[0], atol=1e-11)


@pytest.mark.parametrize("size", [1e12, 1e200, np.inf, np.nan])
def test_a_private_algorithm_refuses_huge_messages_before_rows_are_read(bench, size):
    if not bench.algorithm.private:
        return
    _, first, _, _ = next(bench.rounds())
    state = type(first)(*(np.full_like(part, size) for part in first))
    assert announced(bench, state, 1) is None, f"a state of {size:g} everywhere {MUST_REFUSE}"


@pytest.mark.parametrize("size", [1e12, 1e200, np.inf, np.nan])
def test_a_private_algorithm_refuses_every_huge_part_that_it_computes_with(bench, size):
    if not bench.algorithm.private:
        return
    for t, state, _, _ in bench.rounds():
        for part, values in state._asdict().items():
            huge = state._replace(**{part: np.full_like(values, size)})
            events = announced(bench, huge, t)
            if events is None or PostProcessing() in events:
                continue  # refused, or a function of messages alone
            sent, same = (
                bench.algorithm.local_step(
                    each, bench.workspace(), bench.site, SimulatedNoise(0), t
                ).values
                for each in (huge, state)
            )
            np.testing.assert_array_equal(sent, same, f"{part} = {size:g} {MUST_REFUSE}")


MUST_REFUSE = (
    "must be refused by announce with a ParameterError, before a row is read: rounding or overflow "
    'could otherwise show rows. See "Without a solve" in CONTRIBUTING.md.'
)


def announced(bench, state, t):
    """What the round would cost; None where it is refused."""
    try:
        with np.errstate(all="ignore"):
            return bench.algorithm.announce(state, bench.site, t)
    except ParameterError:
        return None


# -- one process per party is the same as one for all --------------------------------------------


def test_a_site_of_one_party_sends_what_the_site_of_all_sends(bench):
    for node in range(len(COUNTS)):
        own, sources = one_party(bench.site, node)
        algorithm = bench.algorithm.of_party(node, own, settings_for(own))
        workspace = bench.workspace(own, bench.parties[node : node + 1])
        state = algorithm.init(own)
        for t, _, expected, inbox in bench.rounds():
            announced = algorithm.announce(state, own, t)
            message = algorithm.local_step(state, workspace, own, SimulatedNoise(0), t)
            assert message.events == announced == expected.events[node : node + 1]
            np.testing.assert_allclose(message.values[0], expected.values[node], atol=1e-12)
            heard = inbox if sources is None else inbox[sources]
            sent = expected.values[[node]]
            state = algorithm.absorb(state, sent, heard, own, t)


def test_relabelling_the_parties_relabels_the_results(name):
    bench = bench_of(name)
    order = np.array([2, 0, 3, 1])  # new number -> old number
    number = np.argsort(order)
    edges = [(int(number[i]), int(number[j])) for i, j in bench.site.topology.edges]
    other = bench_of(name, edges=edges, counts=[COUNTS[old] for old in order])
    relabelled = dataclasses.replace(other.site, index=order)  # noise follows the party
    parties = [bench.parties[old] for old in order]
    first = bench.run()
    second = other.run(site=relabelled, parties=parties)
    np.testing.assert_allclose(second.last, first.last[order], atol=1e-11)


def test_noise_is_all_that_tells_runs_apart_and_it_follows_the_key(name):
    three, one = bench_of(name, runs=3), bench_of(name)
    together, again, alone = three.run(key=5), three.run(key=5), one.run(key=5)
    np.testing.assert_array_equal(together.last, again.last)
    np.testing.assert_allclose(together.last[:, :1], alone.last, atol=1e-11)
    assert np.isfinite(together.last).all()
    assert np.isfinite(together.tail).all()


# -- the registry -------------------------------------------------------------------------------


def test_an_outside_algorithm_is_listed_after_ours_and_not_as_reviewed(outside):
    names = algorithm_names()
    assert names[: len(REGISTRY)] == list(REGISTRY)
    assert "outside" in names[len(REGISTRY) :]
    assert len(set(names)) == len(names)
    assert not reviewed("outside")


def test_an_outside_algorithm_cannot_replace_one_of_ours(outside):
    assert get_algorithm("admm") is REGISTRY["admm"]


def test_an_outside_algorithm_cannot_call_itself_one_of_ours(outside):
    with pytest.raises(ParameterError, match="must be named 'usurper'; got 'admm'"):
        get_algorithm("usurper")


def test_an_outside_algorithm_cannot_take_the_name_of_the_histogram(outside):
    """That name is not in the registry, and passes for reviewed."""
    assert reviewed(HISTOGRAM)
    assert HISTOGRAM not in algorithm_names()
    with pytest.raises(ParameterError, match=f"algorithm must be one of: .*; got '{HISTOGRAM}'"):
        get_algorithm(HISTOGRAM)


@pytest.mark.parametrize("entry", ["number", "function"])
def test_an_entry_point_that_is_no_algorithm_is_refused(outside, entry):
    with pytest.raises(ParameterError, match="must name a subclass of") as refusal:
        get_algorithm(entry)
    assert "dpadmm.algorithms.base.Algorithm" in str(refusal.value)


def test_an_algorithm_that_lacks_methods_is_refused_with_their_names(outside):
    with pytest.raises(ParameterError, match="it lacks absorb, announce, configure, init, local"):
        get_algorithm("base")


def test_an_entry_point_that_cannot_be_loaded_says_which(outside):
    with pytest.raises(ParameterError, match="no_such_package:Nothing"):
        get_algorithm("missing")


def test_an_unknown_algorithm_lists_all_of_them(outside):
    with pytest.raises(ParameterError, match="algorithm must be one of") as refusal:
        get_algorithm("outsider")
    for name in algorithm_names():
        assert name in str(refusal.value)
    assert "Did you mean 'outside'?" in str(refusal.value)


def test_the_estimator_trains_an_outside_algorithm(outside):
    from dpadmm import ADMMClassifier

    ((rows, labels),) = oracles.random_parties(3, (60,), 3)
    model = ADMMClassifier(
        algorithm="outside", n_parties=3, algorithm_options={"pull": 0.1}, random_state=0
    ).fit(rows, labels)
    assert model.score(rows, labels) > 0.6


def test_an_outside_algorithm_without_a_published_claim_has_no_published_calibration(outside):
    from dpadmm import ADMMClassifier

    ((rows, labels),) = oracles.random_parties(3, (60,), 3)
    model = ADMMClassifier(
        algorithm="laplace-admm", n_parties=3, epsilon=1.0, delta=1e-5, calibration="published"
    )
    with pytest.raises(ParameterError, match="calibration must be 'proven' for 'laplace-admm'"):
        model.fit(rows, labels)


def test_an_audit_refuses_a_kind_of_noise_that_it_does_not_know_and_says_which_it_knows(outside):
    from dpadmm.audit.algorithms import audit_algorithm
    from dpadmm.audit.scene import Scene

    with pytest.raises(ParameterError, match=r"noise must be Gaussian .* draw 'output' is of"):
        audit_algorithm(Scene("laplace-admm", 1.0, 1e-5, rounds=2), samples=100)
