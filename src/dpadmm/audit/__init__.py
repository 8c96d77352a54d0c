"""Empirical lower bounds on privacy, for mechanisms and for whole algorithms.

An audit runs a mechanism many times on two neighbouring data sets, chosen so that the theorem is
nearly attained, and bounds from below what an observer can tell; of a whole algorithm it also reads
the noise off the messages and sets it against what the claim needs, over all rounds, coordinates
and parties at once. It can refute a claim; it cannot prove one.
"""
