"""What a sink is given, and what it promises."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

import pyarrow as pa

from client_sdk._columns import Column, schema_of

Stamp = list[list[int]]


@dataclass(frozen=True)
class Output:
    """An answer on its way out: what it is of, and its rows in order, as often as asked for.

    Batches have exactly `schema`.
    """

    name: str
    columns: tuple[Column, ...]
    batches: Callable[[], Iterable[pa.RecordBatch]]
    now: datetime | None = None
    position: bytes = b""

    @property
    def schema(self) -> pa.Schema:
        return schema_of(self.columns)


class Sink(Protocol):
    """One place an answer is written to, by one writer at a time.

    `write` replaces what is there all at once: whoever reads, and whatever is killed, sees the old
    answer or the new one. Where the output is the trouble it raises one of `failures`.
    `stamp` is cheap and changes whenever somebody wrote; `fingerprint` is of the content. Both are
    None where there is nothing that `write` could have written.
    """

    @property
    def failures(self) -> tuple[type[Exception], ...]: ...

    def write(self, output: Output) -> None: ...

    def stamp(self) -> Stamp | None: ...

    def fingerprint(self) -> str | None: ...
