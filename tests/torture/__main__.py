"""Lives of a store, one after the other, for the requested time."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.torture.faults import FAULTS
from tests.torture.life import Life


def main() -> int:
    options = _parser().parse_args()
    end = time.monotonic() + 60 * options.minutes
    folder = Path(options.folder or tempfile.mkdtemp(prefix="psoup-torture-"))
    total: Counter[str] = Counter()
    seed, lives = options.seed, 0
    while time.monotonic() < end:
        seconds = min(60 * options.life, max(10.0, end - time.monotonic()))
        life = Life(
            folder / f"life-{seed}",
            seed,
            seconds,
            options.servers,
            faults=tuple(options.faults),
        )
        print(f"life {seed}: {seconds:.0f} s", flush=True)
        try:
            total += life.run(lambda text: print(f"  {text}", flush=True))
        except AssertionError as problem:
            print(f"FAILED {problem}\nEverything is kept in {folder}.", file=sys.stderr)
            return 1
        shutil.rmtree(life.folder)
        seed, lives = seed + 1, lives + 1
    print(_report(lives, total))
    return 0


def _report(lives: int, total: Counter[str]) -> str:
    lines = [f"{lives} lives: nothing acknowledged was lost or there twice, every answer was right"]
    lines += [f"  {count:8,}  {what}" for what, count in sorted(total.items())]
    return "\n".join(lines)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="scripts/torture", description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.0, help="how long in all")
    parser.add_argument("--life", type=float, default=5.0, help="the longest life, in minutes")
    parser.add_argument("--seed", type=int, default=1, help="of the first life")
    parser.add_argument("--servers", type=int, default=2)
    parser.add_argument("--folder", help="where the stores are; a temporary one if left out")
    parser.add_argument(
        "--faults",
        nargs="+",
        choices=list(FAULTS),
        default=list(FAULTS),
        metavar="FAULT",
        help="only these: " + ", ".join(f'"{name}"' for name in FAULTS),
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
