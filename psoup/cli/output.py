"""Output and help: tables for people, JSON, CSV and Arrow for programs."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import IO, Any, Protocol

import click
import pyarrow as pa
import pyarrow.csv
from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from client_sdk import AnswerHeader
from client_sdk.pulls import formula_safe, formula_safe_schema
from psoup.escaping import escaped, escaped_json

# Widths in characters. A pipe has no edge to wrap at.
_PIPE_WIDTH = 10_000
_COLUMN_GAP = 2
# The longest word that is never broken: that of a name.
_LONGEST_WORD = 64
# Less room than this is too little for a sentence.
_SENTENCE_WIDTH = 40
# More than the first sentence of any command's help.
_SHORT_HELP_LIMIT = 300

FORMATS = ("table", "json", "jsonl", "csv", "arrow")


class SentenceGroup(click.Group):
    """A group whose help lists the whole first sentence of each command; click would cut it."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        lines = [
            (name, command.get_short_help_str(_SHORT_HELP_LIMIT))
            for name, command in commands
            if command
        ]
        with formatter.section("Commands"):
            formatter.write_dl(lines)


def console(least_width: int = 0) -> Console:
    """Return standard output, at least `least_width` wide; a pipe is never wrapped."""
    standard = Console()
    return Console(width=max(standard.width, least_width) if standard.is_terminal else _PIPE_WIDTH)


def draw(content: RenderableType) -> None:
    """Print texts and tables of rich, whose words the caller has escaped."""
    console().print(content)


def echo(text: str = "", *, err: bool = False, label: str = "") -> None:
    """Print a text of one or more lines. The text is escaped, since any client may have written it.

    A `label` is printed before it as it is, and may be styled.
    """
    click.echo(f"{label}{escaped(text, lines=True)}", err=err)


def note(first: str, *details: str) -> None:
    """Print lines for the person at the terminal, to standard error: never part of the result."""
    for line in (first, *(f"  {line}" for line in details)):
        echo(escaped(line), err=True)


def counted(count: int, noun: str, plural: str = "") -> str:
    """Return a count with its noun: "1 row", "2,000 rows". `plural` is for irregular nouns."""
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"


def grid(
    heads: Sequence[str],
    rows: Iterable[Sequence[Any]],
    *,
    empty: str = "",
    last_below: bool = False,
) -> None:
    """Print rows under their heads. No word is cut off: names and handles are to be copied.

    With `last_below` the last cell of a row goes to its own lines if the terminal is narrow.
    `empty` is noted if there are no rows.
    """
    cells = [[_cell(value) for value in row] for row in rows]
    if not cells and empty:
        note(empty)
        return
    columns = [
        _GridColumn.of(_cell(head), [row[n] for row in cells]) for n, head in enumerate(heads)
    ]
    room = Console().width - sum(column.least + _COLUMN_GAP for column in columns[:-1])
    if last_below and Console().is_terminal and room < _SENTENCE_WIDTH:
        _print_pairs(columns[:-1], cells)
    else:
        _print_grid(columns, cells)


@dataclasses.dataclass(frozen=True)
class _GridColumn:
    """A column's widths. Below `least` a word would be cut; `whole`: its cells are never broken."""

    head: str
    width: int
    least: int
    whole: bool

    @classmethod
    def of(cls, head: str, cells: Sequence[str]) -> _GridColumn:
        plain = [Text.from_markup(cell).plain for cell in (head, *cells)]
        # Widths are in cells of the terminal: some characters take two.
        width = max(map(cell_len, plain))
        words = [cell_len(word) for text in plain for word in text.split()]
        longest = max(words, default=0)
        whole = longest <= _LONGEST_WORD and not any(" " in text for text in plain[1:])
        return cls(head, width, min(longest, _LONGEST_WORD), whole)


def _print_grid(columns: Sequence[_GridColumn], cells: Iterable[Sequence[str]]) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column.head, overflow="fold", no_wrap=column.whole)
    for row in cells:
        table.add_row(*row)
    console(sum(column.least + _COLUMN_GAP for column in columns)).print(table)


def _print_pairs(columns: Sequence[_GridColumn], cells: Iterable[Sequence[str]]) -> None:
    """Print a line for each row, and below it the row's last cell."""

    def line(row: Iterable[str]) -> Text:
        text = Text()
        for cell, column in zip(row, columns, strict=False):
            padded = Text.from_markup(cell)
            padded.pad_right(column.width + _COLUMN_GAP - padded.cell_len)
            text.append_text(padded)
        text.rstrip()
        return text

    output = console()
    output.print(line(column.head for column in columns), style="bold", soft_wrap=True)
    for row in cells:
        output.print(line(row), soft_wrap=True)
        output.print(Padding(row[-1], (0, 0, 0, _COLUMN_GAP)))


def pair_table(title: str, pairs: Iterable[tuple[str, str]]) -> None:
    """Print names and their values, below a title."""
    table = Table(
        title=_cell(title), title_justify="left", box=None, show_header=False, pad_edge=False
    )
    table.add_column(style="bold")
    table.add_column()
    for name, value in pairs:
        table.add_row(_cell(name), _cell(value))
    console().print(table)


def _cell(value: Any) -> str:
    if value is None:
        return "[dim]NULL[/dim]"
    text = value.isoformat(sep=" ") if isinstance(value, datetime) else str(value)
    # Control characters first, then rich's own markup: a value must not style the terminal.
    return escape(escaped(text))


