"""Pages of other sites, other names of the host and bodies of other types are refused."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from tests.support.web import SQL, WebServer

_CREATE = "CREATE STREAM victims (name TEXT)"


def test_probes_answer_under_any_name(web: WebServer) -> None:
    for path in ("/livez", "/readyz"):
        assert web.send("GET", path, headers={"host": "10.1.2.3"}).status == 200


@pytest.mark.parametrize("host", ["evil.example", "evil.example:{port}", "127.0.0.1", "", "[::1"])
def test_another_host_is_misdirected(web: WebServer, host: str) -> None:
    reply = web.send("GET", "/v1/status", headers={"host": host.format(port=web.port)})
    assert reply.status == 421 and reply.reason == "WRONG_HOST"


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1", "[::1]", "LocalHost"])
def test_names_of_this_machine_are_answered(web: WebServer, name: str) -> None:
    assert web.send("GET", "/v1/status", headers={"host": f"{name}:{web.port}"}).status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:1"},
        {"origin": "http://localhost"},
        {"origin": "http://localhost:{port}"},
        {"origin": "garbage"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "Cross-Site", "sec-fetch-mode": "navigate"},
    ],
)
def test_a_page_of_another_site_can_do_nothing(
    web: WebServer, tenant: str, headers: dict[str, str]
) -> None:
    headers = {name: text.format(port=web.port) for name, text in headers.items()}
    for method, path in (("GET", "/v1/status"), ("POST", "/v1/define"), ("OPTIONS", "/v1/define")):
        reply = web.send(method, path, _CREATE, SQL, headers, tenant=tenant)
        assert reply.status == 403 and reply.reason == "CROSS_SITE"
        assert "access-control-allow-origin" not in reply.headers
    assert web.json("/v1/streams", tenant=tenant)["streams"] == []


def test_the_own_page_may(web: WebServer) -> None:
    own = {"origin": f"http://127.0.0.1:{web.port}", "sec-fetch-site": "same-origin"}
    assert web.send("GET", "/v1/status", headers=own).status == 200
    assert web.send("GET", "/v1/status", headers={"sec-fetch-site": "none"}).status == 200


@pytest.mark.parametrize(
    "content_type", [None, "text/plain", "application/x-www-form-urlencoded", "multipart/form-data"]
)
def test_types_that_forms_send_are_refused(
    web: WebServer, tenant: str, content_type: str | None
) -> None:
    reply = web.send("POST", "/v1/define", _CREATE, content_type, tenant=tenant)
    assert reply.status == 415 and reply.reason == "UNSUPPORTED_TYPE"
    assert web.json("/v1/streams", tenant=tenant)["streams"] == []


@pytest.mark.parametrize(
    ("method", "path", "status", "reason"),
    [
        ("GET", "/v2/status", 404, "NO_SUCH_RESOURCE"),
        ("GET", "/v1/streams/a/b/c", 404, "NO_SUCH_RESOURCE"),
        ("GET", "/v1/streams/%ff", 404, "NO_SUCH_RESOURCE"),
        ("DELETE", "/v1/status", 405, "METHOD_NOT_ALLOWED"),
        ("GET", "/v1/status?nonsense=1", 400, "UNKNOWN_PARAMETER"),
        ("GET", "/v1/ask?sql=a&sql=b", 400, "BAD_PARAMETER"),
        ("GET", "/v1/ask?sql=%ff", 400, "BAD_PARAMETER"),
        ("GET", "/v1/ask?sql=SELECT&as_of=yesterday", 400, "BAD_PARAMETER"),
        ("GET", "/v1/ask?sql=SELECT&limit=-1", 400, "BAD_PARAMETER"),
        ("GET", "/v1/ask?sql=SELECT&format=xml", 400, "BAD_PARAMETER"),
        ("GET", "/v1/ask?sql=SELECT&timeout=soon", 400, "BAD_PARAMETER"),
        ("GET", "/v1/ask?sql=SELECT", 400, "SYNTAX"),
        ("GET", "/v1/ask?sql=SELECT&p.x=%22%5Cud800%22", 400, "BAD_PARAMETER"),
        ("GET", "/../../etc/passwd", 404, "NO_SUCH_RESOURCE"),
    ],
)
def test_bad_requests_have_a_reason(
    web: WebServer, method: str, path: str, status: int, reason: str
) -> None:
    reply = web.send(method, path)
    assert (reply.status, reply.reason) == (status, reason)
    if status == 405:
        assert reply.headers["allow"] == "GET"


def test_an_unknown_form_is_not_acceptable(web: WebServer) -> None:
    accept: dict[str, Any] = {"accept": "image/png"}
    reply = web.send("GET", "/v1/ask", headers=accept, sql="SELECT 1")
    assert reply.status == 406


def test_responses_wait_for_no_acknowledgement(web: WebServer) -> None:
    """Without TCP_NODELAY the second write of a response waits for a delayed ACK, 40 ms."""
    connection = web.connection()
    connection.request("GET", "/v1/status")
    connection.getresponse().read()
    sockets = [protocol.transport.get_extra_info("socket") for protocol in web.door.connections()]
    assert sockets and all(
        accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) for accepted in sockets
    )
    connection.close()
