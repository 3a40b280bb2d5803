"""The caller of a call, as permissions see it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

# A claim that policies can name.
ClaimValue: TypeAlias = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Principal:
    """An authenticated caller, or any caller if the server requires no authentication.

    `credential` names the credential, such as `key 4f…`, for logs and for the ends of watches; it
    is not secret. It is invalid from the instant `expires` on. A caller with `anyone` may name
    every tenant and owner and do everything: a server on the loopback without authentication has
    only such callers.
    """

    tenant: str
    owner: str
    roles: frozenset[str] = frozenset()
    claims: Mapping[str, ClaimValue] = field(default_factory=dict, hash=False)
    credential: str = ""
    expires: int | None = None
    anyone: bool = False

    @property
    def actor(self) -> tuple[str, str] | None:
        """The tenant and owner, as the log names who acts; None for anyone."""
        return None if self.anyone else (self.tenant, self.owner)

    def claim(self, name: str) -> ClaimValue:
        """Return the value of a claim, None for an unknown one. `sub` and `tenant` are the owner
        and the tenant, unless the credential has claims of these names."""
        if name in self.claims:
            return self.claims[name]
        return {"sub": self.owner, "tenant": self.tenant}.get(name)


ANYONE = Principal("main", "main", anyone=True)
