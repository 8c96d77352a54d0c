"""The command ``dpadmm``, also as ``python -m dpadmm``: Ctrl-C is answered while it loads, too."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line of :mod:`dpadmm.cli`."""
    try:
        from dpadmm.cli import main as run

        run()
    except KeyboardInterrupt:
        print("dpadmm: stopped.", file=sys.stderr)  # noqa: T201  what prints may not be loaded yet
        sys.exit(130)


if __name__ == "__main__":
    main()
