"""Which store, as whom: the options before the command."""

from __future__ import annotations

from dataclasses import dataclass

from client_sdk import DEFAULT_TARGET, Client, Transport


@dataclass(frozen=True, slots=True)
class Connection:
    """`transport` is for tests; None means the network."""

    target: str = DEFAULT_TARGET
    tenant: str = "main"
    owner: str = "main"
    timeout: float = 60.0
    transport: Transport | None = None

    def client(self) -> Client:
        return Client(
            self.target,
            tenant=self.tenant,
            owner=self.owner,
            timeout=self.timeout,
            transport=self.transport,
        )
