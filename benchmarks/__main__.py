"""`python -m benchmarks NAME|--all [--quick] [--docs]`; benchmarks/run sets up first."""

from __future__ import annotations

import argparse
import sys
import tempfile
from functools import partial
from importlib import import_module
from pathlib import Path

from benchmarks import page
from benchmarks.report import Report
from benchmarks.together import run_all

# Modules, each with `run(folder, quick) -> Report`; only the one that is asked for is imported.
BENCHMARKS = (
    *("invoke", "windows", "freshness", "publish", "streams"),
    *("kernel", "joins", "joins_ahead", "implied", "interest", "registrations", "overload"),
    *("paper", "paper.joins", "sync", "soak"),
)


def main() -> None:
    parser = _parser()
    arguments = parser.parse_args()
    if arguments.minutes and arguments.benchmark != "soak":
        parser.error("--minutes is for soak")
    if arguments.all:
        options = [f"--{name}" for name in ("quick", "docs") if getattr(arguments, name)]
        sys.exit(run_all(BENCHMARKS, arguments.quick, options))
    run = import_module(f"benchmarks.{arguments.benchmark}").run
    if arguments.minutes:
        run = partial(run, minutes=arguments.minutes)
    with tempfile.TemporaryDirectory() as folder:
        report: Report = run(Path(folder), arguments.quick)
    report.show()
    path = report.write(arguments.json)
    print(f"written to {path}")
    if arguments.docs:
        report.draw(page.IMAGES)
        page.put(path)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="benchmarks/run", description="Measure a running store.")
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("benchmark", nargs="?", choices=BENCHMARKS)
    which.add_argument("--all", action="store_true", help="every one, and a summary")
    parser.add_argument("--quick", action="store_true", help="fewer rows and rounds")
    parser.add_argument("--minutes", type=float, help="how long soak lasts")
    parser.add_argument(
        "--docs", action="store_true", help="put tables and plots into docs/benchmarks.md"
    )
    parser.add_argument("--json", type=Path, help="write here, not to benchmarks/results/")
    return parser


if __name__ == "__main__":
    main()
