"""One self-contained page for a run, a comparison or an experiment.

A :class:`~dpadmm.report.document.Report` is built from a run's record
(:mod:`~dpadmm.report.run`), from several records (:mod:`~dpadmm.report.runs`), or from anything
else that words, tables and plots can show. :func:`~dpadmm.report.html.render` writes it as HTML.
"""
