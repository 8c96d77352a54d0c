"""The cost of a release, and the noise that a budget needs.

:mod:`~dpadmm.privacy.events` states the theorems, :mod:`~dpadmm.privacy.curves` turns one event
into a mu, a Renyi curve or a privacy-loss distribution, :mod:`~dpadmm.privacy.accountant`
composes, :mod:`~dpadmm.privacy.calibration` inverts. :mod:`~dpadmm.ledger.sqlite` records
all spending on a data set, under a rule of :mod:`~dpadmm.ledger.filters`.
"""
