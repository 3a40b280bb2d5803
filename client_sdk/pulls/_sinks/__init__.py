"""Sinks, which write an answer in a format and replace their output all at once."""

from __future__ import annotations

from pathlib import Path

from client_sdk._exceptions import BadPull
from client_sdk.pulls._sinks.delta import DeltaSink
from client_sdk.pulls._sinks.files import (
    CsvSink,
    JsonLinesSink,
    JsonSink,
    Output,
    ParquetSink,
    Sink,
    Stamp,
)
from client_sdk.pulls._sinks.sqlite import ABOUT, SqliteSink

FORMATS = ("parquet", "csv", "json", "jsonl", "sqlite", "delta")
SUFFIXES = {
    ".parquet": "parquet",
    ".csv": "csv",
    ".json": "json",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".sqlite": "sqlite",
    ".sqlite3": "sqlite",
    ".db": "sqlite",
    ".delta": "delta",
}
_SPREADSHEETS = frozenset({".xlsx", ".xls", ".xlsm", ".ods"})
_FILES = {"parquet": ParquetSink, "json": JsonSink, "jsonl": JsonLinesSink}


def format_of(path: Path) -> str:
    """Return the format of a path by its suffix. Raises BadPull if that does not name one."""
    suffix = path.suffix.lower()
    if suffix in SUFFIXES:
        return SUFFIXES[suffix]
    formats = (
        f"end it in {', '.join(SUFFIXES)}, or give the format (--format): {', '.join(FORMATS)}"
    )
    if suffix in _SPREADSHEETS:
        raise BadPull(f"{path}: spreadsheets are not written, but open a .csv; {formats}")
    what = f"{suffix} is no known suffix" if suffix else "the name has no suffix"
    raise BadPull(f"{path}: the name does not say the format, {what}; {formats}")


def sink_for(path: Path, form: str, name: str, csv_safe: bool = False) -> Sink:
    """Return the sink. Raises BadPull if `path` can't be an output of that format."""
    if not path.resolve().parent.is_dir():
        raise BadPull(f"{path}: there is no folder {path.resolve().parent}")
    if (form == "delta" and path.is_file()) or (form != "delta" and path.is_dir()):
        kind = "a file" if path.is_file() else "a folder"
        raise BadPull(f"{path} is {kind}, and {form} needs the other")
    if form == "sqlite":
        if name.lower() == ABOUT:
            raise BadPull(f"{name} is the name of the table of pulls; give the pull another name")
        return SqliteSink(path, name)
    if form == "delta":
        try:
            return DeltaSink(path)
        except ImportError as error:
            raise BadPull(str(error)) from error
    return CsvSink(path, csv_safe) if form == "csv" else _FILES[form](path)


__all__ = ["FORMATS", "SUFFIXES", "Output", "Sink", "Stamp", "format_of", "sink_for"]
