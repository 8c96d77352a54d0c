"""One self-contained page for a run, a comparison or an experiment.

A :class:`~dpadmm.report.document.Report` is built from a run's record
(:mod:`~dpadmm.report.run`), several records (:mod:`~dpadmm.report.runs`), a comparison
(:mod:`~dpadmm.report.runs`) or anything else that can be told in words, tables and
plots,
and :func:`~dpadmm.report.html.render` writes it as HTML.
"""
