"""The pages of the web port for those who watch a server: who may read which."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from prometheus_client.parser import text_string_to_metric_families

from psoup.v1 import psoup_pb2 as pb
from tests.support.web import Reply, WebServer
from tests.web.pages import KeyedServer

_ROLES = ("operator", "monitor", "administrator", "developer", "publisher", "reader", "other")
_WATCHING = ("operator", "monitor")


class WatchedServer(KeyedServer):
    """A server with a key for each role."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.keys = {role: self.key(role, role) for role in _ROLES}

    def page(self, path: str, role: str = "", method: str = "GET", **headers: str) -> Reply:
        shown = {"authorization": f"Bearer {self.keys.get(role, role)}"} if role else {}
        return self.send(method, path, headers={**shown, **headers})


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WatchedServer]:
    server = WatchedServer(tmp_path_factory.mktemp("monitored") / "store")
    yield server
    server.stop()


def test_metrics_are_for_operators_and_monitors(server: WatchedServer) -> None:
    for role in _ROLES:
        reply = server.page("/metrics", role)
        if role in _WATCHING:
            assert reply.status == 200
            names = {family.name for family in text_string_to_metric_families(reply.body.decode())}
            assert {"psoup_engine_up", "psoup_call_duration_seconds"} <= names
        else:
            assert (reply.status, reply.reason) == (403, "PERMISSION_DENIED")
    for text in ("", "nonsense", "psk_0123456789abcdef_" + "x" * 43):
        assert server.page("/metrics", text).status == 401


def test_everybody_learns_whether_it_is_ready_and_those_who_watch_why(
    server: WatchedServer,
) -> None:
    core = server.server.core
    for missing, status in (([], 200), (["the server is stopping"], 503)):
        core.stopping = bool(missing)
        try:
            for role in ("", "nonsense", *_ROLES):
                reply = server.page("/readyz", role)
                assert reply.status == status
                if role in _WATCHING:
                    assert json.loads(reply.body) == {"ready": not missing, "missing": missing}
                else:
                    assert reply.body in (b"OK\n", b"Service Unavailable\n")
                assert server.page("/livez", role).body == b"OK\n"
        finally:
            core.stopping = False


def test_another_site_or_host_reads_no_metrics(server: WatchedServer) -> None:
    assert server.page("/metrics", "monitor", host="evil.example").reason == "WRONG_HOST"
    assert server.page("/metrics", "monitor", origin="http://evil.example").reason == "CROSS_SITE"
    reply = server.page("/readyz", "monitor", host="evil.example")
    assert (reply.status, reply.body) == (200, b"OK\n")


def test_the_pages_are_only_read(server: WatchedServer) -> None:
    for path in ("/metrics", "/livez", "/readyz"):
        assert server.page(path, "monitor", "POST").reason == "METHOD_NOT_ALLOWED"
        assert server.page(path, "monitor", "HEAD").body == b""


def test_a_monitor_makes_no_calls(server: WatchedServer) -> None:
    assert server.page("/v1/status", "monitor").status == 403
    bearer = [("authorization", f"Bearer {server.keys['monitor']}")]
    with pytest.raises(grpc.RpcError) as refused:
        server.stub.Status(pb.StatusRequest(), metadata=bearer)
    assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED


def test_only_an_operator_makes_a_monitor(server: WatchedServer) -> None:
    request = pb.CreateKeyRequest(owner="eve", roles=["monitor"])
    for role, is_allowed in (("administrator", False), ("operator", True)):
        bearer = [("authorization", f"Bearer {server.keys[role]}")]
        try:
            server.stub.CreateKey(request, metadata=bearer)
        except grpc.RpcError as error:
            assert not is_allowed and error.code() is grpc.StatusCode.PERMISSION_DENIED
        else:
            assert is_allowed


def test_a_store_without_keys_shows_its_own_machine_everything(web: WebServer) -> None:
    assert web.get("/metrics").status == 200
    assert web.json("/readyz") == {"ready": True, "missing": []}
