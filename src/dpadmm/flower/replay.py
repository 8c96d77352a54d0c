"""Rounds whose messages and means are known: a run gone through again, without rows.

The state of an algorithm is a function of messages. So a party that is asked for round t in a
process of its own comes to where it was from what its ledger and its file of messages hold, and a
server makes the model from what it heard.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, final

import numpy as np

from dpadmm.federation.exchange import CarefulLedger
from dpadmm.ledger.base import Ledger
from dpadmm.plain import Array
from dpadmm.privacy.mechanisms import Released
from dpadmm.privacy.noise import NoiseSource
from dpadmm.problem.rows import Shard
from dpadmm.run.engine import Exchange, Outcome, RunEnded, tail_start
from dpadmm.run.plan import Plan
from dpadmm.run.train import train_party

#: Whose messages the model is the mean of, in the model file.
MEAN: Final = "mean of all parties"


@final
class KnownMeans(Exchange):
    """Hands out the means of complete rounds, and ends the run at the first that is not.

    Parameters
    ----------
    mean
        The mean of a round, ``(runs, outputs, features)``.
    complete
        How many rounds have one.
    """

    def __init__(self, mean: Callable[[int], Array], complete: int) -> None:
        self._mean, self._complete = mean, complete

    def __call__(self, message: Released, t: int) -> Array:
        """The mean of round ``t``."""
        if t >= self._complete:
            raise RunEnded
        return self._mean(t)[None]


def replay(
    own: Plan,
    means: Sequence[Array],
    ledger: Ledger,
    noise: NoiseSource,
    replayed: Sequence[Array] = (),
) -> Outcome:
    """Go through all rounds of a party again; no row is there to be read, and nothing is drawn.

    Parameters
    ----------
    own
        The party's share of the plan.
    means
        Of every round.
    ledger, replayed
        Where the party's messages are: its ledger, or here, ``(1, runs, outputs, features)`` each.
    noise
        Where its noise came from.

    Returns
    -------
    Outcome
        With the model that all parties have in common.
    """

    def refuse(t: int) -> None:
        raise RuntimeError(f"round {t} must have a message before the run is gone through again.")

    careful = CarefulLedger(ledger, len(replayed))
    careful.before_draw = refuse
    outcome = train_party(
        own,
        Shard((), own.site.rows),
        exchange=KnownMeans(lambda t: means[t], len(means)),
        noise=noise,
        ledger=careful,
        rounds=len(means),
        replayed=replayed,
    )
    if own.algorithm.hears_everybody:
        return outcome
    heard = np.stack(means)[:, None]
    tail = heard[tail_start(len(means)) :]
    return replace(outcome, last=heard[-1], tail=tail.mean(axis=0), mean=heard.mean(axis=0))
