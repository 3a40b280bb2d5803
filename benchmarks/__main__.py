"""`python -m benchmarks NAME [--quick]`; benchmarks/run sets up first."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from benchmarks import freshness, invoke, publish, windows

BENCHMARKS = {
    "invoke": invoke.run,
    "windows": windows.run,
    "freshness": freshness.run,
    "publish": publish.run,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks/run", description="Measure a running store.")
    parser.add_argument("benchmark", choices=BENCHMARKS)
    parser.add_argument("--quick", action="store_true", help="fewer rows and rounds")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        report = BENCHMARKS[arguments.benchmark](Path(folder), arguments.quick)
    report.show()
    print(f"written to {report.write().relative_to(Path.cwd())}")


if __name__ == "__main__":
    main()
