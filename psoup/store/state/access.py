"""Permissions in the state: access keys, grants, row policies, quotas and hooks.

Each is a value with an id that is unique for its kind; the table `access` has a row for each.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from dataclasses import dataclass, field
from typing import TypeAlias

from psoup.store.state.overlay import Overlay


@dataclass(frozen=True, slots=True)
class Key:
    """An access key: a caller that sends its secret acts as `owner` of `tenant`, with `roles` and
    `claims`, a JSON object.

    The store has only the `digest` of the secret, in hexadecimal. `expires` is an instant, None for
    a key that ends only when it is revoked.
    """

    id: str
    tenant: str
    owner: str
    roles: tuple[str, ...]
    claims: str
    digest: str
    created: int
    expires: int | None = None


@dataclass(frozen=True, slots=True)
class Grant:
    """An action that callers of a tenant may do: those with the role `name`, or the owner `name` if
    `to` is "owner". `object_id` is a stream's or a view's; 0 stands for all."""

    tenant: str
    to: str
    name: str
    action: str
    object_id: int

    @property
    def id(self) -> str:
        return grant_id(self.object_id, self.action, self.to, self.tenant, self.name)


def grant_id(object_id: int, action: str, to: str, tenant: str, name: str) -> str:
    """Return the id of a grant. Tenants and names may have blanks, so the length of the tenant is
    part of it."""
    return f"{object_id} {action} {to} {len(tenant)} {tenant} {name}"


@dataclass(frozen=True, slots=True)
class Policy:
    """A condition that rows of a stream must meet to be shown. `text` is the condition after USING,
    `form` its bound form as JSON, with a parameter for each claim of the caller, and `claims` are
    the names of these."""

    policy_id: int
    tenant: str
    owner: str
    name: str
    stream_id: int
    text: str
    form: str
    claims: tuple[str, ...]

    @property
    def id(self) -> str:
        return str(self.policy_id)


@dataclass(frozen=True, slots=True)
class FilledPolicy:
    """A policy with the values of claims filled in, which is a predicate matched like any other.
    `key` is its predicate key, `used` the stamp of its last recorded use."""

    policy_id: int
    stream_id: int
    predicate_id: int
    key: str
    used: int

    @property
    def id(self) -> str:
        return f"{self.policy_id} {self.predicate_id}"


@dataclass(frozen=True, slots=True)
class Quota:
    """The most that a tenant may have and do, or with `owner` one owner of it. `limits` are pairs
    of a limit's name and its number."""

    tenant: str
    owner: str
    limits: tuple[tuple[str, int], ...]

    @property
    def id(self) -> str:
        return f"{len(self.tenant)} {self.tenant} {self.owner}"


@dataclass(frozen=True, slots=True)
class Hook:
    """A web address at which a sender outside brings rows of a stream, published as `owner`.
    Reserved: no server takes rows by it yet.

    `columns` says as JSON which field of a request fills which column, `verify` how its signature
    is checked, and `delivery_id` which header names a delivery, so that a repeat is recognised.
    `sealed` is the secret of the signature, sealed under the store's key, in hexadecimal.
    """

    tenant: str
    owner: str
    name: str
    stream_id: int
    columns: str
    verify: str
    sealed: str
    delivery_id: str
    created: int

    @property
    def id(self) -> str:
        return f"{len(self.tenant)} {self.tenant} {self.name}"


AccessValue: TypeAlias = Key | Grant | Policy | FilledPolicy | Quota | Hook

# The kinds of rows of the table `access`.
KINDS: dict[str, type[AccessValue]] = {
    "key": Key,
    "grant": Grant,
    "policy": Policy,
    "filled": FilledPolicy,
    "quota": Quota,
    "hook": Hook,
}
_NAMES = {type_: kind for kind, type_ in KINDS.items()}


def kind_of(value: AccessValue) -> str:
    return _NAMES[type(value)]


@dataclass(slots=True)
class AccessState:
    """The access keys, grants, policies, filled policies, quotas and hooks of a state, by id.

    `by_stream` has the ids of the policies of a stream, `by_predicate` the filled policies that
    have a predicate; both are derived from the other fields.
    """

    keys: MutableMapping[str, Key] = field(default_factory=dict)
    grants: MutableMapping[str, Grant] = field(default_factory=dict)
    policies: MutableMapping[str, Policy] = field(default_factory=dict)
    filled: MutableMapping[str, FilledPolicy] = field(default_factory=dict)
    quotas: MutableMapping[str, Quota] = field(default_factory=dict)
    by_stream: MutableMapping[int, tuple[str, ...]] = field(default_factory=dict)
    by_predicate: MutableMapping[int, tuple[str, ...]] = field(default_factory=dict)
    hooks: MutableMapping[str, Hook] = field(default_factory=dict)

    def draft(self) -> AccessState:
        """Return an overlay over this one: its changes do not reach this one."""
        return AccessState(
            Overlay(self.keys),
            Overlay(self.grants),
            Overlay(self.policies),
            Overlay(self.filled),
            Overlay(self.quotas),
            Overlay(self.by_stream),
            Overlay(self.by_predicate),
            Overlay(self.hooks),
        )

    def put(self, value: AccessValue) -> None:
        """Add a value, or replace the one with its id."""
        match value:
            case Key():
                self.keys[value.id] = value
            case Grant():
                self.grants[value.id] = value
            case Policy():
                self.policies[value.id] = value
                _add(self.by_stream, value.stream_id, value.id)
            case FilledPolicy():
                self.filled[value.id] = value
                _add(self.by_predicate, value.predicate_id, value.id)
            case Quota():
                self.quotas[value.id] = value
            case Hook():
                self.hooks[value.id] = value

    def end(self, kind: str, id_: str) -> None:
        """Remove the value of a kind and id, which must exist."""
        values = self._values(kind)
        value = values[id_]
        del values[id_]
        match value:
            case Policy():
                _remove(self.by_stream, value.stream_id, id_)
            case FilledPolicy():
                _remove(self.by_predicate, value.predicate_id, id_)

    def get(self, kind: str, id_: str) -> AccessValue | None:
        return self._values(kind).get(id_)

    def ids(self) -> Iterator[tuple[str, str]]:
        """Yield the kind and id of every value."""
        for kind in KINDS:
            for id_ in self._values(kind):
                yield kind, id_

    def policies_of(self, stream_id: int) -> list[Policy]:
        return [self.policies[id_] for id_ in self.by_stream.get(stream_id, ())]

    def _values(self, kind: str) -> MutableMapping[str, AccessValue]:
        mappings: dict[str, MutableMapping[str, AccessValue]] = {
            "key": self.keys,  # type: ignore[dict-item]
            "grant": self.grants,  # type: ignore[dict-item]
            "policy": self.policies,  # type: ignore[dict-item]
            "filled": self.filled,  # type: ignore[dict-item]
            "quota": self.quotas,  # type: ignore[dict-item]
            "hook": self.hooks,  # type: ignore[dict-item]
        }
        return mappings[kind]


def _add(index: MutableMapping[int, tuple[str, ...]], number: int, id_: str) -> None:
    ids = index.get(number, ())
    if id_ not in ids:
        index[number] = (*ids, id_)


def _remove(index: MutableMapping[int, tuple[str, ...]], number: int, id_: str) -> None:
    remaining = tuple(listed for listed in index[number] if listed != id_)
    if remaining:
        index[number] = remaining
    else:
        del index[number]
