"""From what a pull names to a copy that can be synced: keys are looked up, once, and remembered.

A pull by key or handle also remembers the registration's text, so that one whose lease ended while
the machine was away can be registered again. One that somebody unregistered is not: they meant it.
"""

from __future__ import annotations

from dataclasses import replace

from client_sdk._client import Client
from client_sdk._exceptions import ErrorDetail, NotFound, PsoupError
from client_sdk._models import Registration
from client_sdk._time import duration, span
from client_sdk._values import from_value, to_value
from client_sdk.copies import Copies
from client_sdk.pulls._memory import Memory
from client_sdk.pulls._pull import Pull
from psoup.v1 import psoup_pb2 as pb

EXPIRED = "REGISTRATION_EXPIRED"
_GONE = frozenset({EXPIRED, "UNKNOWN_HANDLE"})


def declare(copies: Copies, client: Client, pull: Pull, memory: Memory) -> Memory:
    """Keeps the pull's copy. Asks the store only where a key or handle is new to the memory."""
    if pull.key is None and pull.handle is None:
        copies.keep(
            pull.name,
            pull.sql,
            parameters=pull.parameters,
            lease=pull.lease,
            window=pull.window,
            priority=pull.priority,
        )
        return memory
    if memory.source != _source(pull) or not memory.handle:
        memory = _looked_up(client, pull, memory)
    keep_handle(copies, pull, memory)
    return memory


def keep_handle(copies: Copies, pull: Pull, memory: Memory) -> None:
    handle = bytes.fromhex(memory.handle)
    copies.keep(pull.name, handle=handle, window=pull.window, priority=pull.priority)


def found_again(client: Client, pull: Pull, memory: Memory, error: PsoupError | None) -> Memory:
    """The memory with another handle, where the one it has is gone; itself where there is none."""
    if error is None or error.reason not in _GONE or not memory.handle:
        return memory
    try:
        if pull.key is not None:
            return _looked_up(client, pull, memory)
    except NotFound:
        pass
    if error.reason != EXPIRED or not memory.registration:
        return memory
    request = pb.RegisterRequest.FromString(bytes.fromhex(memory.registration))
    made = client.register(
        request.sql,
        key=request.client_key or None,
        parameters={name: from_value(value) for name, value in request.parameters.items()},
        lease=span(request.lease),
    )
    return replace(memory, handle=made.hex)


def _source(pull: Pull) -> str:
    """What the memory's handle stands for; another one is looked up anew."""
    return "\n".join([pull.store.tenant, pull.store.owner, pull.key or "", pull.handle or ""])


def _looked_up(client: Client, pull: Pull, memory: Memory) -> Memory:
    """Raises NotFound where there is none."""
    if pull.handle is not None:
        found = client.registration(pull.handle)
    elif pull.sql is not None:
        made = client.register(
            pull.sql, key=pull.key, parameters=pull.parameters or None, lease=pull.lease
        )
        found = client.registration(made.handle)
    else:
        found = _of_key(client, pull)
    return replace(
        memory, source=_source(pull), handle=found.hex, registration=_request(found).hex()
    )


def _of_key(client: Client, pull: Pull) -> Registration:
    for each in client.registrations(owner=pull.store.owner):
        if each.key == pull.key:
            return each
    raise NotFound(
        f"owner {pull.store.owner} has no registration with key {pull.key!r}",
        detail=ErrorDetail(hint="`psoup list` shows them; with its SQL too the pull makes it"),
    )


def _request(found: Registration) -> bytes:
    message = pb.RegisterRequest(
        sql=found.sql, client_key=found.key or "", lease=duration(found.lease)
    )
    for name, value in found.parameters.items():
        message.parameters[name].CopyFrom(to_value(value))
    return message.SerializeToString()
