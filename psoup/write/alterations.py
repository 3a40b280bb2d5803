"""The proposal that alters a stream: a column added, another RETAIN or AHEAD."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from datastem.instants import format_instant
from datastem.schema import StreamSchema
from psoup.errors import BadRequest, ColumnExists, InUse
from psoup.lookup import find_stream
from psoup.store import Position, Registration, StreamAltered, StreamState, Unregister
from psoup.write.draft import HEADER_BYTES, Chain, CommitDraft
from querystem.language import AddColumn, SetAhead, SetRetain, reaches_past
from querystem.query_json import read_shape

_MAX_LISTED_REGISTRATIONS = 10
_COLUMN_BYTES = 100


@dataclass(frozen=True, slots=True)
class Altered:
    """A stream that was altered, and the registrations that ended with that."""

    stream: StreamState
    position: Position
    ended: tuple[Registration, ...] = ()


@dataclass(frozen=True, slots=True)
class Alter:
    """Proposal to alter the live stream of a name. It may have `max_columns` columns.

    With a shorter RETAIN and CASCADE, registrations of all owners end that reach further. An error
    names those of the owner `visible`, or all if that is None.
    """

    tenant: str
    owner: str
    name: str
    change: AddColumn | SetRetain | SetAhead
    max_columns: int
    visible: str | None = None
    nbytes: int = HEADER_BYTES + _COLUMN_BYTES * 1000
    chain: Chain | None = None

    def propose(self, draft: CommitDraft) -> Altered:
        stream = find_stream(draft.state, self.tenant, self.name)
        schema = stream.schema
        ended: tuple[Registration, ...] = ()
        match self.change:
            case AddColumn():
                # The events of this proposal begin here.
                position = Position(draft.version, len(draft.entries))
                schema = self._with_column(schema, self.change, position.packed)
            case SetAhead(ahead):
                schema = replace(schema, ahead=ahead)
            case SetRetain(retain, cascade):
                schema = _retaining(draft, stream, retain)
                ended = tuple(_reaching_past(draft, stream, schema))
                if ended and (not cascade or len(ended) >= draft.room):
                    raise _in_use(stream, ended, self.visible)
        for registration in ended:
            draft.append(registration.tenant, registration.owner, Unregister(registration.handle))
        event = StreamAltered(stream.id, stream.version + 1, schema)
        at = draft.append(self.tenant, self.owner, event)
        return Altered(draft.state.streams[stream.id], at, ended)

    def _with_column(self, schema: StreamSchema, change: AddColumn, since: int) -> StreamSchema:
        column = replace(change.column, since=since)
        if column.name in schema.types:
            raise ColumnExists(
                f"{schema.name} has a column {column.name} already",
                field=column.name,
                got=column.name,
                hint="give the new column another name",
            )
        if len(schema.columns) >= self.max_columns:
            raise BadRequest(
                f"{schema.name} has {len(schema.columns)} columns, and the limit is "
                f"{self.max_columns}",
                reason="TOO_MANY_COLUMNS",
            )
        return replace(schema, columns=(*schema.columns, column))


def alteration_notes(before: StreamSchema, after: StreamSchema) -> tuple[str, ...]:
    """Return what a person should know about an alteration."""
    if after.whole_from is None or after.whole_from == before.whole_from:
        return ()
    return (f"rows from {format_instant(after.whole_from)} on are there; older ones are gone",)


def _retaining(draft: CommitDraft, stream: StreamState, retain: int) -> StreamSchema:
    """Return the schema with another RETAIN, which notes what the present one has let go."""
    before = stream.schema
    now = draft.stamp if before.now_is_clock else stream.reached
    whole_from = before.whole_from
    if before.retain is not None and now is not None and retain > before.retain:
        # As the engine counts: unconfirmed jumps of the clock delete nothing.
        oldest = now - draft.state.jumps.unconfirmed - before.retain + 1
        whole_from = oldest if whole_from is None else max(whole_from, oldest)
    return replace(before, retain=retain, whole_from=whole_from)


def _reaching_past(
    draft: CommitDraft, stream: StreamState, schema: StreamSchema
) -> list[Registration]:
    """Return the registrations over a stream that a schema with its RETAIN would refuse."""
    before, registrations = stream.schema.retain, draft.state.registrations
    if before is not None and schema.retain is not None and schema.retain >= before:
        return []
    return [
        registrations[handle]
        for form, handles in registrations.by_form(stream.id).items()
        if reaches_past(read_shape(form), schema)
        for handle in handles
    ]


def _in_use(
    stream: StreamState, registrations: Sequence[Registration], visible: str | None
) -> InUse:
    """Return the error that names the registrations which the caller may see: those of the owner
    `visible`, or all."""
    names = [
        f"{registration.client_key or registration.handle.hex()} of {registration.owner}"
        for registration in registrations
        if visible in (None, registration.owner)
    ][:_MAX_LISTED_REGISTRATIONS]
    unnamed = len(registrations) - len(names)
    more = f"{unnamed:,} more" if names else f"{unnamed:,}"
    listed = [*names, *([more] if unnamed else [])]
    return InUse(
        f"registrations reach further back than the new RETAIN of {stream.schema.name}: "
        f"{', '.join(listed)}",
        got=stream.schema.name,
        hint="replace or unregister them first, or write CASCADE to end them",
    )
