"""Experiments: cells of work, a store that resumes, and the figures of the papers.

A *cell* is everything that decides one piece of work (:mod:`~dpadmm.experiments.cells`); a *store*
keeps finished cells by that description (:mod:`~dpadmm.experiments.store`); the *runner* computes
what is missing (:mod:`~dpadmm.experiments.runner`). An *experiment* names cells and says what they
show (:mod:`~dpadmm.experiments.experiment`); :mod:`dpadmm.experiments.papers` has one module per
paper. Everything here is a simulation on public data.
"""
