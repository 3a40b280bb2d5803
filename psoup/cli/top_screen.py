"""The screen of psoup top: lines and tables that fit a small terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.text import Text

from client_sdk import StoreStatus
from psoup.cli.call_rates import CallRate
from psoup.cli.top_looks import BackfillProgress, Look, ServerLook, StreamRate, WorkSum
from psoup.escaping import escaped

_MAX_STREAMS = 20
_MAX_ENTRIES = 10
_BAR_LENGTH = 20
# Between columns, and the least that is shown of a name.
_GAP, _LEAST_NAME = 2, 4


def screen(look: Look) -> RenderableType:
    """Return the whole screen; what matters most is at its top, since a small terminal shows no
    more."""
    status = next(server.status for server in look.servers if server.status is not None)
    parts: list[RenderableType] = [
        _line(f"store {status.store_id}   {status.now:%Y-%m-%d %H:%M:%S}"),
        _line(_engine(status)),
    ]
    if look.backfill.rows:
        parts.append(_line(_backfill(look.backfill)))
    parts += [_line(_server(server)) for server in look.servers]
    parts.append(
        _line(f"{status.stream_count:,} streams, {status.registration_count:,} registrations")
    )
    if look.calls:
        parts += [Text(), _call_table(look.calls)]
    parts += [Text(), _stream_table(look.streams), Text(), _work_table(look.registrations)]
    if len(look.tenants) > 1:
        parts += [Text(), _tenant_table(look.tenants)]
    return Group(*parts)


def _line(text: str) -> Text:
    return Text(text, no_wrap=True, overflow="ellipsis")


def _engine(status: StoreStatus) -> str:
    runs = status.engine is not None and status.engine.running
    name = "engine runs" if runs else "no engine runs"
    behind = f"{status.behind_rows:,} rows, {status.behind.total_seconds():.1f} s behind"
    return f"{name}; epoch {status.epoch}; {behind}"


def _backfill(backfill: BackfillProgress) -> str:
    done = _bar(backfill.most_rows - backfill.rows, backfill.most_rows)
    return f"back-fill {done} {backfill.rows:,} rows to match"


def _server(server: ServerLook) -> str:
    if server.status is None:
        return f"{escaped(server.target)}: no answer"
    used, limit = server.status.cache_bytes, server.status.cache_limit_bytes
    memory = f"memory {_bar(used, limit)} {used >> 20:,} of {limit >> 20:,} MiB"
    name = f" {server.status.server}" if server.status.server_count > 1 else ""
    return f"{escaped(server.target + name)}: {memory}"


def _bar(part: int, whole: int) -> str:
    filled = round(_BAR_LENGTH * min(1.0, part / max(1, whole)))
    return "█" * filled + "░" * (_BAR_LENGTH - filled)


class _Table:
    """Rows without lines between them. Columns of numbers keep their width; names are shortened to
    the room that those leave."""

    def __init__(self, names: Sequence[str], numbers: Sequence[str]) -> None:
        self._name_count = len(names)
        self._rows: list[Sequence[str]] = [(*names, *numbers)]

    def add_row(self, *cells: str) -> None:
        self._rows.append(cells)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        widths = [max(map(cell_len, column)) for column in zip(*self._rows, strict=True)]
        excess = sum(widths) + _GAP * (len(widths) - 1) - options.max_width
        for _ in range(max(0, excess)):
            widest = max(range(self._name_count), key=widths.__getitem__)
            widths[widest] = max(_LEAST_NAME, widths[widest] - 1)
        for row in self._rows:
            line = Text(no_wrap=True, overflow="ellipsis")
            for number, (cell, width) in enumerate(zip(row, widths, strict=True)):
                text = Text(cell)
                text.truncate(width, overflow="ellipsis")
                text.align("left" if number < self._name_count else "right", width)
                line.append(" " * _GAP if number else "").append_text(text)
            yield line


def _call_table(calls: Sequence[CallRate]) -> _Table:
    table = _Table(["call"], ["calls/s", "p50 ms", "p99 ms"])
    for rate in calls[:_MAX_ENTRIES]:
        times = [
            "" if seconds is None else f"{1e3 * seconds:,.1f}"
            for seconds in (rate.p50_seconds, rate.p99_seconds)
        ]
        table.add_row(escaped(rate.method), f"{rate.calls_per_second:,.1f}", *times)
    return table


def _stream_table(rates: Sequence[StreamRate]) -> _Table:
    table = _Table(["stream"], ["rows/s", "rows", "NOW is behind"])
    for rate in rates[:_MAX_STREAMS]:
        lag = "" if rate.lag_seconds is None else f"{rate.lag_seconds:,.1f} s"
        table.add_row(escaped(rate.name), f"{rate.rows_per_second:,.1f}", f"{rate.rows:,}", lag)
    if len(rates) > _MAX_STREAMS:
        table.add_row(f"… and {len(rates) - _MAX_STREAMS:,} more", "", "", "")
    return table


def _work_table(works: Sequence[WorkSum]) -> _Table:
    table = _Table(["most work in the last minute", "owner"], ["ms", "pieces"])
    for work in works[:_MAX_ENTRIES]:
        names = escaped(work.name), escaped(work.owner)
        table.add_row(*names, f"{work.work / 1e6:,.1f}", f"{work.pieces:,}")
    return table


def _tenant_table(works: Sequence[WorkSum]) -> _Table:
    table = _Table(["tenant"], ["ms", "pieces"])
    for work in works[:_MAX_ENTRIES]:
        table.add_row(escaped(work.tenant), f"{work.work / 1e6:,.1f}", f"{work.pieces:,}")
    return table
