"""What refusals cost a server, as a table.

    python -m tests.hostile.costs [REFUSALS]

A caller who may not publish sends messages as large as they may be, so many times each, to a
server with `--memory 128MB`; then messages of several sizes that no parser should be given.
Resident memory is read without a garbage collection; the loop's time is processor time.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.hostile.large import field
from tests.hostile.test_bounds import LARGEST, MB, PUBLISH, REGISTER, Boundary

_ASK = "/psoup.v1.Psoup/Ask"
_KB = 1 << 10


def typed(nbytes: int) -> bytes:
    """Return a publish of one row with as many empty values as fit."""
    return field(2, b"s") + field(6, field(2, field(1, b"") * (nbytes // 2 - 10)))


def main(refusals: int) -> None:
    large = {
        "typed rows": (PUBLISH, typed(LARGEST)),
        "Arrow": (PUBLISH, field(2, b"s") + field(5, bytes(LARGEST - 20))),
        "Ask": (_ASK, field(3, b"x" * (LARGEST - 20))),
        "Register": (REGISTER, field(4, b"x" * (LARGEST - 20))),
    }
    sized = {
        f"{size // _KB:,} KB of 0xff": b"\xff" * size
        for size in (20 * _KB, 200 * _KB, 600 * _KB, LARGEST)
    } | {
        f"{size // _KB:,} KB of empty values": typed(size)
        for size in (64 * _KB, 256 * _KB, MB, 4 * MB, LARGEST)
    }
    with tempfile.TemporaryDirectory() as folder:
        boundary = Boundary(Path(folder))
        server, before = boundary.server, boundary.server.read()
        print(f"resident at first: {before.resident_bytes // MB:,} MB")
        for name, (path, content) in large.items():
            before = server.read()
            for _ in range(refusals):
                boundary.send(path, content, boundary.reader)
            after = server.read()
            grown = (after.resident_bytes - before.resident_bytes) / MB
            seconds = (after.loop_seconds - before.loop_seconds) / refusals
            costs = f"{grown:+,.0f} MB, {seconds * 1e3:.0f} ms of the loop each"
            print(f"{refusals} × 16 MB, {name}: {costs}", flush=True)
        for name, content in sized.items():
            before = server.read()
            code = boundary.send(PUBLISH, content, boundary.reader)
            seconds = server.read().loop_seconds - before.loop_seconds
            print(f"{name}: {seconds * 1e3:,.0f} ms of the loop, {code}", flush=True)
        server.stop()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 40)
