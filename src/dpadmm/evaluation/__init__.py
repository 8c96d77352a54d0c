"""How good a model is, from one noisy histogram of its scores: pure functions of released numbers.

:mod:`~dpadmm.evaluation.histogram` says which cell a row enters and what is released. Everything
else is made of the released counts: no function here charges anything, and none reads a private
row but :meth:`~dpadmm.evaluation.histogram.ScoreGrid.counts`, whose result is private.
"""
