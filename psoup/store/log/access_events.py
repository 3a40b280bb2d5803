"""The events about permissions: a value of `psoup.store.state.access` was set, or ended."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, TypeAlias

from psoup.store.state.access import KINDS, AccessValue, kind_of


@dataclass(frozen=True, slots=True)
class AccessPut:
    """Access keys, grants, policies, filled policies, quotas or hooks were set; each replaces the
    one with its id."""

    values: tuple[AccessValue, ...]


@dataclass(frozen=True, slots=True)
class AccessEnded:
    """Values ended: each is named by its kind and id."""

    ids: tuple[tuple[str, str], ...]


AccessEvent: TypeAlias = AccessPut | AccessEnded


def access_body(event: AccessEvent) -> dict[str, Any]:
    """Return the event as the body of a row of the log."""
    if isinstance(event, AccessEnded):
        return {"ids": event.ids}
    return {"values": [{"kind": kind_of(value), **asdict(value)} for value in event.values]}


def read_access(kind: str, body: Mapping[str, Any]) -> AccessEvent:
    if kind == "access_ended":
        return AccessEnded(tuple((kind, id_) for kind, id_ in body["ids"]))
    return AccessPut(tuple(read_value(value["kind"], value) for value in body["values"]))


def read_value(kind: str, body: Mapping[str, Any]) -> AccessValue:
    """Return the value whose fields are in a body; lists become tuples."""
    type_ = KINDS[kind]
    arguments = {
        field.name: _frozen(body[field.name]) for field in fields(type_) if field.name in body
    }
    return type_(**arguments)


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list | tuple) else value
