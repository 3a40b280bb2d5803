"""TLS of the web port, log-ins by cookie, and what other sites can do with them: nothing."""

from __future__ import annotations

import dataclasses
import http.client
import shutil
import ssl
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from psoup.server.calls.keys import create_key, revoke_key
from psoup.server.identity.settings import IdentitySettings, JwtSettings, TlsFiles
from psoup.server.settings import Settings
from psoup.v1 import psoup_pb2 as pb
from psoup.web import session
from psoup.web.settings import WebSettings
from tests.support.authority import AUDIENCE, ISSUER, Authority, Issuer, Pair
from tests.support.server.callers import new_call
from tests.support.web import SQL, Reply, WebServer

JSON = "application/json"


class TlsServer(WebServer):
    """A web port with TLS, and a client of it."""

    def __init__(self, folder: Path, **identity: Any) -> None:
        self.authority = Authority(folder / "pki")
        self.pair = self.authority.server()
        client_ca = self.authority.ca if identity.pop("client_ca", False) else None
        tls = TlsFiles(self.pair.cert, self.pair.key, client_ca)
        settings = Settings(
            folder / "store", port=0, identity=IdentitySettings(tls=tls, **identity)
        )
        self.context = ssl.create_default_context(cafile=str(self.authority.ca))
        super().__init__(settings, WebSettings(origins=("https://app.example",)))

    def connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPSConnection("localhost", self.port, timeout=60, context=self.context)

    def key(self, roles: tuple[str, ...] = ("administrator",)) -> str:
        """Create a key past the wire."""
        request = pb.CreateKeyRequest(owner="ann", roles=roles)
        response = self.run(create_key(self.server.core, new_call(), request))
        self.key_id = response.key.id
        return str(response.secret)

    def revoke(self) -> None:
        """Revoke the key that was created last."""
        request = pb.RevokeKeyRequest(id=self.key_id)
        self.run(revoke_key(self.server.core, new_call(), request))

    def log_in(self, token: str) -> Reply:
        bearer = {"authorization": f"Bearer {token}"}
        return self.send("POST", "/v1/session", "{}", JSON, bearer)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[TlsServer]:
    server = TlsServer(tmp_path, auth=("keys",))
    yield server
    server.stop()


def cookie_of(reply: Reply) -> str:
    return reply.headers["set-cookie"].partition(";")[0]


def test_a_page_logs_in_and_out(server: TlsServer) -> None:
    key = server.key()
    assert server.get("/v1/status").status == 401
    assert server.send("POST", "/v1/session", "{}", JSON).status == 401
    assert server.log_in("psoup_nonsense").status == 401
    reply = server.log_in(key)
    assert reply.status == 200 and reply.json() == {"cookie": True, "reason": ""}
    name, *attributes = reply.headers["set-cookie"].split("; ")
    assert name.startswith("__Host-psoup=") and key not in name
    assert set(attributes) == {"HttpOnly", "Secure", "SameSite=Strict", "Path=/", "Max-Age=43200"}
    page_headers = {"cookie": f"a=b; {cookie_of(reply)}; c=d", "psoup-request": "1"}
    assert server.send("GET", "/v1/keys", headers=page_headers).status == 200
    page_headers["origin"] = f"https://localhost:{server.port}"
    assert (
        server.send("POST", "/v1/define", "CREATE STREAM s (a BIGINT)", SQL, page_headers).status
        == 200
    )
    out = server.send("DELETE", "/v1/session", headers=page_headers)
    assert "Max-Age=0" in out.headers["set-cookie"] and out.status == 200
    # A revoked key ends the log-in at its next call.
    server.revoke()
    assert server.send("GET", "/v1/status", headers=page_headers).status == 401


def test_a_cookie_alone_does_nothing(server: TlsServer) -> None:
    """What a form, an image or a script of another site can make a browser send."""
    cookie = cookie_of(server.log_in(server.key()))
    site = f"https://localhost:{server.port}"
    attacks: list[Mapping[str, str]] = [
        {},
        {"origin": site},
        {"psoup-request": "0"},
        {"psoup-request": "1", "origin": "https://evil.example"},
        {"psoup-request": "1", "origin": "null"},
        {"psoup-request": "1", "sec-fetch-site": "cross-site"},
        {"psoup-request": "1", "sec-fetch-site": "same-site"},
        # Its pages may call, but not with cookies.
        {"psoup-request": "1", "origin": "https://app.example"},
    ]
    for headers in attacks:
        for method, path, body in (
            ("GET", "/v1/streams", None),
            ("POST", "/v1/define", "CREATE STREAM victims (a BIGINT)"),
            ("DELETE", "/v1/session", None),
        ):
            sent = {"cookie": cookie, **headers}
            reply = server.send(method, path, body, SQL if body else None, sent)
            assert reply.status == 403 and reply.reason == "CROSS_SITE", headers
    page_headers = {"cookie": cookie, "psoup-request": "1"}
    assert server.send("GET", "/v1/streams", headers=page_headers).json()["streams"] == []


def test_forged_and_expired_cookies_are_refused(server: TlsServer) -> None:
    key = server.key()
    sealed = cookie_of(server.log_in(key)).partition("=")[2]
    sessions = session.Sessions(server.server.core)
    now = time.time()
    assert sessions.open(sealed, now) == key
    expired = sessions.seal(key, now - session.SESSION_SECONDS - 1)
    flipped = sealed[:-2] + ("A" if sealed[-2] != "A" else "B") + sealed[-1]
    for content in (expired, flipped, "", "x", "é", sealed[:20], sealed + "AAAA", "=" * 9):
        headers = {"cookie": f"{session.NAME}={content}", "psoup-request": "1"}
        reply = server.send("GET", "/v1/status", headers=headers)
        assert reply.status == 401 and reply.reason == "UNAUTHENTICATED", content
        assert "www-authenticate" in reply.headers


