"""A store that asks who calls, behind TLS, and what its callers need."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from client_sdk import Client, Credentials, Retry
from psoup.access.keys import new_key
from psoup.store import Store
from psoup.write.keys import append_key
from tests.support.authority import AUDIENCE, ISSUER, Authority, Issuer
from tests.support.server.process import ServerProcess

NO_RETRY = Retry(attempts=1)


@dataclass
class World:
    """A running server with every mode on; `operator` is a key of the tenant main."""

    folder: Path
    authority: Authority
    issuer: Issuer
    operator: str
    server: ServerProcess

    def credentials(self, token: str | None = None, **fields: Any) -> Credentials:
        """Of a caller with a certificate that names no tenant, unless another is given."""
        if "cert" not in fields:
            pair = self.authority.client("nobody")
            fields |= {"cert": pair.cert, "key": pair.key}
        return Credentials(token=token, ca=self.authority.ca, **fields)

    def client(self, token: str | None = None, **fields: Any) -> Client:
        credentials = self.credentials(token, **fields)
        return Client(self.server.address, credentials=credentials, retry=NO_RETRY, timeout=120)


def first_key(store: Path, *roles: str, tenant: str = "main", owner: str = "root") -> str:
    """A key made in the store's folder."""
    key, text = new_key(tenant, owner, roles, "", 1)
    append_key(Store.open(store, create=True, sync=False), key)
    return text


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("identity")
    authority, issuer = Authority(folder / "pki"), Issuer()
    (folder / "jwks.json").write_bytes(issuer.jwks())
    operator = first_key(folder / "store", "operator")
    pair = authority.server()
    server = ServerProcess(
        folder / "store",
        *("--tls-cert", str(pair.cert), "--tls-key", str(pair.key)),
        *("--tls-client-ca", str(authority.ca)),
        *("--auth", "keys", "--auth", "jwt", "--auth", "certificates"),
        *("--jwt-keys", str(folder / "jwks.json"), "--jwt-skew", "0"),
        *("--jwt-issuer", ISSUER, "--jwt-audience", AUDIENCE),
    )
    yield World(folder, authority, issuer, operator, server)
    server.stop()
