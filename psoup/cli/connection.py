"""The options before the command: which store to call, and as which tenant and owner."""

from __future__ import annotations

from dataclasses import dataclass

from client_sdk import DEFAULT_TARGET, AsyncClient, Client, Credentials, Transport
from psoup.cli.problems import fail


@dataclass(frozen=True, slots=True)
class Connection:
    """How to reach a store. `transport` is for tests; None means the network."""

    target: str = DEFAULT_TARGET
    tenant: str | None = None
    owner: str | None = None
    timeout: float = 60.0
    transport: Transport | None = None
    credentials: Credentials | None = None

    def client(self) -> Client:
        """Return a client; raise a Problem if the credentials must not be sent."""
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

    def async_client(self) -> AsyncClient:
        """Return a client for an event loop; raise a Problem as `client` does."""
        try:
            return AsyncClient(
                self.target,
                tenant=self.tenant,
                owner=self.owner,
                timeout=self.timeout,
                transport=self.transport,  # type: ignore[arg-type]
                credentials=self.credentials,
            )
        except ValueError as error:
            fail(str(error))
