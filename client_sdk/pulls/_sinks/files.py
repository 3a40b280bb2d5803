"""Outputs that are one file, Parquet, CSV or JSON, are written beside, synced and renamed.

JSON has fewer types than the language; `psoup.formats.json_rows` says what becomes of them.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import IO, Any, Protocol

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from client_sdk._wire.values import Column, schema_of
from psoup.formats.csv_safe import formula_safe, formula_safe_schema
from psoup.formats.json_rows import rows_as_json

Stamp = list[list[int]]


@dataclass(frozen=True)
class Output:
    """An answer to be written, whose rows can be read in order as often as necessary.

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
    """A place that an answer is written to, by one writer at a time.

    `write` replaces the output all at once: readers see the old answer or the new one, whatever is
    killed. If the output fails it raises one of `failures`. `stamp` is cheap and changes with every
    write; `fingerprint` is of the content. Both are None if there is nothing that `write` could
    have written.
    """

    @property
    def failures(self) -> tuple[type[Exception], ...]: ...

    def write(self, output: Output) -> None: ...

    def stamp(self) -> Stamp | None: ...

    def fingerprint(self) -> str | None: ...


class FileSink:
    """A sink for one file. A link is followed: the file it leads to is replaced, in its own
    folder.
    """

    failures: tuple[type[Exception], ...] = (OSError,)

    def __init__(self, path: Path) -> None:
        self._path = path.resolve()

    def write(self, output: Output) -> None:
        with replacing(self._path) as file:
            self._fill(output, file)

    def stamp(self) -> Stamp | None:
        return stamp_of(self._path)

    def fingerprint(self) -> str | None:
        try:
            with self._path.open("rb") as content:
                return hashlib.file_digest(content, "sha256").hexdigest()
        except FileNotFoundError:
            return None

    def _fill(self, output: Output, file: IO[bytes]) -> None:
        raise NotImplementedError


class ParquetSink(FileSink):
    """Parquet keeps every type. The metadata of the schema names the pull, its position and NOW."""

    def _fill(self, output: Output, file: IO[bytes]) -> None:
        about = {f"psoup.{name}": value or "" for name, value in _about(output).items()}
        schema = output.schema.with_metadata(about)
        with pyarrow.parquet.ParquetWriter(file, schema) as writer:
            for batch in output.batches():
                writer.write_batch(batch)


class CsvSink(FileSink):
    """CSV has a line of names. TEXT is quoted and NULL is nothing at all, so that "" is a text."""

    def __init__(self, path: Path, safe: bool = False) -> None:
        super().__init__(path)
        self._safe = safe

    def _fill(self, output: Output, file: IO[bytes]) -> None:
        schema = formula_safe_schema(output.schema) if self._safe else output.schema
        with pyarrow.csv.CSVWriter(file, schema) as writer:
            for batch in output.batches():
                writer.write_batch(formula_safe(batch) if self._safe else batch)


class JsonLinesSink(FileSink):
    """JSON lines have an object a line."""

    def _fill(self, output: Output, file: IO[bytes]) -> None:
        for text in _objects(output, "\n"):
            file.write(text + b"\n")


class JsonSink(FileSink):
    """JSON is one document: pull, position, NOW, columns with their types, and the rows."""

    def _fill(self, output: Output, file: IO[bytes]) -> None:
        columns = [{"name": column.name, "type": column.type} for column in output.columns]
        head = _encoded({**_about(output), "columns": columns})
        file.write(head[:-1] + b', "rows": [')
        separator = b"\n"
        for text in _objects(output, ",\n"):
            file.write(separator + text)
            separator = b",\n"
        file.write(b"\n]}\n")


def _about(output: Output) -> dict[str, str | None]:
    now = None if output.now is None else output.now.isoformat()
    return {"pull": output.name, "position": output.position.hex(), "now": now}


def _objects(output: Output, separator: str) -> Iterator[bytes]:
    """Yield the JSON objects of rows, joined batch by batch."""
    names = [column.name for column in output.columns]
    for batch in output.batches():
        if batch.num_rows:
            yield rows_as_json(batch, separator, names)


def _encoded(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, allow_nan=False).encode()


def stamp_of(*paths: Path) -> Stamp | None:
    """Return size, time and inode of each file that exists; None if the first does not."""
    stamp: Stamp = []
    for path in paths:
        try:
            stat = path.stat()
        except FileNotFoundError:
            if not stamp:
                return None
            continue
        stamp.append([stat.st_size, stat.st_mtime_ns, stat.st_ino])
    return stamp


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Return a file that takes the place of `path` when the block ends, and only then.

    What a killed writer left behind is overwritten by the next one; so there is one writer only.
    """
    draft = path.with_name(f".{path.name}.pulling")
    try:
        with draft.open("wb") as file:
            yield file
            file.flush()
            _take_mode(file, path)
            # The content goes to the disk before the name: a power cut must not leave an empty
            # output.
            os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def _take_mode(file: IO[bytes], path: Path) -> None:
    """Let those read the new file who may read the old one."""
    try:
        os.chmod(file.name, path.stat().st_mode & 0o7777)
    except FileNotFoundError:
        return


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
