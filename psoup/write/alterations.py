"""The proposal that alters a stream: its columns, another RETAIN, AHEAD, SLACK or LEAD."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from datastem.instants import format_instant
from datastem.schema import StreamSchema
from psoup.errors import AdministrationDenied, BadRequest, InUse
from psoup.lookup import find_stream
from psoup.store import Position, Registration, StreamAltered, StreamState, Unregister, ViewEnded
from psoup.store.log.access_events import AccessEnded
from psoup.store.state.access import Policy
from psoup.write.column_uses import ColumnUses, uses_of
from psoup.write.columns import added, column_notes, column_of, renamed, without
from psoup.write.draft import HEADER_BYTES, Chain, CommitDraft
from psoup.write.drops import Ended
from psoup.write.grants import end_grants
from querystem.language import (
    AddColumn,
    Alteration,
    DropColumn,
    RenameColumn,
    SetAhead,
    SetLead,
    SetRetain,
    SetSlack,
    reaches_past,
)
from querystem.query_json import read_shape

_MAX_LISTED_REGISTRATIONS = 10
_MAX_LISTED = 30
_COLUMN_BYTES = 100


@dataclass(frozen=True, slots=True)
class Altered:
    """A stream that was altered, and what ended with that."""

    stream: StreamState
    position: Position
    ended: Ended | None = None


@dataclass(frozen=True, slots=True)
class Alter:
    """Proposal to alter the live stream of a name. It may have `max_columns` columns.

    With CASCADE, registrations of all owners end that reach further than a shorter RETAIN, or read
    a column that is dropped; with such a column also its views and policies, if the caller
    `administers`. An error names registrations of the owner `visible`, or all if that is None.
    """

    tenant: str
    owner: str
    name: str
    change: Alteration
    max_columns: int
    visible: str | None = None
    administers: bool = True
    nbytes: int = HEADER_BYTES + _COLUMN_BYTES * 1000
    chain: Chain | None = None

    def propose(self, draft: CommitDraft) -> Altered:
        stream = find_stream(draft.state, self.tenant, self.name)
        schema = stream.schema
        ended: Ended | None = None
        # The events of this proposal begin here.
        position, now = Position(draft.version, len(draft.entries)).packed, draft.stamp
        match self.change:
            case AddColumn() as change:
                schema = added(schema, change, position, now, self.max_columns)
            case RenameColumn() as change:
                schema = renamed(schema, change, position, now, self.max_columns)
            case DropColumn() as change:
                column = column_of(schema, change.column)
                schema = without(schema, column, change, position, now)
                uses = uses_of(draft.state, stream, column, draft.room)
                ended = self._end_uses(draft, stream, change, uses) if uses else None
            case SetAhead() | SetRetain() if schema.validity is not None:
                raise BadRequest(
                    "RETAIN and AHEAD of a stream with VALID can't be altered yet",
                    reason="NOT_YET",
                    hint="create another stream, and publish the rows to it",
                )
            case SetAhead(ahead):
                schema = replace(schema, ahead=ahead)
            case SetSlack(slack):
                schema = _moving_now(schema, replace(schema, slack=slack), "SLACK")
            case SetLead(lead):
                schema = _moving_now(schema, replace(schema, lead=lead), "LEAD")
            case SetRetain(retain, cascade):
                schema = _retaining(draft, stream, retain)
                reaching = tuple(_reaching_past(draft, stream, schema))
                if reaching and (not cascade or len(reaching) >= draft.room):
                    problem = f"registrations reach further back than the new RETAIN of {self.name}"
                    raise _in_use(stream, problem, self._named(reaching, len(reaching)))
                ended = Ended((), (), (), reaching) if reaching else None
                _end_registrations(draft, reaching)
        event = StreamAltered(stream.id, stream.version + 1, schema)
        at = draft.append(self.tenant, self.owner, event)
        return Altered(draft.state.streams[stream.id], at, ended)

    def _end_uses(
        self, draft: CommitDraft, stream: StreamState, change: DropColumn, uses: ColumnUses
    ) -> Ended:
        """End what reads a column that is dropped. Raise InUse without CASCADE, or if it is too
        much for a commit; AdministrationDenied for policies."""
        views, policies = uses.views, uses.policies
        # A view ends by two events, the policies by one.
        events = uses.count + 2 * len(views) + 1
        if not change.cascade or events >= draft.room:
            names = [f"view {view.definition.name}" for view in views]
            names += [f"policy {policy.name}" for policy in policies]
            names += self._named(uses.registrations, uses.count)
            raise _in_use(stream, f"{change.column} of {self.name} is read by", names)
        if policies and not self.administers:
            raise AdministrationDenied(
                f"row policies of {self.name} read {change.column}, and would end with it",
                hint="ask an administrator of the tenant to drop it",
            )
        _end_registrations(draft, uses.registrations)
        grants = []
        for view in views:
            grants += end_grants(draft, view.id, self.tenant, self.owner)
            draft.append(self.tenant, self.owner, ViewEnded(view.id))
        if policies:
            ids = tuple(_access_ids(draft, policies))
            draft.append(self.tenant, self.owner, AccessEnded(ids))
        return Ended(views, policies, tuple(grants), uses.registrations)

    def _named(self, registrations: Sequence[Registration], count: int) -> list[str]:
        """Return the names of the registrations that the caller may see, and the number of the
        others of as many as `count` says."""
        names = [
            f"{registration.client_key or registration.handle.hex()} of {registration.owner}"
            for registration in registrations
            if self.visible in (None, registration.owner)
        ][:_MAX_LISTED_REGISTRATIONS]
        unnamed = count - len(names)
        if not unnamed:
            return names
        return [*names, f"{unnamed:,} more" if names else f"{unnamed:,} registrations"]


def _end_registrations(draft: CommitDraft, registrations: Sequence[Registration]) -> None:
    for registration in registrations:
        draft.append(registration.tenant, registration.owner, Unregister(registration.handle))


def _access_ids(draft: CommitDraft, policies: Sequence[Policy]) -> Iterator[tuple[str, str]]:
    """Yield the kinds and ids of policies, and of those with claims filled in: their predicates
    must not be matched with rows that lack the column."""
    ended = {policy.policy_id for policy in policies}
    for filled in draft.state.access.filled.values():
        if filled.policy_id in ended:
            yield "filled", filled.id
    for policy in policies:
        yield "policy", policy.id


def alteration_notes(before: StreamSchema, after: StreamSchema) -> tuple[str, ...]:
    """Return what a person should know about an alteration."""
    columns = tuple(column_notes(before, after))
    if after.rows_wait and not before.rows_wait:
        waiting = "rows may wait for NOW from here on, and copies are sent again whole"
        columns = (*columns, waiting)
    if after.whole_from is None or after.whole_from == before.whole_from:
        return columns
    return (f"rows from {format_instant(after.whole_from)} on are there; older ones are gone",)


def _moving_now(before: StreamSchema, after: StreamSchema, word: str) -> StreamSchema:
    """Return the schema with another SLACK or LEAD, by which later events take NOW. Raise
    BadRequest if rows of the stream do not take it, or if rows that wait would be no more expected
    to."""
    if before.now_is_clock:
        raise BadRequest(
            f"NOW of {before.name} is the clock, which {word} does not change",
            reason="BAD_OPTION",
            hint="rows take NOW in a stream with ORDERED BY and without CLOCK",
        )
    if before.rows_wait and not after.rows_wait:
        raise BadRequest(
            f"rows of {before.name} may wait for NOW, so {word} can't be taken away",
            reason="BAD_OPTION",
            hint=f"write {word} 1 MICROSECOND",
        )
    return after


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


def _in_use(stream: StreamState, problem: str, names: Sequence[str]) -> InUse:
    """Return the error that names what hinders an alteration."""
    listed = [*names[:_MAX_LISTED]]
    if len(names) > _MAX_LISTED:
        listed.append(f"{len(names) - _MAX_LISTED:,} more")
    return InUse(
        f"{problem}: {', '.join(listed)}",
        got=stream.schema.name,
        hint="replace or drop them first, or write CASCADE to end them",
    )
