"""Streams and registrations as a caller names them: found in a state, or refused with a reason."""

from __future__ import annotations

from datastem.instants import format_instant
from datastem.schema import StreamSchema
from psoup.errors import NoSuchStream, RegistrationExpired, UnknownHandle
from psoup.store import Registration, State, StreamState


def find_stream(state: State, tenant: str, name: str) -> StreamState:
    """The live stream of a name, whatever its case. Raises NoSuchStream."""
    stream = state.find_stream(tenant, name.lower())
    if stream is None:
        raise NoSuchStream(
            f"there is no stream {name[:100]!r}", got=name[:100], hint="create it, or list them"
        )
    return stream


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
    """The streams of a tenant by name; remembers those a text was bound to."""

    def __init__(self, state: State, tenant: str) -> None:
        self._state = state
        self.tenant = tenant
        self._streams: dict[str, StreamState] = {}

    @property
    def bound(self) -> StreamState:
        """The stream after FROM, which is looked up first."""
        return next(iter(self._streams.values()))

    @property
    def ids(self) -> dict[str, int]:
        return {name: stream.id for name, stream in self._streams.items()}

    def stream(self, name: str) -> StreamState:
        return self._streams[name]

    def schema(self, name: str) -> StreamSchema:
        return self._streams[name].schema

    def lookup(self, name: str) -> StreamSchema | None:
        stream = self._state.find_stream(self.tenant, name)
        if stream is None:
            return None
        self._streams.setdefault(name, stream)
        return stream.schema

    def names(self) -> list[str]:
        return [name for tenant, name in list(self._state.stream_names) if tenant == self.tenant]
