"""JWTs: who they make of a caller, and every way to forge one that is refused."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from datastem.instants import SECOND
from psoup.errors import Unauthenticated
from psoup.server.identity.key_sets import KeySet
from psoup.server.identity.settings import JwtSettings
from psoup.server.identity.web_tokens import WebTokens
from tests.support.authority import AUDIENCE, ISSUER, Issuer


@pytest.fixture(scope="module")
def issuer() -> Issuer:
    return Issuer()


class World:
    """A verifier over a file of keys, with a clock that can be set."""

    def __init__(self, path: Path, issuer: Issuer, **settings: Any) -> None:
        self.path = path
        self.issuer = issuer
        self.late = 0.0
        path.write_bytes(issuer.jwks())
        self.keys = KeySet(str(path))
        self.keys.load()
        chosen = JwtSettings(str(path), ISSUER, AUDIENCE, **settings)
        self.tokens = WebTokens(chosen, self.keys, self.now)

    def now(self) -> int:
        return int((time.time() + self.late) * SECOND)

    async def refused(self, token: str) -> str:
        with pytest.raises(Unauthenticated) as error:
            await self.tokens.principal(token)
        part = token.split(".")[-1]
        assert len(part) < 20 or part not in str(error.value)
        return str(error.value)


@pytest.fixture
def world(tmp_path: Path, issuer: Issuer) -> World:
    return World(tmp_path / "jwks.json", issuer)


@pytest.mark.parametrize("algorithm", ["RS256", "ES256", "EdDSA"])
async def test_a_caller_is_what_the_claims_say(world: World, algorithm: str) -> None:
    token = world.issuer.token(algorithm, roles=["reader", "x"], region="north", n=3, deep={"a": 1})
    caller = await world.tokens.principal(token)
    assert (caller.tenant, caller.owner) == ("acme", "bob")
    assert caller.roles == {"reader", "x"}
    assert caller.claims == {"region": "north", "n": 3, "tenant": "acme", "sub": "bob"}
    assert caller.claim("sub") == "bob"
    assert caller.expires is not None and not caller.anyone
    assert await world.tokens.principal(token) is caller


async def test_claims_can_have_other_names(tmp_path: Path, issuer: Issuer) -> None:
    world = World(tmp_path / "k", issuer, tenant="org", owner="email", roles="scope")
    token = issuer.token(org="a", email="e@x", scope="reader publisher", tenant=None, roles="b")
    caller = await world.tokens.principal(token)
    assert (caller.tenant, caller.owner) == ("a", "e@x")
    assert caller.roles == {"reader", "publisher"}
    assert caller.claims["sub"] == "bob" and caller.claims["roles"] == "b"
    assert caller.claim("tenant") == "a", "the tenant, since no claim of that name is there"


@pytest.mark.parametrize(
    "claims",
    [
        {"sub": "\ud800"},
        {"sub": "bob\x1b[2J"},
        {"tenant": "ac\udfffme"},
        {"tenant": "acme\n"},
        {"roles": ["reader", "\ud800"]},
        {"roles": "reader a\x00b"},
        {"roles": ["x" * 257]},
    ],
)
async def test_names_that_are_none_are_refused(world: World, claims: dict[str, Any]) -> None:
    assert "must be a name" in await world.refused(world.issuer.token(**claims))


async def test_a_claim_that_cannot_be_encoded_is_null(world: World) -> None:
    caller = await world.tokens.principal(world.issuer.token(region="\ud800", n=3))
    assert (caller.claim("region"), caller.claim("n")) == (None, 3)


def _b64(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def _forged(token: str, header: dict[str, Any], sign: Any) -> str:
    """The same claims under another header and signature."""
    body = token.split(".")[1]
    start = f"{_b64(json.dumps(header).encode())}.{body}"
    return f"{start}.{_b64(sign(start.encode()))}"


async def test_no_signature(world: World) -> None:
    token = world.issuer.token()
    for name in ("none", "None", "NONE", ""):
        header = {"alg": name, "kid": "ES256"}
        assert "alg" in await world.refused(_forged(token, header, lambda _: b""))
    head, body, _ = token.split(".")
    assert "refused" in await world.refused(f"{head}.{body}.")
    assert "refused" in await world.refused(f"{head}.{body}")


async def test_a_public_key_as_the_secret_of_an_hmac(world: World) -> None:
    """Key confusion: the verifier must not take its public key for a shared secret."""
    public = world.issuer.keys["RS256"].public_key()
    shapes = [
        public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
        public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo),
        json.dumps(world.issuer.jwk("RS256")).encode(),
    ]
    for secret in shapes:
        header = {"alg": "HS256", "kid": "RS256"}

        def sign(text: bytes, secret: bytes = secret) -> bytes:
            return hmac.digest(secret, text, hashlib.sha256)

        forged = _forged(world.issuer.token("RS256"), header, sign)
        assert "alg" in await world.refused(forged)


async def test_the_algorithm_is_that_of_the_key(world: World) -> None:
    """Another algorithm that the key itself could do, or one of another key."""
    token = jwt.encode(
        {"iss": ISSUER, "aud": AUDIENCE, "exp": time.time() + 60, "tenant": "a", "sub": "b"},
        world.issuer.keys["RS256"],
        "PS256",
        {"kid": "RS256"},
    )
    assert "alg" in await world.refused(token)
    crossed = world.issuer.token("RS256", headers={"kid": "ES256"})
    assert "alg" in await world.refused(crossed)


async def test_keys_that_nobody_knows(world: World) -> None:
    stranger = Issuer()
    assert "signature" in await world.refused(stranger.token("ES256"))
    assert "signature" in await world.refused(stranger.token("RS256"))
    assert "signature" in await world.refused(stranger.token("EdDSA"))
    assert "kid" in await world.refused(world.issuer.token(headers={"kid": "other"}))
    assert "kid" in await world.refused(world.issuer.token(headers={"kid": ""}))
    for header in (
        {"alg": "ES256"},
        {"alg": "ES256", "kid": 5},
        {"alg": "ES256", "kid": ["ES256"]},
    ):
        assert "refused" in await world.refused(_forged(stranger.token(), header, lambda _: b"x"))


async def test_keys_that_a_token_brings_are_not_believed(world: World) -> None:
    """Neither `jwk`, `jku` nor `x5u` of a header says with which key it is verified."""
    stranger = Issuer()
    brought = {"jwk": stranger.jwk("ES256"), "jku": "https://evil.test/jwks", "x5u": "https://e"}
    assert "signature" in await world.refused(stranger.token(headers=brought))
    assert "refused" in await world.refused(
        world.issuer.token(headers={"crit": ["unknown"], "unknown": 1})
    )


async def test_changed_claims(world: World) -> None:
    head, body, signature = world.issuer.token().split(".")
    claims = json.loads(base64.urlsafe_b64decode(body + "=="))
    body = _b64(json.dumps({**claims, "tenant": "other"}).encode())
    assert "signature" in await world.refused(f"{head}.{body}.{signature}")


@pytest.mark.parametrize(
    ("claims", "message"),
    [
        ({"iss": "https://other.test"}, "iss"),
        ({"iss": None}, "exp"),
        ({"aud": "other"}, "aud"),
        ({"aud": ["x", "y"]}, "aud"),
        ({"aud": None}, "exp"),
        ({"exp": None}, "exp"),
        ({"exp": "soon"}, "refused"),
        ({"exp": True}, "exp"),
        ({"exp": float("nan")}, "refused"),
        ({"exp": float("inf")}, "refused"),
        ({"tenant": None}, "tenant"),
        ({"tenant": ""}, "tenant"),
        ({"tenant": 5}, "tenant"),
        ({"tenant": "x" * 300}, "tenant"),
        ({"sub": None}, "sub"),
        ({"roles": 5}, "roles"),
        ({"roles": [1]}, "roles"),
        ({"roles": {"operator": True}}, "roles"),
    ],
)
async def test_claims_that_are_refused(world: World, claims: dict[str, Any], message: str) -> None:
    assert message in await world.refused(world.issuer.token(**claims))


async def test_an_audience_among_several(world: World) -> None:
    assert (await world.tokens.principal(world.issuer.token(aud=["x", AUDIENCE]))).owner == "bob"


async def test_times_and_skew(world: World) -> None:
    assert "expired" in await world.refused(world.issuer.token(seconds=-61))
    fresh = world.issuer.token(seconds=-30)
    caller = await world.tokens.principal(fresh)
    world.tokens.check(caller)
    world.late = 31.0
    assert "expired" in await world.refused(fresh)
    with pytest.raises(Unauthenticated, match="expired"):
        world.tokens.check(caller)
    world.late = 0.0
    assert "not valid yet" in await world.refused(world.issuer.token(nbf=time.time() + 61))
    assert await world.tokens.principal(world.issuer.token(nbf=time.time() + 30))


async def test_sizes_and_shapes(world: World) -> None:
    assert "at most" in await world.refused("a" * 9000)
    assert "at most" in await world.refused(world.issuer.token(much="x" * 9000))
    deep = _b64(b"[" * 4000)
    for text in ("", ".", "..", "...", "a.b.c", f"{deep}.{deep}.x", "é.é.é", "\x00.\x00.\x00"):
        await world.refused(text)


async def test_a_key_that_is_taken_away(world: World) -> None:
    token = world.issuer.token("ES256")
    caller = await world.tokens.principal(token)
    world.path.write_bytes(world.issuer.jwks("RS256"))
    world.keys._read = world.keys._asked = float("-inf")
    await world.tokens.principal(world.issuer.token("RS256"))
    assert world.keys._refreshing is not None
    await world.keys._refreshing
    with pytest.raises(Unauthenticated, match="key"):
        world.tokens.check(caller)
    assert "kid" in await world.refused(token)


async def test_a_kid_with_another_key_forgets_what_was_verified(world: World) -> None:
    token = world.issuer.token("ES256")
    await world.tokens.principal(token)
    world.path.write_bytes(Issuer().jwks())
    world.keys.load()
    assert "signature" in await world.refused(token)


@pytest.mark.parametrize("kid", ["ES256", "a kid with blanks"])
async def test_a_kid_with_another_key_ends_those_of_the_key_before(world: World, kid: str) -> None:
    """A Watch is looked at by the caller alone: whoever holds the key before must not go on."""

    def publish(issuer: Issuer) -> None:
        keys = {"keys": [{**issuer.jwk("ES256"), "kid": kid}]}
        world.path.write_text(json.dumps(keys))
        world.keys.load()

    publish(world.issuer)
    caller = await world.tokens.principal(world.issuer.token(headers={"kid": kid}))
    world.tokens.check(caller)
    publish(world.issuer)
    world.tokens.check(caller)
    new_issuer = Issuer()
    publish(new_issuer)
    with pytest.raises(Unauthenticated, match="key"):
        world.tokens.check(caller)
    fresh = await world.tokens.principal(new_issuer.token(headers={"kid": kid}))
    world.tokens.check(fresh)


async def test_a_remembered_token_needs_no_second_look(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = world.issuer.token("RS256")
    caller = await world.tokens.principal(token)
    monkeypatch.setattr(jwt, "decode", None)
    assert await world.tokens.principal(token) is caller


async def test_only_so_many_are_remembered(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("psoup.server.identity.web_tokens._REMEMBERED", 3)
    for number in range(5):
        await world.tokens.principal(world.issuer.token(sub=f"o{number}"))
    assert len(world.tokens._verified) == 3


def test_short_rsa_keys_are_not_taken(tmp_path: Path) -> None:
    weak = rsa.generate_private_key(65537, 1024)
    issuer = Issuer({"RS256": weak})
    (tmp_path / "k").write_bytes(issuer.jwks())
    with pytest.raises(ValueError, match="JWKS needs"):
        KeySet(str(tmp_path / "k")).load()
