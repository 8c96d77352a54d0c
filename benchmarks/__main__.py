"""Run every benchmark, or those named: ``python -m benchmarks [core data accounting ...]``."""

from __future__ import annotations

import importlib
import pkgutil
import sys

import benchmarks


def main(wanted: list[str]) -> int:
    names = [
        module.name.removeprefix("bench_")
        for module in pkgutil.iter_modules(benchmarks.__path__)
        if module.name.startswith("bench_")
    ]
    unknown = set(wanted) - set(names)
    if unknown:
        print(f"unknown: {', '.join(sorted(unknown))}; there are: {', '.join(names)}")
        return 2
    missed = 0
    for name in wanted or names:
        print(f"\n== {name}", flush=True)
        for what, measured, target in importlib.import_module(f"benchmarks.bench_{name}").main():
            over = target is not None and measured > target
            missed += over
            goal = "" if target is None else f"  (at most {target:g}){'  MISSED' if over else ''}"
            print(f"{what:70s} {measured:10.3g}{goal}", flush=True)
    print(f"\n{missed} of the targets were missed" if missed else "\nall targets were met")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
