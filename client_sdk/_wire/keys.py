"""Access keys, as a store reports them."""

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
    """An access key: a caller with its secret acts as `owner` of `tenant`, with `roles`.

    `claims` are for row policies. The secret is shown once, when the key is created.
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
    """An access key that was just created, with its `secret`. The store does not keep the
    secret.
    """

    key: AccessKey
    secret: str = field(repr=False)
