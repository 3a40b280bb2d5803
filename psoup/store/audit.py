"""The audit: administrative actions and who did them, read from the events of the log.

The engine writes a row of the table `audit` for each record. Records of events that it has not
consumed yet are read from the log. No record holds a secret, or the digest of one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, fields
from datetime import timedelta

import pyarrow as pa

from datastem.schema import StreamSchema
from datastem.types import TIMESTAMP
from psoup.store.layout import AUDIT
from psoup.store.log.access_events import AccessEnded, AccessPut
from psoup.store.log.events import (
    Accept,
    Confirm,
    Denied,
    Entry,
    PublishersForgotten,
    Release,
    RowsErased,
    StreamAltered,
    StreamCreated,
    StreamEnded,
    ViewCreated,
    ViewEnded,
    ZoneDefined,
)
from psoup.store.state.access import AccessValue, FilledPolicy, Grant, Hook, Key, Policy, Quota
from psoup.store.state.erasures import ids_from_text
from psoup.store.state.state import State
from psoup.store.state.views import kind_of_view

_ADMINISTRATIVE = (
    StreamCreated,
    StreamAltered,
    StreamEnded,
    ViewCreated,
    ViewEnded,
    AccessPut,
    AccessEnded,
    PublishersForgotten,
    Denied,
    Confirm,
    Accept,
    Release,
    RowsErased,
    ZoneDefined,
)
# The column whose bounds are in the table's statistics.
AUDIT_BOUNDS = ("position",)


@dataclass(frozen=True, slots=True)
class AuditRecord:
    """An action, and who did it. `position` is packed. `owner` is the one who acted, as
    `tenant/owner` if that is not an owner of `tenant`, which the action is about."""

    position: int
    stamp: int
    tenant: str
    owner: str
    action: str
    object: str
    detail: str
    server: str


def records_of(state: State, entry: Entry) -> list[AuditRecord]:
    """Return the records of one entry; `state` is the one before it."""
    if not isinstance(entry.event, _ADMINISTRATIVE):
        return []
    who = entry.actor or entry.owner
    # A stamp is never before its server's clock; that of an access key made in the folder may be.
    at = entry.position.packed, max(entry.stamp, entry.clock or 0)
    return [
        AuditRecord(*at, tenant, who, action, on, detail, entry.server)
        for tenant, action, on, detail in _record_fields(state, entry)
    ]


def audit_rows(records: Sequence[AuditRecord]) -> pa.Table:
    """Return records as rows of the table."""
    # Without records `zip` yields no columns at all.
    columns = list(zip(*map(astuple, records), strict=True)) or [()] * len(AUDIT)
    arrays = [
        pa.array(column, field.type if field.name != "stamp" else pa.int64())
        for column, field in zip(columns, AUDIT, strict=True)
    ]
    place = AUDIT.get_field_index("stamp")
    arrays[place] = arrays[place].cast(TIMESTAMP.arrow)
    return pa.Table.from_arrays(arrays, schema=AUDIT)


def audit_of_rows(table: pa.Table) -> list[AuditRecord]:
    """Return rows of the table as records, in their order."""
    names = [field.name for field in fields(AuditRecord)]
    place = table.column_names.index("stamp")
    table = table.set_column(place, "stamp", table.column("stamp").cast(pa.int64()))
    return [AuditRecord(**{name: row[name] for name in names}) for row in table.to_pylist()]


def _record_fields(state: State, entry: Entry) -> Iterator[tuple[str, str, str, str]]:
    """Yield the tenant, the action, its object and a detail of each record."""
    tenant = entry.tenant
    match entry.event:
        case StreamCreated(stream_id, schema):
            yield tenant, "create stream", schema.name, f"stream {stream_id}"
        case StreamAltered(stream_id, _, schema):
            changes = _alteration(state.streams[stream_id].schema, schema)
            yield tenant, "alter stream", schema.name, changes
        case StreamEnded(stream_id):
            yield tenant, "drop stream", _name(state, stream_id), f"stream {stream_id}"
        case ViewCreated(view_id, definition):
            yield tenant, f"create {kind_of_view(definition)}", definition.name, definition.text
        case ViewEnded(view_id):
            kind = kind_of_view(state.views[view_id].definition)
            yield tenant, f"drop {kind}", _name(state, view_id), f"{kind} {view_id}"
        case AccessPut(values):
            for value in values:
                yield from _changed(state, tenant, value, ended=False)
        case AccessEnded(ids):
            for kind, id_ in ids:
                ended = state.access.get(kind, id_)
                if ended is not None:
                    yield from _changed(state, tenant, ended, ended=True)
        case Denied(credential, reason, count):
            yield tenant, "deny", credential, reason if count == 1 else f"{count:,} times: {reason}"
        case PublishersForgotten(owner, names, expired=False):
            for name in names:
                yield tenant, "forget publisher", name, f"owner {owner}"
        case RowsErased(stream_id, rows):
            count = len(ids_from_text(rows))
            detail = f"{count:,} rows" if count else "a key is refused from here on"
            yield tenant, "erase", _name(state, stream_id), detail
        case ZoneDefined(rules) if rules.version > 1:
            yield "", "renew zone", rules.name, f"version {rules.version}"
        case Confirm(number):
            yield "", "confirm clock", f"jump {number}", ""
        case Accept(rows):
            for lost in rows:
                stream = state.streams[lost.stream_id]
                lacking = f"rows {lost.row_lo} to {lost.row_hi - 1}"
                yield stream.tenant, "accept loss", stream.schema.name, lacking
        case Release(names):
            for name in names:
                yield "", "release", name, ""


def _changed(
    state: State, tenant: str, value: AccessValue, ended: bool
) -> Iterator[tuple[str, str, str, str]]:
    """Yield the record of a value that was added or ended. Filled policies have none: nobody
    administers them."""
    match value:
        case Key():
            roles = ", ".join(value.roles)
            detail = "" if ended else f"owner {value.owner}" + (f", roles {roles}" if roles else "")
            yield value.tenant, "revoke key" if ended else "create key", value.id, detail
        case Grant():
            on = "ALL" if not value.object_id else _name(state, value.object_id)
            to = "FROM" if ended else "TO"
            detail = f"{value.action} ON {on} {to} {value.to.upper()} {value.name}"
            yield value.tenant, "revoke" if ended else "grant", on, detail
        case Policy():
            on = _name(state, value.stream_id)
            detail = f"ON {on}" if ended else f"ON {on} USING ({value.text})"
            yield value.tenant, "drop policy" if ended else "create policy", value.name, detail
        case Quota():
            subject = f"owner {value.owner}" if value.owner else "tenant"
            limits = ", ".join(f"{name} {number}" for name, number in value.limits)
            yield value.tenant, "end quota" if ended else "set quota", subject, limits
        case Hook():
            on = _name(state, value.stream_id)
            yield value.tenant, "drop hook" if ended else "create hook", value.name, f"ON {on}"
        case FilledPolicy():
            pass


def _alteration(before: StreamSchema, after: StreamSchema) -> str:
    """Describe what ALTER STREAM changed."""
    labels, kept = {column.name: column.label for column in before.columns}, set()
    changes = []
    for column in after.columns:
        kept.add(column.name)
        if (label := labels.get(column.name)) is None:
            changes.append(f"ADD COLUMN {column.label} {column.type}")
        elif label != column.label:
            changes.append(f"RENAME COLUMN {label} TO {column.label}")
    changes += [f"DROP COLUMN {label}" for name, label in labels.items() if name not in kept]
    if before.retain != after.retain and after.retain is not None:
        changes.append(f"SET RETAIN {timedelta(microseconds=after.retain)}")
    if before.ahead != after.ahead:
        changes.append(f"SET AHEAD {timedelta(microseconds=after.ahead)}")
    if before.slack != after.slack:
        changes.append(f"SET SLACK {timedelta(microseconds=after.slack)}")
    if before.lead != after.lead and after.lead is not None:
        changes.append(f"SET LEAD {timedelta(microseconds=after.lead)}")
    return ", ".join(changes)


def _name(state: State, object_id: int) -> str:
    stream, view = state.streams.get(object_id), state.views.get(object_id)
    if stream is not None:
        return stream.schema.name
    return view.definition.name if view is not None else f"number {object_id}"
