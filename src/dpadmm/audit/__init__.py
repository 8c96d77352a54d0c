"""Empirical lower bounds on privacy, for mechanisms and for whole algorithms.

An audit runs a mechanism many times on two neighbouring data sets that nearly attain the theorem,
and bounds from below what an observer can learn. For a whole algorithm it also computes the noise
from the messages and compares it with what the claim needs, over all rounds, coordinates and
parties at once. An audit can refute a claim; it cannot prove one.
"""
