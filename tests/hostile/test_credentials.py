"""Credentials, mutated: a JWT, a key or a certificate that nobody issued makes nobody a caller."""

from __future__ import annotations

import base64
import json
import random
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import grpc
import pytest

from client_sdk import Client, Credentials
from datastem.instants import SECOND
from psoup.access.keys import new_key
from psoup.access.principal import Principal
from psoup.errors import Unauthenticated
from psoup.server.identity.certificates import CallerCertificates
from psoup.server.identity.key_sets import KeySet
from psoup.server.identity.settings import JwtSettings
from psoup.server.identity.static_keys import StaticKeys
from psoup.server.identity.web_tokens import WebTokens
from psoup.store.state.state import State
from psoup.v1 import psoup_pb2 as pb
from psoup.v1.psoup_pb2_grpc import PsoupStub
from tests.hostile.metered import bounded_here
from tests.hostile.mutating import mutated_bytes
from tests.support.authority import AUDIENCE, ISSUER, Authority, Issuer
from tests.support.server.process import ServerProcess

_HEADERS: list[dict[str, Any]] = [
    {"alg": "none"},
    {"alg": "HS256"},
    {"alg": "RS256"},
    {"alg": "ES256"},
    {"alg": ["ES256"]},
    {"kid": "../ES256"},
    {"kid": None},
    {"jku": "https://evil.test"},
    {"jwk": {"kty": "oct", "k": "AA"}},
    {"crit": ["b64"], "b64": False},
    {"typ": 7},
]
_CLAIMS: list[dict[str, Any]] = [
    {"tenant": "victim"},
    {"sub": "admin"},
    {"roles": ["operator"]},
    {"exp": 9e99},
    {"exp": "never"},
    {"aud": ["psoup", "x"]},
    {"iss": [ISSUER]},
]


def _now() -> int:
    return int(time.time() * SECOND)


async def _nothing_new() -> None:
    """There is no other server."""


def _part(content: str) -> dict[str, Any]:
    return dict(json.loads(base64.urlsafe_b64decode(content + "=" * (-len(content) % 4))))


