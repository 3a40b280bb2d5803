"""Readers: files as rows of a stream, in chunks of good rows and bad lines.

A reader is an iterator of chunks in the order of the file, the same ones every time.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from client_sdk import Stream
from psoup.cli.problems import fail
from psoup.cli.readers.chunk import BadLine, FileChunk, Options, ReportPosition
from psoup.cli.readers.csv_reader import read_csv
from psoup.cli.readers.jsonl_reader import read_jsonl
from psoup.cli.readers.parquet_reader import read_parquet

__all__ = ["BadLine", "FileChunk", "Options", "read"]

_READERS = {
    ".csv": read_csv,
    ".tsv": read_csv,
    ".jsonl": read_jsonl,
    ".ndjson": read_jsonl,
    ".json": read_jsonl,
    ".parquet": read_parquet,
}


def read(
    path: Path, stream: Stream, options: Options, report_position: ReportPosition
) -> Iterator[FileChunk]:
    """Yield the file's chunks; fail if the format is unknown.

    `report_position` is called with how many bytes of the file have been read.
    """
    suffixes = [suffix.lower() for suffix in path.suffixes]
    suffix = next((candidate for candidate in reversed(suffixes) if candidate != ".gz"), "")
    if suffix not in _READERS:
        fail(f"{path.name}: unknown format; names end in {', '.join(_READERS)} (and .gz)")
    return _READERS[suffix](path, stream, options, report_position)
