"""psoup status: the state of the store, its engine and its cache."""

from __future__ import annotations

import click

from client_sdk import LostRows, Quarantined, StoreStatus, StreamTime
from psoup.cli.clock import warnings
from psoup.cli.connection import Connection
from psoup.cli.output import as_json, counted, echo, grid, note, pair_table
from psoup.cli.streams import leap_text

_NEVER_RAN = "has never run; answers are computed on the spot"


@click.command()
@click.option("--json", "as_json_", is_flag=True, help="Print JSON, for programs.")
@click.pass_obj
def status(connection: Connection, as_json_: bool) -> None:
    """Show the state of the store, its engine, its cache and your quotas.

    \b
    psoup status
    psoup --target store.example:7181 status --json
    """
    with connection.client() as client:
        store_status = client.status()
    if as_json_:
        echo(as_json(store_status))
    else:
        pair_table(f"store {store_status.store_id} at {connection.target}", _pairs(store_status))
        for line in [
            *insecure(store_status),
            *(warnings(store_status.clock) if store_status.clock else ()),
        ]:
            note(line)
        if store_status.top_registrations:
            echo()
            grid(
                ["most work in the last minute", "owner", "ms", "pieces"],
                [
                    [entry.key or entry.hex, entry.owner, f"{entry.work / 1e6:,.1f}", entry.pieces]
                    for entry in store_status.top_registrations
                ],
            )
        for time in store_status.stream_times:
            note(_stream_time(time))
        for hole in store_status.holes:
            note(_hole(hole))
        for entry in store_status.quarantine:
            note(_quarantined(entry))


def _pairs(status: StoreStatus) -> list[tuple[str, str]]:
    return [
        ("version", status.version),
        *_server(status),
        ("up for", _uptime(status.uptime.total_seconds())),
        ("now", str(status.now)),
        ("streams", f"{status.stream_count:,}"),
        (
            "registrations",
            f"{status.registration_count:,} ({counted(status.predicate_count, 'predicate')})",
        ),
        *_joins(status),
        ("engine", _engine(status)),
        ("back-fill", _backfill(status)),
        *_identity(status),
        ("cache", f"{_mebibytes(status.cache_bytes)} of {_mebibytes(status.cache_limit_bytes)}"),
        *_quotas(status),
    ]


def _server(status: StoreStatus) -> list[tuple[str, str]]:
    if not status.server:
        return []
    several = f", one of {status.server_count} on this port" if status.server_count > 1 else ""
    return [("server", f"{status.server}{several}")]


def _quotas(status: StoreStatus) -> list[tuple[str, str]]:
    """Return a line for each limit of the caller's quotas."""
    return [
        (f"{limit.name} of {quota.owner or 'tenant'}", f"{limit.used:,} of {limit.limit:,}")
        for quota in status.quotas
        for limit in quota.limits
    ]


def _backfill(status: StoreStatus) -> str:
    if status.backfill_rows:
        return f"{counted(status.backfill_rows, 'row')} to match"
    if status.rest_rows:
        return f"done; {counted(status.rest_rows, 'row')} outside of all windows"
    return "done"


def _joins(status: StoreStatus) -> list[tuple[str, str]]:
    """Return a line about the joins that the engine finds ahead of time, if there are any."""
    if not status.composite_count:
        return []
    suspended = f", {status.suspended_count:,} suspended" if status.suspended_count else ""
    return [("joins", f"{status.composite_count:,} found ahead of time{suspended}")]


def _identity(status: StoreStatus) -> list[tuple[str, str]]:
    """Return lines about how callers authenticate, and as whom this one is authenticated."""
    security = status.security
    if security is None:
        return []
    tls = "no TLS"
    if security.tls:
        tls = "TLS, with client certificates" if security.client_certificates else "TLS"
    auth = f"callers show {' or '.join(security.modes)}" if security.modes else "anyone may call"
    lines = [("identity", f"{tls}; {auth}")]
    if security.owner:
        by = f"owner {security.owner} of tenant {security.tenant}, by {security.credential}"
        lines.append(("you are", by))
    return lines


def insecure(status: StoreStatus) -> list[str]:
    """Return a warning if other machines can connect to a server without TLS or authentication."""
    missing = status.security.missing if status.security else ()
    if not missing:
        return []
    return [
        f"INSECURE: other machines can connect, and this server has no {' and no '.join(missing)}"
    ]


def _stream_time(time: StreamTime) -> str:
    facts = [] if time.last_leap is None else [leap_text(time.last_leap)]
    if time.late_rows:
        facts.append(f"{counted(time.late_rows, 'row')} came after now had passed their ts")
    return f"stream {time.stream} of {time.tenant}: {'; '.join(facts)}"


def _hole(hole: LostRows) -> str:
    last = hole.first_row_id + hole.row_count - 1
    row_ids = f" {hole.first_row_id} to {last}" if hole.row_count else ""
    when = f" ({hole.begin} to {hole.end})" if hole.begin else ""
    rows = f"rows{row_ids} of stream {hole.stream} of {hole.tenant}{when}"
    if hole.accepted:
        return f"given up: {rows}"
    file = hole.file or "their file"
    return f"LOST: {rows}: {file} is damaged or gone; see `psoup repair --help`"


def _quarantined(entry: Quarantined) -> str:
    where = f"stream {entry.stream}" if entry.stream else "a join"
    users = [f"policy {name}" for name in entry.policies]
    if entry.registration_count:
        users.append(counted(entry.registration_count, "registration"))
    of = f" ({', '.join(users)})" if users else ""
    name = entry.name or "a condition"
    what = f"{name} of {where} of {entry.tenant}{of}, since {entry.since}"
    return f"QUARANTINE: {what}: {entry.reason}; see `psoup repair --help`"


def _engine(status: StoreStatus) -> str:
    """Return whether an engine runs, and how far it or the last one got.

    An old server reports only how far.
    """
    engine = status.engine
    if engine is None:
        return _progress(status, "up to date", _NEVER_RAN)
    if engine.running:
        return f"process {engine.pid} on {engine.host}; {_progress(status, 'up to date')}"
    if not status.epoch and not engine.seen_at:
        return _progress(status, "", _NEVER_RAN)
    last_seen = f" since {engine.seen_at} (process {engine.pid} on {engine.host})"
    none = f"none is running{last_seen if engine.seen_at else ''}: answers are computed on the spot"
    return f"{none}; {_progress(status, 'every row is in it')}"


def _progress(status: StoreStatus, level: str, none: str = "no epoch yet") -> str:
    behind = ""
    if status.behind_rows:
        seconds = status.behind.total_seconds()
        behind = f"{counted(status.behind_rows, 'row')}, {seconds:.1f} s behind"
    if not status.epoch:
        return f"{none}; {behind}" if behind else none
    return f"epoch {status.epoch} of {status.epoch_at}; {behind or level}"


def _mebibytes(count: int) -> str:
    return f"{count / (1 << 20):,.1f} MiB"


def _uptime(seconds: float) -> str:
    minutes, whole_seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h {minutes:02d}m {whole_seconds:02d}s"
