"""Static keys, as a store tells of them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from client_sdk._wire.values import moment, optional_moment
from psoup.v1 import psoup_pb2 as pb


@dataclass(frozen=True, slots=True)
class AccessKey:
    """A static key: whoever shows its secret acts as `owner` of `tenant`, with `roles`.

    `claims` are for row policies. The secret itself is told once, when the key is made.
    """

    id: str
    tenant: str
    owner: str
    roles: tuple[str, ...]
    claims: Mapping[str, Any]
    created: datetime
    expires: datetime | None

    @classmethod
    def from_wire(cls, message: pb.Key) -> AccessKey:
        return cls(
            id=message.id,
            tenant=message.tenant,
            owner=message.owner,
            roles=tuple(message.roles),
            claims=json.loads(message.claims or "{}"),
            created=moment(message.created),
            expires=optional_moment(message, "expires"),
        )


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key that was just made, with the `secret` to show. Nobody can tell it again."""

    key: AccessKey
    secret: str = field(repr=False)
