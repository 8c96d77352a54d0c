r"""What "auto" stands for: an algorithm and its number of rounds, from public facts alone.

Where every party can be heard in every round, around a server or on a complete graph, ``dp-gd`` is
the more accurate one for the same budget; on a graph with fewer links ``pr-admm`` serves. The rule
was chosen by rows that were held back from the training rows of eleven data sets, before any test
row was looked at (docs/utility.md). It never takes a weaker adversary by itself: noise is every
party's own unless ``noise = "shared"`` is asked for. What that would bring is said: of N parties
:math:`\tau` may collude, and the noise of the sum becomes smaller by the factor

.. math:: \sqrt{N-\tau}\;\frac{\sqrt{\frac1N\sum_i s_i^2}}{\max_i s_i},
          \qquad s_i = \frac{c_i}{n_i\mu_i}
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from dpadmm.algorithms import REGISTRY, get_algorithm
from dpadmm.algorithms.base import Budget
from dpadmm.algorithms.dp_gd import DPGD
from dpadmm.algorithms.pr_admm import PRADMM
from dpadmm.algorithms.summed_gaussian import default_colluders
from dpadmm.errors import ParameterError, positive_integer
from dpadmm.privacy.gaussian import gaussian_mu
from dpadmm.problem.site import Site
from dpadmm.problem.topologies import SERVER, Topology
from dpadmm.run.parameters import AUTO, CALIBRATION, TrainingParameters

# Graphs on which every party hears all others, however many there are.
_EVERYBODY: Final = (AUTO, SERVER, "complete")
# A smaller saving is not worth a weaker guarantee, nor a sentence.
_WORTH_SAYING: Final = 1.05


@dataclass(frozen=True)
class Choice:
    """An algorithm that was chosen, in words.

    Attributes
    ----------
    reason
        What was picked, and why.
    advice
        What shared noise would bring, and what it would take; empty where it is little or none.
    """

    reason: str
    advice: str = ""

    @property
    def lines(self) -> tuple[tuple[str, str], ...]:
        """Pairs of a heading and its words, for a statement."""
        advice = (("Not taken by itself", self.advice),) if self.advice else ()
        return (("Algorithm", self.reason), *advice)


def _everybody_is_heard(topology: Any, parties: int | None = None) -> bool:
    """Whether a graph lets every party hear all others.

    Of the names only those that mean it for any number of parties count: the answer is then the
    same before the parties are known. What is no graph is refused elsewhere.
    """
    if parties == 1:
        return True
    if isinstance(topology, Topology):
        topology = topology.edges if topology.name == "edges" else topology.name
    if isinstance(topology, str):
        return topology in _EVERYBODY
    try:
        pairs = {frozenset(pair) for pair in topology}
    except TypeError:
        return False
    ends = {end for pair in pairs for end in pair}
    return bool(pairs) and len(pairs) == len(ends) * (len(ends) - 1) // 2


def chosen_algorithm(
    topology: Any,
    calibration: str = CALIBRATION,
    options: Mapping[str, Any] | None = None,
    parties: int | None = None,
) -> str:
    """The name of the algorithm that "auto" stands for; or a refusal.

    Parameters
    ----------
    topology
        A name, pairs of parties, or a topology.
    calibration, options
        As the run has them.
    parties
        How many there are, where it is known: one hears everybody on any graph.
    """
    if calibration == "published":
        raise ParameterError(
            "algorithm must be named with calibration = 'published', which is that of its own "
            "paper; got 'auto'."
        )
    if _everybody_is_heard(topology, parties):
        return DPGD.name
    if (options or {}).get("noise") == "shared":
        shown = topology if isinstance(topology, str) else "links between some of the parties"
        raise ParameterError(
            "topology must be 'server' or 'complete' with noise = 'shared', where nothing but the "
            f"sum of all parties is seen; got {shown!r}. Leave it out, or use noise = 'own'."
        )
    return PRADMM.name


def chosen_rounds(rounds: Any, algorithm: str) -> int:
    """The number of rounds asked for, or that of the algorithm; or a refusal."""
    if isinstance(rounds, str) and rounds == AUTO:
        return get_algorithm(algorithm).default_rounds
    return positive_integer("rounds", rounds, alternative=" or 'auto'")


def _named(parameters: TrainingParameters, parties: int) -> TrainingParameters:
    """The same run with its algorithm decided."""
    if parameters.algorithm != AUTO:
        return parameters
    topology: Any = parameters.topology
    if isinstance(topology, Iterable) and not isinstance(topology, str):
        # It may be one that can be read only once.
        topology = tuple(topology)
    name = chosen_algorithm(topology, parameters.calibration, parameters.algorithm_options, parties)
    return replace(parameters, algorithm=name, algorithm_chosen=True, topology=topology)


def with_options(
    parameters: TrainingParameters, given: Mapping[str, Any], parties: int
) -> TrainingParameters:
    """The same run, its algorithm decided, with options that were given by themselves."""
    options = joined_options(parameters.algorithm_options, given)
    parameters = _named(replace(parameters, algorithm_options=options), parties)
    known = get_algorithm(parameters.algorithm).options.model_fields
    for name, value in given.items():
        if name not in known:
            having = [each for each in REGISTRY if name in REGISTRY[each].options.model_fields]
            raise ParameterError(
                f"{name} must be left out for the algorithm {parameters.algorithm!r}, which has no "
                f"such option; got {value!r}. It is one of: {', '.join(having)}."
            )
    return parameters


def joined_options(options: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """``algorithm_options`` with those that were given by themselves; or a refusal."""
    for name, value in given.items():
        if options.get(name, value) != value:
            raise ParameterError(
                f"{name} must be the same where it is given twice; got {value!r}, and "
                f"{options[name]!r} in algorithm_options. Leave one of them out."
            )
    return {**options, **given}


def settled(parameters: TrainingParameters, parties: int) -> TrainingParameters:
    """The same run with its algorithm, its rounds, its loss and its kind of noise decided."""
    parameters = _named(parameters, parties)
    rounds = chosen_rounds(parameters.rounds, parameters.algorithm)
    return replace(parameters, rounds=rounds).settled()


def choice_of(site: Site, budget: Budget, options: Mapping[str, Any]) -> Choice:
    """What :func:`chosen_algorithm` picked for a run, in words."""
    name = site.topology.name
    if site.parties == 1:
        return Choice(f"{DPGD.name}, chosen automatically: it serves one party by itself")
    shared = _about_sharing(site, budget)
    if not _everybody_is_heard(site.topology):
        reason = (
            f"{PRADMM.name}, chosen automatically: not every party hears all others (topology "
            f"{name!r}); around a server or with all links it would be {DPGD.name}, which on "
            "average is more accurate for the same budget"
        )
        return Choice(reason, shared and f"Around a server or with all links, {shared}")
    reason = (
        f"{DPGD.name}, chosen automatically: every party can be heard in every round (topology "
        f"{name!r}), where on average it is more accurate for the same budget than what needs "
        "fewer links"
    )
    return Choice(reason, "" if options.get("noise") == "shared" else shared)


def _about_sharing(site: Site, budget: Budget) -> str:
    """What noise = "shared" would bring, and against whom it would hold."""
    if site.parties < 3:
        return ""
    colluders = default_colluders(site.parties)
    level = site.weight / site.rows / gaussian_mu(budget.epsilon, budget.ideal_delta)
    saved = math.sqrt((site.parties - colluders) * float(np.mean(level**2))) / float(level.max())
    if saved < _WORTH_SAYING:
        return ""
    return (
        f"noise = 'shared' would make the noise of the sum {saved:.2g} times smaller, but hold "
        f"against the server and at most {colluders} of the {site.parties} parties together "
        "instead of all others"
    )
