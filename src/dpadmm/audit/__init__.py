"""Empirical lower bounds on privacy, for mechanisms and for whole algorithms.

An audit runs a mechanism many times on two neighbouring data sets, chosen so that the theorem is
nearly attained, and bounds from below what an observer can tell; of a whole algorithm it also reads
the noise off the messages and sets it against what the claim needs, over all rounds, coordinates
and parties at once. It can refute a claim; it cannot prove one.
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
from dpadmm.audit.covariance import Deviation, NoiseScores, find_faults, normal_scores
from dpadmm.audit.noise import EchoNoise, RecordingNoise, SharedNoise, SilentNoise
from dpadmm.audit.objective import (
    PerturbedObjective,
    exp_norm_case,
    gaussian_objective_case,
)
from dpadmm.audit.registry import MECHANISMS, mechanism_case
from dpadmm.audit.scene import Federation, Scene, draw_scene
from dpadmm.audit.verdict import Attack, AuditSetting, Verdict
from dpadmm.audit.whole import audit_algorithm
from dpadmm.audit.witness import NoiseReport, audit_noise

__all__ = [
    "MECHANISMS",
    "SMALLEST_SAMPLE",
    "Adversary",
    "AlgorithmCase",
    "Attack",
    "AuditSetting",
    "Case",
    "Claim",
    "Deviation",
    "EchoNoise",
    "EpsilonClaim",
    "Federation",
    "GaussianClaim",
    "GaussianShift",
    "NoiseReport",
    "NoiseScores",
    "PerturbedObjective",
    "RandomizedResponse",
    "RecordingNoise",
    "Scene",
    "SharedNoise",
    "SilentNoise",
    "SubsampledShift",
    "Verdict",
    "audit_algorithm",
    "audit_case",
    "audit_noise",
    "audit_scores",
    "clopper_pearson_lower",
    "clopper_pearson_upper",
    "draw_scene",
    "exp_norm_case",
    "find_faults",
    "gaussian_case",
    "gaussian_objective_case",
    "inexact_solve_case",
    "mechanism_case",
    "normal_scores",
    "randomized_response_case",
    "subsampled_gaussian_case",
]
