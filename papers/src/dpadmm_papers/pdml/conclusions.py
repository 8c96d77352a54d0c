"""What the paper concludes from each part, and the criteria, fixed before any run at full size."""

from __future__ import annotations

from typing import Final

from dpadmm.experiments.experiment import Conclusion

__all__ = ["FIGURE_3", "FIGURE_4", "TABLE_1"]

FIGURE_3: Final[tuple[Conclusion, ...]] = (
    Conclusion(
        "consensus",
        "Both distances, with and without the privacy-preserving approach of phase 2, converge to "
        "0: the consensus constraint is eventually satisfied.",
        "After the last round the upper end of the 97.5% interval of the mean largest distance "
        "between the norms of two servers' classifiers, which is what the paper draws, is below 1% "
        "of the norm of the reference classifier. The distance between the classifiers stands "
        "beside it: equal norms are not yet consensus.",
    ),
    Conclusion(
        "convergence",
        "The combined noise-adding scheme preserves the convergence property of ADMM.",
        "The risk has settled: the 97.5% interval of its mean over the last tenth of the rounds "
        "minus that over the tenth before lies within 1% of the reference risk.",
    ),
    Conclusion(
        "longer",
        "Due to the noise of phase 2 the convergence time becomes longer.",
        "The round after which the risk stays within 1% of its last value is later than without "
        "phase 2: the 97.5% interval of the difference is above 0.",
    ),
    Conclusion(
        "not the reference",
        "With and without phase 2, the final risk of ADMM on original data is not reached.",
        "The 97.5% interval of the final risk minus the reference's of the same draw is above 0.",
    ),
)

FIGURE_4: Final[tuple[Conclusion, ...]] = (
    Conclusion(
        "R",
        "The larger the noise bound R, the greater the gap between the achieved risk and the "
        "reference value.",
        "From each R to the next larger one the final risk rises: all 97.5% intervals of the "
        "difference are above 0.",
    ),
    Conclusion(
        "rho: time",
        "The convergence time is affected by rho: a larger rho needs more iterations.",
        "From each rho to the next larger one the round after which the risk stays within 1% of "
        "its last value comes later: all 97.5% intervals of the difference are above 0.",
    ),
    Conclusion(
        "rho: risk",
        "With more iterations, a larger rho obtains the same final risk as a smaller one.",
        "From each rho to the next larger one the 97.5% interval of the change of the final risk "
        "lies within 1% of the reference risk.",
    ),
    Conclusion(
        "epsilon",
        "The final risks decrease with larger epsilon.",
        "Up to epsilon = 0.6, above which the paper itself sees no significant change, the final "
        "risk falls from each epsilon to the next: all 97.5% intervals of the difference are below "
        "0. And so is that from the smallest epsilon to the largest.",
    ),
    Conclusion(
        "phase 2",
        "The extra perturbations of phase 2 lead to larger risks for every epsilon.",
        "At every epsilon the 97.5% interval of the final risk minus that of phase 1 alone is "
        "above 0.",
    ),
    Conclusion(
        "large epsilon",
        "For epsilon > 0.6 the achieved risks are close to the reference value and do not "
        "significantly change.",
        "At every epsilon above 0.6 the 97.5% interval of the final risk minus the reference risk "
        "lies within 5% of the reference risk, and so does that of the change from one to the "
        "next.",
        choices=("a",),
    ),
)

TABLE_1: Final[tuple[Conclusion, ...]] = (
    Conclusion(
        "epsilon and R",
        "Larger epsilon and smaller R generate better accuracy.",
        "In the mean over the seven sets, draw by draw: accuracy at epsilon 1 minus 0.4, for each "
        "R, and at R 1 minus 9, for each epsilon, has a 97.5% interval above 0 in every case.",
    ),
    Conclusion(
        "strongest",
        "Even under the strongest privacy setting (epsilon = 0.4, R = 9) the accuracy is "
        "comparable to the reference.",
        "The reference's accuracy minus that at epsilon 0.4, R 9, in the mean over the seven sets, "
        "has a 97.5% interval whose upper end is at most the paper's own mean gap.",
        choices=("spread of eta",),
    ),
    Conclusion(
        "banana",
        "Under Banana accuracy is inferior in all settings, around 50%: logistic regression does "
        "not suit it.",
        "In every column the 97.5% interval of the mean accuracy is below 60%.",
    ),
    Conclusion(
        "splice",
        "Under Splice accuracy is inferior in all settings, around 50%: logistic regression does "
        "not suit it.",
        "In every column the 97.5% interval of the mean accuracy is below 60%.",
        choices=("preparation",),
    ),
)
