"""Rows in parts that lie in this process: what a cluster must agree with, bit for bit."""

import itertools

import numpy as np

from dpadmm.problem.rows import RowBlock, Shard


class PartsHere:
    """Parts of one party's ``(rows, labels)``, each with so many rows."""

    def __init__(self, rows, labels, heights):
        self.heights = tuple(heights)
        assert sum(heights) == len(labels)
        ends = np.cumsum([0, *heights])
        self.blocks = []
        for first, stop in itertools.pairwise(ends):
            (block,) = Shard.from_parties([(rows[first:stop], labels[first:stop])]).blocks
            self.blocks.append(RowBlock(np.array([0]), block.rows, block.labels))
        self.passes = 0

    def map(self, work, *arguments, each=None):
        self.passes += 1
        more = [()] * len(self.blocks) if each is None else [(one,) for one in each]
        for block, last in zip(self.blocks, more, strict=True):
            yield work(block, *arguments, *last)


def parted_shard(parties, cut):
    """Every party in parts; ``cut`` says how many rows each part of so many has."""
    parted = {
        n: PartsHere(rows, labels, cut(len(labels))) for n, (rows, labels) in enumerate(parties)
    }
    return Shard.from_parties([]).beside(parted)