def _written(part: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode()


def mutated_jwt(draw: random.Random, token: str, samples: list[str]) -> str:
    """A JWT that its issuer never made: another header or other claims, signatures of others, a
    part left out, or bytes changed."""
    header, claims, signature = token.split(".")
    match draw.randrange(6):
        case 0:
            header = _written({**_part(header), **draw.choice(_HEADERS)})
        case 1:
            claims = _written({**_part(claims), **draw.choice(_CLAIMS)})
        case 2:
            signature = draw.choice(["", "AA", draw.choice(samples).split(".")[2]])
        case 3:
            return ".".join(draw.sample([header, claims, signature, ""], draw.randrange(1, 5)))
        case _:
            content = mutated_bytes(draw, token.encode(), [sample.encode() for sample in samples])
            return content.decode("latin-1")
    return f"{header}.{claims}.{signature}"


def _printable(caller: Principal) -> Principal:
    return replace(caller, credential="")


@pytest.mark.parametrize("cases", [2000, pytest.param(100_000, marks=pytest.mark.soak)])
@pytest.mark.timeout(3600)
async def test_a_mutated_jwt_makes_nobody_else(cases: int, tmp_path: Path) -> None:
    issuer, path = Issuer(), tmp_path / "jwks.json"
    path.write_bytes(issuer.jwks())
    keys = KeySet(str(path))
    keys.load()
    verifier = WebTokens(JwtSettings(str(path), ISSUER, AUDIENCE), keys, _now)
    tokens = [issuer.token(name, sub=f"bob of {name}") for name in issuer.keys]
    genuine = [_printable(await verifier.principal(token)) for token in tokens]
    for number in range(cases):
        draw = random.Random(number)
        token = mutated_jwt(draw, draw.choice(tokens), tokens)
        try:
            with bounded_here(number):
                caller = await verifier.principal(token)
        except Unauthenticated:
            continue
        except Exception as error:
            raise AssertionError(f"case {number}: {token!r}") from error
        # Base64 has several spellings for one content; that content is still the issuer's.
        assert _printable(caller) in genuine, (number, token)


@pytest.mark.parametrize("cases", [2000, pytest.param(100_000, marks=pytest.mark.soak)])
async def test_a_mutated_key_is_no_key(cases: int) -> None:
    state = State()
    access_key = [new_key("acme", f"owner {number}", ("reader",), "{}", 1) for number in range(3)]
    for key, _ in access_key:
        state.access.put(key)
    keys, texts = StaticKeys(lambda: state, _now, _nothing_new), [text for _, text in access_key]
    owners = [(await keys.principal(text)).owner for text in texts]
    assert owners == ["owner 0", "owner 1", "owner 2"]
    for number in range(cases):
        draw = random.Random(number)
        content = mutated_bytes(draw, draw.choice(texts).encode(), [t.encode() for t in texts])
        text = content.decode("latin-1")
        if text not in texts:
            with bounded_here(number), pytest.raises(Unauthenticated):
                await keys.principal(text)


# ---- certificates


@dataclass(frozen=True)
class _Connection:
    """A call over a connection that has a certificate."""

    pem: bytes

    def auth_context(self) -> dict[str, list[bytes]]:
        return {"x509_pem_cert": [self.pem]}


@pytest.mark.parametrize("cases", [2000, pytest.param(100_000, marks=pytest.mark.soak)])
def test_a_mutated_certificate_is_refused_or_read(cases: int, tmp_path: Path) -> None:
    authority, callers = Authority(tmp_path), CallerCertificates(_now)
    certificates = [authority.client("bob", "acme"), authority.client("eve")]
    contents = [pair.cert.read_bytes() for pair in certificates]
    bodies = [
        base64.b64decode(b"".join(certificate.splitlines()[1:-1])) for certificate in contents
    ]
    begin, *_, end = contents[0].splitlines()
    for number in range(cases):
        draw = random.Random(number)
        body = mutated_bytes(draw, draw.choice(bodies), bodies)
        pem = b"\n".join([begin, base64.encodebytes(body).rstrip(), end, b""])
        try:
            callers.principal(_Connection(pem))  # type: ignore[arg-type]
        except Unauthenticated:
            continue
        except Exception as error:
            raise AssertionError(f"case {number}: {body.hex()}") from error


def test_a_certificate_of_no_known_version_is_refused(tmp_path: Path) -> None:
    lines = Authority(tmp_path).client("bob", "acme").cert.read_bytes().splitlines()
    version, none = bytes.fromhex("a003020102"), bytes.fromhex("a003020103")
    body = base64.b64decode(b"".join(lines[1:-1])).replace(version, none)
    pem = b"\n".join([lines[0], base64.encodebytes(body).rstrip(), lines[-1], b""])
    with pytest.raises(Unauthenticated, match="can't be read"):
        CallerCertificates(_now).principal(_Connection(pem))  # type: ignore[arg-type]


# ---- connections


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServerProcess, Authority]]:
    folder = tmp_path_factory.mktemp("tls")
    authority = Authority(folder / "pki")
    pair = authority.server()
    options = ("--tls-cert", str(pair.cert), "--tls-key", str(pair.key), "--durability", "none")
    server = ServerProcess(folder / "store", *options, "--tls-client-ca", str(authority.ca))
    yield server, authority
    server.stop()


# The beginning of a TLS handshake, and of HTTP/2 without one.
_HELLO = bytes.fromhex("16030100c8010000c40303") + bytes(200)
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes.fromhex("000000040000000000")


@pytest.mark.process
@pytest.mark.parametrize("cases", [200, pytest.param(10_000, marks=pytest.mark.soak)])
@pytest.mark.timeout(3600)
def test_bytes_that_are_no_handshake(served: tuple[ServerProcess, Authority], cases: int) -> None:
    server, authority = served
    host, _, port = server.address.rpartition(":")
    for number in range(cases):
        draw = random.Random(number)
        content = mutated_bytes(draw, draw.choice([_HELLO, _PREFACE]), [_HELLO, _PREFACE])
        with socket.create_connection((host, int(port)), timeout=120) as line:
            line.sendall(content)
    certificate = authority.client("bob", "acme")
    good = Credentials(ca=authority.ca, cert=certificate.cert, key=certificate.key)
    with Client(server.address, credentials=good) as client:
        client.status()
    with grpc.insecure_channel(server.address) as channel, pytest.raises(grpc.RpcError):
        PsoupStub(channel).Status(pb.StatusRequest(), timeout=10)
