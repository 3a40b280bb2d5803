"""Files as rows of a stream: chunks of good rows, and the lines that are not.

A reader is an iterator of Chunks, in the order of the file, the same ones every time.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from client_sdk import Stream
from psoup.cli.problems import fail
from psoup.cli.readers.chunk import BadLine, FileChunk, Options, Tell
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


def read(path: Path, stream: Stream, options: Options, tell: Tell) -> Iterator[FileChunk]:
    """The file's chunks. `tell` is called with how many of its bytes have been read."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    suffix = next((each for each in reversed(suffixes) if each != ".gz"), "")
    if suffix not in _READERS:
        fail(f"{path.name}: can't tell the format; names end in {', '.join(_READERS)} (and .gz)")
    return _READERS[suffix](path, stream, options, tell)
