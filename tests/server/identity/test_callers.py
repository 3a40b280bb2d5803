"""A server that asks who calls: by key, by JWT, by certificate, and not at all."""

from __future__ import annotations

import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from client_sdk import (
    AsyncClient,
    Client,
    ConnectionFailed,
    Credentials,
    NotFound,
    PermissionDenied,
    PsoupError,
    Unauthenticated,
)
from tests.server.identity.conftest import NO_RETRY, World

pytestmark = pytest.mark.process


def who(client: Client) -> tuple[str, str]:
    with client:
        security = client.status().security
    assert security is not None
    return security.tenant, security.owner


def test_a_caller_by_key(world: World) -> None:
    assert who(world.client(world.operator)) == ("main", "root")


@pytest.mark.parametrize("algorithm", ["RS256", "ES256", "EdDSA"])
def test_a_caller_by_jwt(world: World, algorithm: str) -> None:
    assert who(world.client(world.issuer.token(algorithm))) == ("acme", "bob")


def test_a_name_that_cannot_be_encoded_is_refused_as_a_credential(world: World) -> None:
    client = world.client(world.issuer.token(sub="\ud800"))
    with client, pytest.raises(Unauthenticated, match="`sub` must be a name"):
        client.status()


def test_a_caller_by_certificate(world: World) -> None:
    pair = world.authority.client("carol", "wayne")
    assert who(world.client(cert=pair.cert, key=pair.key)) == ("wayne", "carol")


def test_a_token_decides_where_there_is_a_certificate_too(world: World) -> None:
    pair = world.authority.client("carol", "wayne")
    both = world.client(world.issuer.token(), cert=pair.cert, key=pair.key)
    assert who(both) == ("acme", "bob")
    wrong = world.client("psk_0123456789abcdef_" + "x" * 43, cert=pair.cert, key=pair.key)
    with wrong, pytest.raises(Unauthenticated, match="unknown to this store"):
        wrong.status()


def test_nobody_is_told_what_to_show(world: World) -> None:
    with world.client() as client, pytest.raises(Unauthenticated) as error:
        client.status()
    assert "O, the tenant" in error.value.message
    plain = Client(world.server.address, retry=NO_RETRY, timeout=120)
    with plain, pytest.raises(ConnectionFailed):
        plain.status()


@pytest.mark.parametrize("token", ["x", "psk_short", "a.b.c", "psk_0123456789abcdef_" + "é" * 43])
def test_tokens_that_are_none(world: World, token: str) -> None:
    try:
        client = world.client(token)
    except ValueError:
        assert not token.isascii()
        return
    with client, pytest.raises(Unauthenticated) as error:
        client.streams()
    assert error.value.hint


def test_who_may_make_keys(world: World) -> None:
    with world.client(world.operator) as operator:
        new_key = operator.create_key("ann", roles=["administrator"], tenant="acme")
        assert [key.owner for key in operator.access_keys(tenant="acme")] == ["ann"]
        assert new_key.secret not in repr(new_key)
    with world.client(new_key.secret) as ann:
        reader = ann.create_key("bob", roles=["reader"], claims={"region": "north"})
        assert (reader.key.tenant, dict(reader.key.claims)) == ("acme", {"region": "north"})
        with pytest.raises(PermissionDenied, match="operator"):
            ann.create_key("eve", roles=["operator"])
        for forbidden in (
            lambda: ann.create_key("eve", tenant="main"),
            lambda: ann.access_keys(tenant="main"),
            lambda: ann.revoke_key("0" * 16, tenant="main"),
        ):
            with pytest.raises(PermissionDenied, match="another tenant"):
                forbidden()
        foreign = world.operator[4:20]
        with pytest.raises(NotFound, match="no access key"):
            ann.revoke_key(foreign)
        assert {key.owner for key in ann.access_keys()} == {"ann", "bob"}
    with world.client(reader.secret) as bob:
        for forbidden in (
            lambda: bob.create_key("x"),
            bob.access_keys,
            lambda: bob.revoke_key("1"),
        ):
            with pytest.raises(PermissionDenied):
                forbidden()
    with world.client(new_key.secret) as ann:
        ann.revoke_key(reader.key.id)
    with world.client(reader.secret) as bob, pytest.raises(Unauthenticated, match="revoked"):
        bob.streams()


