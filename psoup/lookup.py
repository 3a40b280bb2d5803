"""Streams, views, functions and registrations looked up by the names and handles that callers
use."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from datastem.instants import format_instant
from datastem.schema import StreamSchema
from psoup.errors import NoSuchStream, NotAStream, RegistrationExpired, UnknownHandle
from psoup.store import Position, Registration, State, StreamState, ViewState, kind_of_view
from psoup.store.state.leases import Expired
from querystem.composites import ComposedStream
from querystem.language import Named
from querystem.query import Query
from querystem.user_functions import FunctionDefinition
from querystem.views import ViewDefinition

# Returns True if a caller may know that the stream or view with this id exists.
Visible = Callable[[int], bool]


def all_visible(object_id: int) -> bool:
    """Return True: the caller may know of everything."""
    return True


def find_stream(
    state: State, tenant: str, name: str, visible: Visible = all_visible
) -> StreamState:
    """Return the live stream with a name, in any case. Raise NoSuchStream, also if it is not
    `visible`; NotAStream for the name of a view."""
    stream, view = state.find_stream(tenant, name.lower()), state.find_view(tenant, name.lower())
    if view is not None and visible(view.id):
        kind = kind_of_view(view.definition)
        raise NotAStream(
            f"{view.definition.name} is a {kind}, not a stream",
            got=view.definition.name,
            hint="name one of the streams that the view reads" if kind == "view" else "",
        )
    if stream is None or not visible(stream.id):
        raise NoSuchStream(
            f"there is no stream {name[:100]!r}", got=name[:100], hint="create it, or list them"
        )
    return stream


def find_view(
    state: State, tenant: str, name: str, visible: Visible = all_visible, kind: str = "view"
) -> ViewState:
    """Return the live view, or the function if that is the `kind`, with a name, in any case. Raise
    NoSuchStream, also if it is not `visible`."""
    view, stream = state.find_view(tenant, name.lower()), state.find_stream(tenant, name.lower())
    other = ""
    if stream is not None and visible(stream.id):
        other = "stream"
    if view is not None and visible(view.id):
        other = kind_of_view(view.definition)
        if other == kind:
            return view
    hint = f"it is a {other}: DROP {other.upper()}" if other else "create it, or list them"
    raise NoSuchStream(f"there is no {kind} {name[:100]!r}", got=name[:100], hint=hint)


def find_object(
    state: State, tenant: str, name: str, visible: Visible = all_visible
) -> StreamState | ViewState:
    """Return the live stream or view with a name, in any case. Raise NoSuchStream, also if it is
    not `visible`; NotAStream for the name of a function."""
    view = state.find_view(tenant, name.lower())
    if view is not None and visible(view.id) and isinstance(view.definition, ViewDefinition):
        return view
    return find_stream(state, tenant, name, visible)


def find_registration(
    state: State, tenant: str, handle: bytes, owner: str | None = None
) -> Registration:
    """Return the registration of a handle. Raise RegistrationExpired, or UnknownHandle, also for a
    registration of another tenant or owner. An `owner` of None allows all owners."""
    registration = state.registrations.get(handle)
    expired = state.leases.expired.get(handle)
    # Callers that may not use a registration don't learn that it existed, and expired.
    if expired is not None and _is_of(expired, tenant, owner):
        raise RegistrationExpired(
            f"the query's lease ran out without contact, so it ended on "
            f"{format_instant(expired.stamp)}",
            got=handle[:32].hex(),
            hint="register it again, and begin with a whole answer",
        )
    if registration is None or not _is_of(registration, tenant, owner):
        raise UnknownHandle(
            "unknown handle: never issued, unregistered, or another owner's",
            got=handle[:32].hex(),
            hint="register the query again",
        )
    return registration


def _is_of(registration: Registration | Expired, tenant: str, owner: str | None) -> bool:
    return registration.tenant == tenant and owner in (None, registration.owner)


class TenantStreams:
    """The streams, views and functions of a tenant by name; it records those that a text was bound
    to.

    A text can name what is `visible`. Names inside the views that it names are looked up in any
    case.
    """

    def __init__(
        self,
        state: State,
        tenant: str,
        visible: Visible = all_visible,
        as_of: Position | None = None,
    ) -> None:
        """Return streams with the columns of the position `as_of`, under the names they had then,
        or as they are now."""
        self._state = state
        self._as_of = as_of
        self.tenant = tenant
        self._visible = visible
        self._streams: dict[str, StreamState] = {}
        self._views: dict[str, ViewState] = {}
        self._functions: dict[str, ViewState] = {}
        self._called: set[int] = set()

    @property
    def bound(self) -> StreamState:
        """The stream after FROM, which binding looks up first."""
        return next(iter(self._streams.values()))

    @property
    def ids(self) -> dict[str, int]:
        return {name: stream.id for name, stream in self._streams.items()}

    @property
    def altered_at(self) -> int:
        """The packed position of the newest change of columns of the streams; 0 without one."""
        return max((stream.schema.altered_at for stream in self._streams.values()), default=0)

    @property
    def view_ids(self) -> tuple[int, ...]:
        """The views that the text was bound through, in the order of their look-ups."""
        return tuple(view.id for view in self._views.values())

    @property
    def function_ids(self) -> tuple[int, ...]:
        """The functions that the text calls, itself or through views and other functions."""
        return tuple(function.id for function in self._functions.values())

    @property
    def called_ids(self) -> frozenset[int]:
        """The functions that the text calls itself."""
        return frozenset(self._called)

    def stream(self, name: str) -> StreamState:
        return self._streams[name]

    def schema(self, name: str) -> StreamSchema:
        return self._streams[name].schema

    def streams_of(self, query: Query) -> list[ComposedStream]:
        """Return the streams of the legs of a query that was bound with this object."""
        streams = [self._streams[leg.stream] for leg in query.legs]
        return [ComposedStream(stream.id, stream.schema) for stream in streams]

    @property
    def lookup(self) -> NameLookup:
        return NameLookup(self)

    def ids_of(self, names: Iterable[str]) -> list[int]:
        """Return the ids of the streams and views with these names, which a text was bound to."""
        views = {**self._functions, **self._views}
        ids = {name: view.id for name, view in views.items()} | self.ids
        return [ids[name] for name in names]

    def find(self, name: str, visible: Visible) -> Named | None:
        stream = self._state.find_stream(self.tenant, name)
        if stream is not None:
            if not visible(stream.id):
                return None
            self._streams.setdefault(name, stream)
            return stream.schema if self._as_of is None else stream.schema.at(self._as_of.packed)
        view = self._state.find_view(self.tenant, name)
        if view is None or not visible(view.id):
            return None
        kind = self._views if isinstance(view.definition, ViewDefinition) else self._functions
        kind.setdefault(name, view)
        return view.definition

    def find_visible(self, name: str) -> Named | None:
        source = self.find(name, self._visible)
        if isinstance(source, FunctionDefinition):
            self._called.add(self._functions[name].id)
        return source

    def names(self) -> list[str]:
        """Return the names that a text may use in FROM, and those of functions."""
        entries = [*list(self._state.stream_names.items()), *list(self._state.view_names.items())]
        visible = [(name, id_) for (tenant, name), id_ in entries if tenant == self.tenant]
        return [name for name, id_ in visible if self._visible(id_)]


@dataclass(frozen=True, slots=True)
class NameLookup:
    """The look-up of names in a text, and of names inside the views and functions that it names."""

    streams: TenantStreams

    def __call__(self, name: str) -> Named | None:
        return self.streams.find_visible(name)

    def inside_views(self, name: str) -> Named | None:
        # Readers of a view need no permission for what it is made of; its maker had it.
        return self.streams.find(name, all_visible)
