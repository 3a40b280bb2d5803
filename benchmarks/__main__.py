"""`python -m benchmarks NAME|--all|store [--quick] [--docs]`; benchmarks/run sets up first."""

from __future__ import annotations

import argparse
import sys
import tempfile
from functools import partial
from importlib import import_module
from pathlib import Path

from benchmarks import page
from benchmarks.report import Report
from benchmarks.store.command import measure_store
from benchmarks.together import run_all

# Modules, each with `run(folder, quick) -> Report`; only the one that is asked for is imported.
BENCHMARKS = (
    *("invoke", "databases", "typed", "windows", "freshness", "publish", "streams", "workers"),
    *("kernel", "index", "joins", "joins_ahead", "found_ahead", "implied", "interest", "policies"),
    *("registrations", "overload", "paper", "paper.joins", "sync", "watch"),
    *("cluster", "security", "fairness", "soak", "bulk", "closures", "idle", "servers", "http"),
    *(
        "disk",
        "native",
        "overlay",
        "alter",
        "many_joins",
        "edits",
        "sources",
        "backup",
        "monitoring",
        "percentiles",
        "sql_suites",
        "calendar",
        "erase",
        "overdue",
        "validity",
        "encrypted",
        "base_rows",
    ),
)

_EPILOG = "benchmarks/run store --help: how to measure your own queries, rows or running store."


def main() -> None:
    if sys.argv[1:2] == ["store"]:
        # It has options of its own, and measures the user's workload instead of ours.
        measure_store(sys.argv[2:], prog_name="benchmarks/run store")
    parser = _parser()
    arguments = parser.parse_args()
    if arguments.minutes and arguments.benchmark not in ("soak", "fairness"):
        parser.error("--minutes is for soak and fairness")
    if arguments.all:
        options = [f"--{name}" for name in ("quick", "docs") if getattr(arguments, name)]
        sys.exit(run_all(BENCHMARKS, arguments.quick, options))
    # Some call into a server without a wire, and do so as its only caller would.
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
    parser = argparse.ArgumentParser(
        prog="benchmarks/run", description="Measure a running store.", epilog=_EPILOG
    )
    selection = parser.add_mutually_exclusive_group(required=True)
    selection.add_argument("benchmark", nargs="?", choices=BENCHMARKS)
    selection.add_argument("--all", action="store_true", help="every one, and a summary")
    parser.add_argument("--quick", action="store_true", help="fewer rows and rounds")
    parser.add_argument(
        "--minutes", type=float, help="how long soak lasts, and the long form of fairness"
    )
    parser.add_argument("--docs", action="store_true", help="write tables and plots into docs/")
    parser.add_argument("--json", type=Path, help="write here, not to benchmarks/results/")
    return parser


if __name__ == "__main__":
    main()
