"""Streams and registrations as a caller names them: found in a state, or refused with a reason."""

from __future__ import annotations

from datastem.instants import format_instant
from datastem.schema import StreamSchema
from psoup.errors import NoSuchStream, NotAStream, RegistrationExpired, UnknownHandle
from psoup.store import Registration, State, StreamState, ViewState
from querystem.composites import ComposedStream
from querystem.query import Query
from querystem.views import ViewDefinition


def find_stream(state: State, tenant: str, name: str) -> StreamState:
    """The live stream of a name, whatever its case. Raises NoSuchStream; NotAStream for the name of
    a view."""
    stream = state.find_stream(tenant, name.lower())
    if stream is None and (view := state.find_view(tenant, name.lower())) is not None:
        raise NotAStream(
            f"{view.definition.name} is a view, and has no rows of its own",
            got=view.definition.name,
            hint="name a stream: the view shows what is published to those it is over",
        )
    if stream is None:
        raise NoSuchStream(
            f"there is no stream {name[:100]!r}", got=name[:100], hint="create it, or list them"
        )
    return stream


def find_view(state: State, tenant: str, name: str) -> ViewState:
    """The live view of a name, whatever its case. Raises NoSuchStream."""
    view = state.find_view(tenant, name.lower())
    if view is None:
        stream = state.find_stream(tenant, name.lower())
        hint = "create it, or list them" if stream is None else "it is a stream: DROP STREAM"
        raise NoSuchStream(f"there is no view {name[:100]!r}", got=name[:100], hint=hint)
    return view


def find_registration(state: State, tenant: str, handle: bytes) -> Registration:
    """The registration of a handle. Raises RegistrationExpired, and UnknownHandle also for the
    handle of another tenant's registration."""
    registration = state.registrations.get(handle)
    expired = state.leases.expired.get(handle)
    if expired is not None and expired.tenant == tenant:
        raise RegistrationExpired(
            f"nobody asked for this query for as long as its lease, so it ended on "
            f"{format_instant(expired.stamp)}",
            got=handle[:32].hex(),
            hint="register it again, and begin with a whole answer",
        )
    if registration is None or registration.tenant != tenant:
        raise UnknownHandle(
            "that handle is unknown: never given, unregistered, or another tenant's",
            got=handle[:32].hex(),
            hint="register the query again",
        )
    return registration


class TenantStreams:
    """The streams and views of a tenant by name; remembers those a text was bound to."""

    def __init__(self, state: State, tenant: str) -> None:
        self._state = state
        self.tenant = tenant
        self._streams: dict[str, StreamState] = {}
        self._views: dict[str, ViewState] = {}

    @property
    def bound(self) -> StreamState:
        """The stream after FROM, which is looked up first."""
        return next(iter(self._streams.values()))

    @property
    def ids(self) -> dict[str, int]:
        return {name: stream.id for name, stream in self._streams.items()}

    @property
    def view_ids(self) -> tuple[int, ...]:
        """The views that the text was bound through, in the order they were met."""
        return tuple(view.id for view in self._views.values())

    def stream(self, name: str) -> StreamState:
        return self._streams[name]

    def schema(self, name: str) -> StreamSchema:
        return self._streams[name].schema

    def streams_of(self, query: Query) -> list[ComposedStream]:
        """The streams of the legs of a query that was bound to these."""
        found = [self._streams[leg.stream] for leg in query.legs]
        return [ComposedStream(stream.id, stream.schema) for stream in found]

    def lookup(self, name: str) -> StreamSchema | ViewDefinition | None:
        stream = self._state.find_stream(self.tenant, name)
        if stream is not None:
            self._streams.setdefault(name, stream)
            return stream.schema
        view = self._state.find_view(self.tenant, name)
        if view is None:
            return None
        self._views.setdefault(name, view)
        return view.definition

    def names(self) -> list[str]:
        known = [*list(self._state.stream_names), *list(self._state.view_names)]
        return [name for tenant, name in known if tenant == self.tenant]
