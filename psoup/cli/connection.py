"""Which store, as whom: the options before the command."""

from __future__ import annotations

from dataclasses import dataclass

from client_sdk import DEFAULT_TARGET, Client, Credentials, Transport
from psoup.cli.problems import fail


@dataclass(frozen=True, slots=True)
class Connection:
    """`transport` is for tests; None means the network."""

    target: str = DEFAULT_TARGET
    tenant: str | None = None
    owner: str | None = None
    timeout: float = 60.0
    transport: Transport | None = None
    credentials: Credentials | None = None

    def client(self) -> Client:
        """Fails where the credentials must not be sent."""
        try:
            return self._client()
        except ValueError as error:
            fail(str(error))

    def _client(self) -> Client:
        return Client(
            self.target,
            tenant=self.tenant,
            owner=self.owner,
            timeout=self.timeout,
            transport=self.transport,
            credentials=self.credentials,
        )