def test_pages_of_an_allowed_site_get_headers(server: TlsServer) -> None:
    headers = {"origin": "https://app.example", "authorization": f"Bearer {server.key()}"}
    reply = server.send("GET", "/v1/status", headers=headers)
    assert reply.status == 200
    assert reply.headers["access-control-allow-origin"] == "https://app.example"
    assert "access-control-allow-credentials" not in reply.headers
    exposed = reply.headers["access-control-expose-headers"]
    assert {"ETag", "Retry-After", "Psoup-Position", "Psoup-Now"} <= set(exposed.split(", "))
    asks = {
        "origin": "https://app.example",
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization,psoup-publisher,x-evil",
    }
    reply = server.send("OPTIONS", "/v1/streams/s/rows", headers=asks)
    assert reply.status == 204 and reply.headers["access-control-allow-methods"] == "POST"
    assert reply.headers["access-control-allow-headers"] == "authorization, psoup-publisher"


def test_a_long_token_has_no_cookie(tmp_path: Path) -> None:
    issuer = Issuer()
    keys = tmp_path / "jwks.json"
    keys.write_bytes(issuer.jwks())
    jwt = JwtSettings(str(keys), ISSUER, AUDIENCE)
    server = TlsServer(tmp_path, auth=("jwt",), jwt=jwt)
    try:
        assert server.log_in(issuer.token()).json()["cookie"]
        reply = server.log_in(issuer.token(more="x" * 4000))
        assert reply.status == 200 and "set-cookie" not in reply.headers
        assert not reply.json()["cookie"] and "too long" in reply.json()["reason"]
    finally:
        server.stop()


def test_without_tls_there_is_no_cookie(web: WebServer) -> None:
    bearer = {"authorization": "Bearer x"}
    reply = web.send("POST", "/v1/session", "{}", JSON, bearer)
    assert reply.status == 200 and not reply.json()["cookie"]
    assert "set-cookie" not in reply.headers
    # One that another port of this machine has set means nothing.
    stray = {"cookie": f"{session.NAME}=x; psoup=y"}
    assert web.send("GET", "/v1/status", headers=stray).status == 200


# ---- TLS


def test_hosts_are_those_of_the_certificate(server: TlsServer) -> None:
    key = {"authorization": f"Bearer {server.key()}"}
    for host, status in (
        ("localhost", 200),
        (f"127.0.0.1:{server.port}", 200),
        ("evil.example", 421),
    ):
        assert server.send("GET", "/v1/status", headers={**key, "host": host}).status == status


def test_client_certificates_are_demanded(tmp_path: Path) -> None:
    server = TlsServer(tmp_path, auth=("certificates", "keys"), client_ca=True)
    try:
        with pytest.raises((ssl.SSLError, ConnectionError, http.client.RemoteDisconnected)):
            server.get("/livez")
        stranger = Authority(tmp_path / "other").client("ann", "main")
        server.context.load_cert_chain(stranger.cert, stranger.key)
        with pytest.raises((ssl.SSLError, ConnectionError, http.client.RemoteDisconnected)):
            server.get("/livez")
        certificate = server.authority.client("ann", "main")
        server.context = ssl.create_default_context(cafile=str(server.authority.ca))
        server.context.load_cert_chain(certificate.cert, certificate.key)
        assert server.get("/livez").status == 200
        # The certificate opens the connection; who calls is said by a token.
        assert server.get("/v1/status").status == 401
        bearer = {"authorization": f"Bearer {server.key()}"}
        assert server.send("GET", "/v1/status", headers=bearer).status == 200
    finally:
        server.stop()


def test_certificate_files_are_read_again(server: TlsServer, tmp_path: Path) -> None:
    assert server.get("/livez").status == 200
    new_authority = Authority(tmp_path / "new")
    replace(new_authority.server(), server.pair)
    with pytest.raises(ssl.SSLError):
        server.get("/livez")
    server.context = ssl.create_default_context(cafile=str(new_authority.ca))
    assert server.get("/livez").status == 200
    # A file that can't be used leaves the one before.
    server.pair.cert.write_text("no certificate")
    assert server.get("/livez").status == 200


def replace(new: Pair, old: Pair) -> None:
    shutil.copy(new.key, old.key)
    shutil.copy(new.cert, old.cert)


def test_certificates_alone_do_not_open_the_port_to_others(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    pair = authority.server()
    tls = TlsFiles(pair.cert, pair.key, authority.ca)
    identity = IdentitySettings(auth=("certificates",), tls=tls)
    with pytest.raises(ValueError, match="does not see client certificates"):
        WebSettings("0.0.0.0").check(identity)
    WebSettings("127.0.0.1").check(identity)
    WebSettings("0.0.0.0").check(dataclasses.replace(identity, auth=("certificates", "keys")))
    with pytest.raises(ValueError, match="other machines"):
        WebSettings("0.0.0.0").check(IdentitySettings())


def test_denials_name_the_door(server: TlsServer) -> None:
    administrator = {"authorization": f"Bearer {server.key()}"}
    reader = {"authorization": f"Bearer {server.key(('reader',))}"}
    assert server.send("GET", "/v1/keys", headers=reader).status == 403
    server.run(server.server.core.security.flush())
    entries = server.send("GET", "/v1/audit", headers=administrator).json()
    assert "by http" in str(entries)
