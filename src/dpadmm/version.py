"""The version of this package, and the format of what its runs compute."""

from __future__ import annotations

from typing import Final

__version__: Final = "0.3.0"

#: The format of what decides a run's numbers. It stands in the hash by which a ledger knows a run
#: that was given no ``run_id`` and in what nodes agree on; the version of the package does not. So
#: runs go on after an upgrade, and nodes with different releases of one format train together.
#:
#: Raise it when the same configuration, rows and noise would give other messages, other charges or
#: another model than before: a changed default, encoding, solver path or mechanism, or a field that
#: means something else. Where that is so at one algorithm only, raise it all the same: a run that
#: is charged anew costs less than one that goes on as another. A changed calibration needs no other
#: format: ledgers compare the calibrated algorithm, too (``dpadmm.run.engine.fingerprint``), and
#: refuse to go on with another.
NUMBERS_FORMAT: Final = 2
