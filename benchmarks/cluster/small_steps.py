"""Takes small steps, and prints the median of their processor seconds, over all processes.

It runs with the code of this commit and of earlier ones, so it uses what both have.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
from pathlib import Path

from psoup.engine.engine import Engine
from psoup.store import Store
from tests.support.engine.author import READINGS, Author, above, readings, sensor_is

try:
    from psoup.engine.spark.session import open_session
except ModuleNotFoundError:  # the place of the session in the earlier commit
    from psoup.engine.session import open_session  # type: ignore[import-not-found,no-redef]

_TICKS = os.sysconf("SC_CLK_TCK")
_WARM_UP_STEPS = 15


def main() -> None:
    root, steps = Path(sys.argv[1]), int(sys.argv[2])
    store = Store.open(root, create=True, sync=False)
    author = Author(store)
    stream = author.create(READINGS)
    for number in range(512):
        author.register(stream, sensor_is(number))
        author.register(stream, above(number / 8))
    rows = readings([n % 700 for n in range(1000)], [n / 10 for n in range(1000)])
    with tempfile.TemporaryDirectory() as scratch:
        spark = open_session(Path(scratch), master="local[2]")
        engine = Engine(store, spark)
        engine.start()
        engine.wait_for(author.state.position, 300)
        engine.wait_idle(300)
        seconds = []
        for _ in range(_WARM_UP_STEPS + steps):
            before = _processor()
            engine.wait_for(author.publish(stream, rows), 300)
            engine.wait_idle(300)
            seconds.append(_processor() - before)
        engine.stop()
        spark.stop()
    print(json.dumps(statistics.fmean(sorted(seconds[_WARM_UP_STEPS:])[: steps // 2])))


def _processor() -> float:
    """Return the processor seconds of this process and all that it started."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        process = int(path.parent.name)
        parents[process], ticks[process] = int(fields[1]), sum(map(int, fields[11:15]))
    tree = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in tree and pid not in tree}:
        tree |= more
    return sum(ticks[process] for process in tree) / _TICKS


if __name__ == "__main__":
    main()
