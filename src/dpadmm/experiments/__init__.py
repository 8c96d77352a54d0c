"""Experiments: cells of work, a store that resumes, and the figures of the papers.

A *cell* is everything that decides one piece of work (:mod:`~dpadmm.experiments.job`); a *store*
keeps finished cells by that description (:mod:`~dpadmm.experiments.runner`); the *runner* computes
what is missing (:mod:`~dpadmm.experiments.runner`). An *experiment* names cells and says what they
show (:mod:`~dpadmm.experiments.experiment`); :mod:`dpadmm_papers` has one module per
paper. Everything here is a simulation on public data.
"""
