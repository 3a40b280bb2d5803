"""How results look: tables for people, JSON, CSV and Arrow for programs."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import IO, Any, Protocol

import click
import pyarrow as pa
import pyarrow.csv
from rich.console import Console
from rich.table import Table

from client_sdk import AnswerHeader

_WIDE = 10_000

FORMATS = ("table", "json", "jsonl", "csv", "arrow")


def console() -> Console:
    """Standard output; a pipe has no edge to wrap at."""
    found = Console()
    return found if found.is_terminal else Console(width=_WIDE)


def note(first: str, *more: str) -> None:
    """For the person at the terminal: beside the result, never in it."""
    click.echo(first, err=True)
    for line in more:
        click.echo(f"  {line}", err=True)


def grid(heads: Sequence[str], rows: Iterable[Sequence[Any]], *, empty: str = "") -> None:
    table = Table(*heads, box=None, pad_edge=False, header_style="bold")
    for row in rows:
        table.add_row(*[_cell(value) for value in row])
    if table.row_count or not empty:
        console().print(table)
    else:
        note(empty)


def pair_table(title: str, pairs: Iterable[tuple[str, str]]) -> None:
    table = Table(title=title, title_justify="left", box=None, show_header=False, pad_edge=False)
    table.add_column(style="bold")
    table.add_column()
    for name, value in pairs:
        table.add_row(name, value)
    console().print(table)


def _cell(value: Any) -> str:
    if value is None:
        return "[dim]NULL[/dim]"
    shown = value.isoformat(sep=" ") if isinstance(value, datetime) else str(value)
    return shown.replace("[", r"\[")


def as_json(value: Any) -> str:
    """One line. Bytes are hex, instants ISO 8601, decimals their digits as text."""
    plain = dataclasses.asdict(value) if dataclasses.is_dataclass(value) else value  # type: ignore[arg-type]
    return json.dumps(plain, default=_plain, ensure_ascii=False)


def _plain(value: Any) -> Any:
    match value:
        case bytes():
            return value.hex()
        case datetime() | date():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
        case Decimal():
            return str(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")


class Shown(Protocol):
    """Anything that comes as an answer does: what it is of, then batches by iteration."""

    @property
    def header(self) -> Any: ...

    def __iter__(self) -> Iterator[pa.RecordBatch]: ...


def write_answer(
    answer: Shown, form: str, path: Path | None, limit: int, tell: Callable[[Any], None]
) -> None:
    """Batch by batch, except that `json` is one document. `tell` says of a table what it is of."""
    if form == "table":
        _write_table(answer, limit)
        tell(answer.header)
    elif form in ("csv", "arrow"):
        _write_binary(answer, form, path)
    else:
        with _text(path) as sink:
            lines = _json_lines(answer) if form == "jsonl" else [_document(answer)]
            for line in lines:
                sink.write(f"{line}\n")


def _write_table(answer: Shown, limit: int) -> None:
    header = answer.header
    rows: list[dict[str, Any]] = []
    for batch in answer:
        rows += batch.slice(0, limit - len(rows)).to_pylist()
        if len(rows) >= limit:
            break
    names = [column.name for column in header.columns]
    grid(names, [[row[name] for name in names] for row in rows])
    if header.row_count > len(rows):
        note(f"… and {header.row_count - len(rows):,} more; --limit or --format shows them")


def footer(header: AnswerHeader) -> None:
    window = f"{header.window_begin or '…'} to {header.window_end or '…'}"
    engine = f"epoch {header.epoch}" if header.epoch else "no engine yet"
    if header.behind_rows:
        engine += f", {header.behind_rows:,} rows behind"
    point = f" · refreshed at {header.refreshed_at}" if header.refreshed_at else ""
    note(
        f"{header.row_count:,} rows at {header.now or 'no instant yet'} · window {window}{point}",
        f"{engine} · {header.computed_rows:,} rows computed on the spot · "
        f"{header.elapsed.total_seconds() * 1000:.1f} ms",
        *header.notes,
    )


def _document(answer: Shown) -> str:
    said = dataclasses.asdict(answer.header)
    return as_json({**said, "rows": [row for batch in answer for row in batch.to_pylist()]})


def _json_lines(answer: Shown) -> Iterator[str]:
    return (as_json(row) for batch in answer for row in batch.to_pylist())


def _text(path: Path | None) -> Any:
    return click.open_file("-" if path is None else str(path), "w", encoding="utf-8")


def _write_binary(answer: Shown, form: str, path: Path | None) -> None:
    schema: pa.Schema = answer.header.schema
    with (
        click.open_file("-" if path is None else str(path), "wb") as sink,
        _writer(sink, schema, form) as writer,
    ):
        for batch in answer:
            writer.write_batch(batch.cast(schema))


def _writer(sink: IO[Any], schema: pa.Schema, form: str) -> Any:
    if form == "csv":
        return pyarrow.csv.CSVWriter(sink, schema)
    return pa.ipc.new_file(sink, schema)
