"""Outputs that are one file: Parquet, CSV, JSON. Written beside, synced, renamed."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pyarrow.csv
import pyarrow.parquet

from client_sdk.pulls._sinks._output import Output, Stamp
from client_sdk.pulls._sinks._plain import odd_name, plain_values


class FileSink:
    """A link is followed: the file it leads to is replaced, in its own folder."""

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
    """Every type as it is. The metadata of the schema names the pull, its position and NOW."""

    def _fill(self, output: Output, file: IO[bytes]) -> None:
        about = {f"psoup.{name}": value or "" for name, value in _about(output).items()}
        schema = output.schema.with_metadata(about)
        with pyarrow.parquet.ParquetWriter(file, schema) as writer:
            for batch in output.batches():
                writer.write_batch(batch)


class CsvSink(FileSink):
    """With a line of names. TEXT is quoted and NULL is nothing at all, so that "" is a text."""

    def _fill(self, output: Output, file: IO[bytes]) -> None:
        with pyarrow.csv.CSVWriter(file, output.schema) as writer:
            for batch in output.batches():
                writer.write_batch(batch)


class JsonLinesSink(FileSink):
    """An object a line."""

    def _fill(self, output: Output, file: IO[bytes]) -> None:
        for text in _objects(output):
            file.write(text + b"\n")


class JsonSink(FileSink):
    """One document: pull, position, NOW, columns with their types, and the rows."""

    def _fill(self, output: Output, file: IO[bytes]) -> None:
        columns = [{"name": column.name, "type": column.type} for column in output.columns]
        head = _encoded({**_about(output), "columns": columns})
        file.write(head[:-1] + b', "rows": [')
        separator = b"\n"
        for text in _objects(output):
            file.write(separator + text)
            separator = b",\n"
        file.write(b"\n]}\n")


def _about(output: Output) -> dict[str, str | None]:
    now = None if output.now is None else output.now.isoformat()
    return {"pull": output.name, "position": output.position.hex(), "now": now}


def _objects(output: Output) -> Iterator[bytes]:
    names = [column.name for column in output.columns]
    for batch in output.batches():
        values = [
            plain_values(array, column, odd_name)
            for array, column in zip(batch.columns, output.columns, strict=True)
        ]
        for row in zip(*values, strict=True):
            yield _encoded(dict(zip(names, row, strict=True)))


def _encoded(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, allow_nan=False).encode()


def stamp_of(*paths: Path) -> Stamp | None:
    """Size, time and inode of each that is there; None where the first is not."""
    found: Stamp = []
    for path in paths:
        try:
            stat = path.stat()
        except FileNotFoundError:
            if not found:
                return None
            continue
        found.append([stat.st_size, stat.st_mtime_ns, stat.st_ino])
    return found


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A file that takes the place of `path` when the block ends, and only then.

    What a killed writer left behind is overwritten by the next one; so there is one writer only.
    """
    draft = path.with_name(f".{path.name}.pulling")
    try:
        with draft.open("wb") as file:
            yield file
            file.flush()
            _take_mode(file, path)
            os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def _take_mode(file: IO[bytes], path: Path) -> None:
    """Who may read the old file may read the new one."""
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
