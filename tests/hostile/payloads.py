"""Arrow payloads, mutated, through what a server does with a batch before it is appended.

    python -m tests.hostile.payloads FIRST COUNT

A payload that broke Arrow would end the whole process, so this is one of its own; the last line
tells how many were accepted.
"""

from __future__ import annotations

import random
import sys
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa

from datastem.accept import Limits, accept
from datastem.codec import encode
from datastem.errors import DataError
from psoup.server.wire.arrow import read_table
from querystem.language import CreateStream, parse_statement
from tests.hostile.mutating import mutated_bytes

SCHEMA = parse_statement(
    "CREATE STREAM s (t TEXT, i BIGINT, d DOUBLE, n DECIMAL(5,2), y DATE, b BOOLEAN, at TIMESTAMP)"
    " KEY (i) ORDERED BY at"
)
NOW = datetime(2026, 3, 3, tzinfo=UTC)
CLOCK = int(NOW.timestamp()) * 1_000_000
LIMITS = Limits(batch_bytes=1 << 20)


def payloads() -> list[bytes]:
    """Good batches: few and many rows, compressed or not, with NULLs, views and dictionaries."""
    columns = {
        "t": ["a", None, "é" * 20],
        "i": [1, 2, 3],
        "d": [0.5, None, float("nan")],
        "n": [Decimal("1.50"), None, Decimal("-999.99")],
        "y": [date(2026, 1, 1), None, date(1970, 1, 1)],
        "b": [True, None, False],
        "at": [NOW, NOW, NOW],
    }
    few = pa.table(columns)
    many = pa.concat_tables([few] * 100).combine_chunks()
    coded = few.set_column(0, "t", few.column("t").dictionary_encode())
    viewed = few.set_column(0, "t", few.column("t").cast(pa.string_view()))
    generated = []
    for table in (few, many, coded, viewed):
        for codec in (None, "zstd", "lz4"):
            sink = pa.BufferOutputStream()
            options = pa.ipc.IpcWriteOptions(compression=codec)
            with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
                writer.write_table(table)
            generated.append(bytes(sink.getvalue()))
    return generated


def try_one(number: int, accepted: list[bytes]) -> bool:
    """Tells whether the payload of a case is accepted. Raises for anything but a refusal."""
    assert isinstance(SCHEMA, CreateStream)
    draw = random.Random(number)
    payload = mutated_bytes(draw, draw.choice(accepted), accepted)
    try:
        batch = accept(read_table(payload, LIMITS), SCHEMA.schema, CLOCK, LIMITS)
        encode(batch.batch)
    except DataError:
        return False
    return True


def main(first: int, count: int) -> None:
    known, accepted = payloads(), 0
    for number in range(first, first + count):
        try:
            accepted += try_one(number, known)
        except Exception as error:
            raise AssertionError(f"case {number}") from error
    print(f"accepted {accepted} of {count}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
