"""One self-contained page for a run, a comparison or an experiment.

:mod:`~dpadmm.report.run` builds a :class:`~dpadmm.report.document.Report` from the records of runs:
its headline, banners and answers. :mod:`~dpadmm.report.sections` adds what stands below them.
Comparisons, plans, the papers' experiments and the status of nodes build theirs where they are.
:func:`~dpadmm.report.html.render` writes any report as HTML, with the drawings of
:mod:`~dpadmm.report.svg`.
"""