def test_a_key_expires(world: World) -> None:
    with world.client(world.operator) as operator:
        # A busy machine may need one that lives longer.
        for seconds in (1.5, 15.0, 150.0):
            expires = datetime.now(UTC) + timedelta(seconds=seconds)
            with suppress(PsoupError):
                key = operator.create_key("late", expires=expires)
                with world.client(key.secret) as late:
                    assert late.status().security
                break
        else:
            raise AssertionError("no key was taken before it expired")
    time.sleep(max(0.0, (expires - datetime.now(UTC)).total_seconds()) + 0.1)
    with world.client(key.secret) as late, pytest.raises(Unauthenticated, match="expired at"):
        late.status()


async def test_an_async_client(world: World) -> None:
    async def token() -> str:
        return world.issuer.token()

    for credential in (world.issuer.token(), token, world.issuer.token):
        credentials = world.credentials(credential)  # type: ignore[arg-type]
        async with AsyncClient(world.server.address, credentials=credentials) as client:
            assert await client.owner() == "bob"
    async with AsyncClient(
        world.server.address, credentials=world.credentials("psk_x"), retry=NO_RETRY
    ) as client:
        with pytest.raises(Unauthenticated):
            await client.status()


def _channel(world: World) -> grpc.Channel:
    pair = world.authority.client("nobody")
    credentials = grpc.ssl_channel_credentials(
        world.authority.ca.read_bytes(), pair.key.read_bytes(), pair.cert.read_bytes()
    )
    return grpc.secure_channel(world.server.address, credentials)


def test_health_is_open_and_reflection_is_not(world: World) -> None:
    with _channel(world) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        assert health.Check(health_pb2.HealthCheckRequest()).status == 1
        watch = health.Watch(health_pb2.HealthCheckRequest())
        assert next(watch).status == 1
        watch.cancel()
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        ask = [reflection_pb2.ServerReflectionRequest(list_services="")]
        with pytest.raises(grpc.RpcError) as error:
            list(stub.ServerReflectionInfo(iter(ask)))
        assert error.value.code() is grpc.StatusCode.UNAUTHENTICATED
        metadata = (("authorization", f"Bearer {world.operator}"),)
        (answer,) = stub.ServerReflectionInfo(iter(ask), metadata=metadata)
        assert any("Psoup" in service.name for service in answer.list_services_response.service)


@pytest.mark.parametrize(
    "metadata",
    [
        [("authorization", "Basic cm9vdDpyb290")],
        [("authorization", "Bearer")],
        [("authorization", "")],
        [("authorization", "Bearer x"), ("authorization", "Bearer y")],
    ],
)
def test_other_authorizations(world: World, metadata: list[tuple[str, str]]) -> None:
    from psoup.v1 import psoup_pb2 as pb
    from psoup.v1.psoup_pb2_grpc import PsoupStub

    with _channel(world) as channel, pytest.raises(grpc.RpcError) as error:
        PsoupStub(channel).Status(pb.StatusRequest(), metadata=metadata)
    assert error.value.code() is grpc.StatusCode.UNAUTHENTICATED


def test_no_secret_is_in_the_log_or_the_store(world: World) -> None:
    with world.client(world.operator) as operator:
        key = operator.create_key("quiet")
    jwt = world.issuer.token(sub="loud")
    wrong = key.secret[:-4] + "AAAA"
    for token in (key.secret, wrong, jwt, jwt[:-4] + "AAAA"):
        with world.client(token) as client:
            try:
                client.status()
            except PsoupError as error:
                assert token not in repr(error) + str(error.detail)
        assert token not in repr(Credentials(token))
    secrets = [key.secret.split("_", 2)[2], wrong.split("_", 2)[2], *jwt.split(".")[1:]]
    output = world.server.errors.read_text()
    files = [path for path in (world.folder / "store").rglob("*") if path.is_file()]
    content = b"".join(path.read_bytes() for path in files)
    for secret in secrets:
        assert secret not in output and secret.encode() not in content
