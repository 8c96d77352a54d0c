"""Experiments: cells of work, a store that resumes, comparisons and plans.

A *cell* describes one piece of work completely. A *store* keeps the results of finished cells, and
the *runner* computes those that are missing (all in :mod:`~dpadmm.experiments.jobs`). Everything
here is a simulation on public data. The package ``dpadmm_papers`` has the papers' own figures and
verdicts.
"""
