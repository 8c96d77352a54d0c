"""Experiments: cells of work, a store that resumes, comparisons and plans.

A *cell* is everything that decides one piece of work; a *store* keeps finished cells by that
description, and the *runner* computes what is missing (all in :mod:`~dpadmm.experiments.jobs`).
Everything here is a simulation on public data. What serves the papers alone, their figures and
verdicts, is in the package ``dpadmm_papers``.
"""
