"""Empirical lower bounds on privacy, for mechanisms and for whole algorithms.

An audit runs a mechanism many times on two neighbouring data sets, chosen so that the theorem is
nearly attained, and bounds from below what an observer can tell. It can refute a claim; it cannot
prove one.
"""

from dpadmm.audit.algorithms import Adversary, AlgorithmCase
from dpadmm.audit.bounds import (
    SMALLEST_SAMPLE,
    audit_scores,
    clopper_pearson_lower,
    clopper_pearson_upper,
)
from dpadmm.audit.cases import (
    Case,
    GaussianShift,
    RandomizedResponse,
    SubsampledShift,
    audit_case,
    gaussian_case,
    inexact_solve_case,
    randomized_response_case,
    subsampled_gaussian_case,
)
from dpadmm.audit.claims import Claim, EpsilonClaim, GaussianClaim
from dpadmm.audit.noise import SharedNoise, SilentNoise
from dpadmm.audit.objective import (
    PerturbedObjective,
    exp_norm_case,
    gaussian_objective_case,
)
from dpadmm.audit.registry import MECHANISMS, mechanism_case
from dpadmm.audit.verdict import Attack, Setting, Verdict

__all__ = [
    "MECHANISMS",
    "SMALLEST_SAMPLE",
    "Adversary",
    "AlgorithmCase",
    "Attack",
    "Case",
    "Claim",
    "EpsilonClaim",
    "GaussianClaim",
    "GaussianShift",
    "PerturbedObjective",
    "RandomizedResponse",
    "Setting",
    "SharedNoise",
    "SilentNoise",
    "SubsampledShift",
    "Verdict",
    "audit_case",
    "audit_scores",
    "clopper_pearson_lower",
    "clopper_pearson_upper",
    "exp_norm_case",
    "gaussian_case",
    "gaussian_objective_case",
    "inexact_solve_case",
    "mechanism_case",
    "randomized_response_case",
    "subsampled_gaussian_case",
]
