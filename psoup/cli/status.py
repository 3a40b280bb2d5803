"""psoup status: how the store is."""

from __future__ import annotations

import click

from client_sdk import LostRows, Quarantined, StoreStatus
from psoup.cli.clock import warnings
from psoup.cli.connection import Connection
from psoup.cli.output import as_json, echo, note, pair_table

_NEVER = "has never run; answers are computed on the spot"


@click.command()
@click.option("--json", "as_json_", is_flag=True, help="For programs.")
@click.pass_obj
def status(connection: Connection, as_json_: bool) -> None:
    """How far the store, its engine and its cache are.

    \b
    psoup status
    psoup --target store.example:7181 status --json
    """
    with connection.client() as client:
        found = client.status()
    if as_json_:
        echo(as_json(found))
    else:
        pair_table(f"store {found.store_id} at {connection.target}", _pairs(found))
        for line in [*insecure(found), *(warnings(found.clock) if found.clock else ())]:
            note(line)
        for hole in found.holes:
            note(_hole(hole))
        for entry in found.quarantine:
            note(_quarantined(entry))


def _pairs(found: StoreStatus) -> list[tuple[str, str]]:
    return [
        ("version", found.version),
        ("up for", _whole(found.uptime.total_seconds())),
        ("now", str(found.now)),
        ("streams", f"{found.stream_count:,}"),
        ("registrations", f"{found.registration_count:,} ({found.predicate_count:,} predicates)"),
        *_joins(found),
        ("engine", _engine(found)),
        ("back-fill", _backfill(found)),
        *_identity(found),
        ("cache", f"{_mebibytes(found.cache_bytes)} of {_mebibytes(found.cache_limit_bytes)}"),
        *_quotas(found),
    ]


def _quotas(found: StoreStatus) -> list[tuple[str, str]]:
    """A line for each limit that holds for the caller."""
    return [
        (f"{limit.name} of {each.owner or 'tenant'}", f"{limit.used:,} of {limit.limit:,}")
        for each in found.quotas
        for limit in each.limits
    ]


def _backfill(found: StoreStatus) -> str:
    if found.backfill_rows:
        return f"{found.backfill_rows:,} rows to match"
    return f"done; {found.rest_rows:,} rows no window reaches" if found.rest_rows else "done"


def _joins(found: StoreStatus) -> list[tuple[str, str]]:
    """A line about joins that are found ahead of time, where there are any."""
    if not found.composite_count:
        return []
    suspended = f", {found.suspended_count:,} suspended" if found.suspended_count else ""
    return [("joins", f"{found.composite_count:,} found ahead of time{suspended}")]


def _identity(found: StoreStatus) -> list[tuple[str, str]]:
    """Lines about what the server asks of callers, and whom it takes this one for."""
    security = found.security
    if security is None:
        return []
    tls = "no TLS"
    if security.tls:
        tls = "TLS, with client certificates" if security.client_certificates else "TLS"
    asks = f"callers show {' or '.join(security.modes)}" if security.modes else "anyone may call"
    lines = [("identity", f"{tls}; {asks}")]
    if security.owner:
        by = f"owner {security.owner} of tenant {security.tenant}, by {security.credential}"
        lines.append(("you are", by))
    return lines


def insecure(found: StoreStatus) -> list[str]:
    """A warning where other machines reach a server that lacks what it should have for that."""
    missing = found.security.missing if found.security else ()
    if not missing:
        return []
    return [f"INSECURE: other machines reach this server, and it has no {' and no '.join(missing)}"]


def _hole(hole: LostRows) -> str:
    last = hole.first_row_id + hole.row_count - 1
    which = f" {hole.first_row_id} to {last}" if hole.row_count else ""
    when = f" ({hole.begin} to {hole.end})" if hole.begin else ""
    rows = f"rows{which} of stream {hole.stream} of {hole.tenant}{when}"
    if hole.accepted:
        return f"given up: {rows}"
    file = hole.file or "their file"
    return f"LOST: {rows}: {file} is damaged or gone; see `psoup repair --help`"


def _quarantined(entry: Quarantined) -> str:
    where = f"stream {entry.stream}" if entry.stream else "a join"
    users = [f"policy {name}" for name in entry.policies]
    if entry.registration_count:
        users.append(f"{entry.registration_count:,} registrations")
    of = f" ({', '.join(users)})" if users else ""
    name = entry.name or "a condition"
    what = f"{name} of {where} of {entry.tenant}{of}, since {entry.since}"
    return f"QUARANTINE: {what}: {entry.reason}; see `psoup repair --help`"


def _engine(found: StoreStatus) -> str:
    """Whether one runs, and how far it or the last one came; an old server says only that."""
    engine = found.engine
    if engine is None:
        return _progress(found, "up to date")
    if engine.running:
        return f"process {engine.pid} on {engine.host}; {_progress(found, 'up to date')}"
    if not found.epoch and not engine.seen_at:
        return _NEVER
    seen = f" since {engine.seen_at} (process {engine.pid} on {engine.host})"
    none = f"none is running{seen if engine.seen_at else ''}: answers are computed on the spot"
    return f"{none}; {_progress(found, 'every row is in it')}"


def _progress(found: StoreStatus, level: str) -> str:
    if not found.epoch:
        return "no epoch yet" if found.engine else _NEVER
    behind = f"{found.behind_rows:,} rows, {found.behind.total_seconds():.1f} s behind"
    return f"epoch {found.epoch} of {found.epoch_at}; {behind if found.behind_rows else level}"


def _mebibytes(count: int) -> str:
    return f"{count / (1 << 20):,.1f} MiB"


def _whole(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h {minutes:02d}m {rest:02d}s"
