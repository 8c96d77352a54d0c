"""The quality of a model, from one noisy histogram of its scores: functions of released numbers.

:mod:`~dpadmm.evaluation.histogram` decides which cell a row enters and what is released. Everything
else follows from the released counts. No function here charges anything, and only
:meth:`~dpadmm.evaluation.histogram.ScoreGrid.counts` reads private rows; its result is private.
"""