def as_json(value: Any) -> str:
    """Return JSON in one line: bytes in hex, instants in ISO 8601, decimals as text."""
    plain = dataclasses.asdict(value) if dataclasses.is_dataclass(value) else value  # type: ignore[arg-type]
    return escaped_json(json.dumps(plain, default=_plain, ensure_ascii=False))


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


class AnswerStream(Protocol):
    """An answer: its header, and its batches by iteration."""

    @property
    def header(self) -> Any: ...

    def __iter__(self) -> Iterator[pa.RecordBatch]: ...


@dataclasses.dataclass(frozen=True)
class AnswerForm:
    """How an answer is written: in a format of FORMATS, to `path` or the terminal.

    A table shows at most `limit` rows. With `csv_safe` no text of CSV is a formula.
    """

    name: str
    path: Path | None
    limit: int
    csv_safe: bool

    def __post_init__(self) -> None:
        if self.name == "arrow" and self.path is None:
            raise click.UsageError("--format arrow needs --output FILE")
        if self.csv_safe and self.name != "csv":
            raise click.UsageError("--csv-safe needs --format csv")


def form_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of an AnswerForm, which the command gets as `form`."""

    @functools.wraps(command)
    def formed(
        *args: Any, form: str, output: Path | None, limit: int, csv_safe: bool, **options: Any
    ) -> Any:
        return command(*args, form=AnswerForm(form, output, limit, csv_safe), **options)

    for option in (
        click.option(
            "--csv-safe",
            is_flag=True,
            help="Put ' before texts of CSV that a spreadsheet would read as formulas.",
        ),
        click.option(
            "--limit",
            type=click.IntRange(min=1),
            default=40,
            show_default=True,
            help="The most rows of a table; other formats have all.",
        ),
        click.option(
            "--output",
            "-o",
            type=click.Path(dir_okay=False, path_type=Path),
            show_default="the terminal",
            help="Write the answer to this file.",
        ),
        click.option(
            "--format",
            "form",
            type=click.Choice(FORMATS),
            default="table",
            show_default=True,
            help="The form of the answer; arrow needs --output.",
        ),
    ):
        formed = option(formed)
    return formed


def write_answer(
    answer: AnswerStream, form: AnswerForm, write_footer: Callable[[Any], None]
) -> None:
    """Write an answer batch by batch; `json` is one document, with the header. Other forms get a
    footer on standard error, which has their NOW.
    """
    if form.name == "table":
        _write_table(answer, form.limit)
    elif form.name in ("csv", "arrow"):
        _write_binary(answer, form)
    else:
        with _text(form.path) as sink:
            lines = _json_lines(answer) if form.name == "jsonl" else [_document(answer)]
            for line in lines:
                sink.write(f"{line}\n")
    if form.name != "json":
        write_footer(answer.header)


def _write_table(answer: AnswerStream, limit: int) -> None:
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
    """Note what an answer is of, and what it cost."""
    engine = f"epoch {header.epoch}" if header.epoch else "no engine yet"
    if header.behind_rows:
        engine += f", {counted(header.behind_rows, 'row')} behind"
    point = f" · refreshed at {header.refreshed_at}" if header.refreshed_at else ""
    point += f", full at {header.full_at}" if header.full_at else ""
    rows = counted(header.row_count, "row")
    note(
        f"{rows} at {header.now or 'no instant yet'}{_ends(header)}{point}",
        f"{engine} · {counted(header.computed_rows, 'row')} computed on the spot{_pairs(header)} · "
        f"{header.elapsed.total_seconds() * 1000:.1f} ms",
        *_lagging(header),
        *header.notes,
    )


def _pairs(header: AnswerHeader) -> str:
    return f", {counted(header.joined_pairs, 'pair')} joined" if header.joined_pairs else ""


def _ends(header: AnswerHeader) -> str:
    if header.window_begin is None and header.window_end is None:
        return ""
    return f" · window {header.window_begin or '…'} to {header.window_end or '…'}"


def _lagging(header: AnswerHeader) -> list[str]:
    """Return a line if one stream lags behind another, else nothing."""
    if header.latest is None or header.complete_until == header.latest:
        return []
    if header.complete_until is None:
        return [f"one stream has no rows yet, another one has reached {header.latest}"]
    return [f"complete until {header.complete_until}; one stream has reached {header.latest}"]


def _document(answer: AnswerStream) -> str:
    header = dataclasses.asdict(answer.header)
    return as_json({**header, "rows": [row for batch in answer for row in batch.to_pylist()]})


def _json_lines(answer: AnswerStream) -> Iterator[str]:
    return (as_json(row) for batch in answer for row in batch.to_pylist())


def _text(path: Path | None) -> Any:
    return click.open_file("-" if path is None else str(path), "w", encoding="utf-8")


def _write_binary(answer: AnswerStream, form: AnswerForm) -> None:
    schema: pa.Schema = answer.header.schema
    written = formula_safe_schema(schema) if form.csv_safe else schema
    with (
        click.open_file("-" if form.path is None else str(form.path), "wb") as sink,
        _writer(sink, written, form.name) as writer,
    ):
        for batch in answer:
            cast = batch.cast(schema)
            writer.write_batch(formula_safe(cast) if form.csv_safe else cast)


def _writer(sink: IO[Any], schema: pa.Schema, form: str) -> Any:
    if form == "csv":
        return pyarrow.csv.CSVWriter(sink, schema)
    return pa.ipc.new_file(sink, schema)
