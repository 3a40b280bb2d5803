"""Readers: files and pipes as rows of a stream, in chunks of good rows and bad lines.

A reader is an iterator of chunks in the order of the file, the same ones every time. A parser is
fed with bytes as they arrive.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from client_sdk import Stream
from psoup.source.errors import BadInput
from psoup.source.readers.chunk import BadLine, FileChunk, Options, ReportPosition
from psoup.source.readers.csv_reader import CsvParser
from psoup.source.readers.encoding import Utf8Input, codec_name, is_ascii_based
from psoup.source.readers.jsonl_reader import JsonLinesParser
from psoup.source.readers.parquet_reader import read_arrow, read_parquet

__all__ = [
    "FORMATS",
    "SUFFIXES",
    "BadLine",
    "FileChunk",
    "LineParser",
    "Options",
    "file_format",
    "line_parser",
    "read",
]

SUFFIXES = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".arrows": "arrow",
}
FORMATS = tuple(dict.fromkeys(SUFFIXES.values()))
READ_BYTES = 4 << 20

LineParser = CsvParser | JsonLinesParser


def file_format(path: Path, options: Options) -> str:
    """Return the format that the options or the file's name say. Raises BadInput."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    suffix = next((candidate for candidate in reversed(suffixes) if candidate != ".gz"), "")
    form = options.format or SUFFIXES.get(suffix, "")
    if not form:
        raise BadInput(
            f"{path.name}: unknown format; names end in {', '.join(SUFFIXES)} (and .gz), or use "
            "--format"
        )
    return form


def line_parser(
    form: str, stream: Stream, options: Options, header: list[str] | None = None
) -> LineParser:
    """Return a parser of CSV, TSV or JSON lines. Raises BadInput for another format.

    `header` has the names of CSV if the input begins after them.
    """
    if form == "tsv":
        options = replace(options, delimiter=options.delimiter or "\t")
    if form in ("csv", "tsv"):
        return CsvParser(stream, options, header)
    if form == "jsonl":
        return JsonLinesParser(stream, options)
    raise BadInput(f"{form} can't be read line by line")


def read(
    path: Path,
    stream: Stream,
    options: Options,
    report_position: ReportPosition,
    fit: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
) -> Iterator[FileChunk]:
    """Yield the file's chunks. Raises BadInput if it can't be read.

    `report_position` is called with how many bytes of the file have been read. `fit` makes rows of
    the objects of JSON lines.
    """
    form = file_format(path, options)
    try:
        with path.open("rb") as raw:
            if form == "parquet":
                size = path.stat().st_size
                yield from read_parquet(raw, size, stream, options, report_position)
                return
            source: Any = gzip.GzipFile(fileobj=raw) if path.suffix.lower() == ".gz" else raw
            if form == "arrow":
                yield from read_arrow(source, stream, options, report_position)
                return
            for chunk in read_lines(source, form, stream, options, fit):
                yield chunk
                report_position(raw.tell())
    except (BadInput, EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise BadInput(f"{path.name}{_explained(error)}") from None


def read_lines(
    source: Any,
    form: str,
    stream: Stream,
    options: Options,
    fit: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
) -> Iterator[FileChunk]:
    """Yield the chunks of bytes that are read from `source` in large pieces."""
    codec_name(options.encoding)
    if not is_ascii_based(options.encoding):
        source = Utf8Input(source, options.encoding)
        options = replace(options, encoding="utf-8")
    parser = line_parser(form, stream, options)
    if fit is not None and form == "jsonl":
        parser = JsonLinesParser(stream, options, fit)
    while data := source.read(READ_BYTES):
        yield from parser.feed(data)
    yield from parser.finish()


def _explained(error: Exception) -> str:
    if isinstance(error, BadInput):
        text = str(error)
        return f" {text}" if text.startswith(("is ", "has ", "can't ")) else f": {text}"
    return f" can't be unpacked: {error}"
