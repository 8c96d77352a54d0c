"""The command ``dpadmm``, also as ``python -m dpadmm``: Ctrl-C is answered while it loads, too."""

from __future__ import annotations

import sys

try:
    from dpadmm.cli import main
except KeyboardInterrupt:
    print("dpadmm: stopped.", file=sys.stderr)  # noqa: T201  what prints may not be loaded yet
    sys.exit(130)


if __name__ == "__main__":
    main()
