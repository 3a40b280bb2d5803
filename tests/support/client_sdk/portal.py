"""What may stand between a client and its store: servers that answer, and are no store."""

from __future__ import annotations

import http.server
import socketserver
import threading
from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager
from typing import Any

import grpc

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_HEADERS, _SETTINGS = 1, 4
_END_STREAM, _END_HEADERS, _ACK = 1, 4, 1
# ":status: 404" and ":status: 400" of HPACK's static table.
_STATUS = {404: b"\x8d", 400: b"\x8c"}


@contextmanager
def grpc_portal(code: grpc.StatusCode) -> Iterator[str]:
    """Run a gRPC server that answers every call with that code and no detail, and give its
    address."""

    class Every(grpc.GenericRpcHandler):  # type: ignore[type-arg]
        def service(self, details: Any) -> Any:
            return grpc.stream_stream_rpc_method_handler(self._refuse)

        def _refuse(self, requests: Any, context: grpc.ServicerContext) -> Any:
            context.abort(code, "no")

    server = grpc.server(futures.ThreadPoolExecutor(2), handlers=[Every()])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(None).wait()


class _Http1(http.server.BaseHTTPRequestHandler):
    def handle(self) -> None:
        self.wfile.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")


class _Http2(socketserver.StreamRequestHandler):
    status = 404

    def handle(self) -> None:
        self.rfile.read(len(_PREFACE))
        self._write(_SETTINGS, 0, 0, b"")
        while head := self.rfile.read(9):
            length, kind, flags = int.from_bytes(head[:3], "big"), head[3], head[4]
            stream = int.from_bytes(head[5:], "big")
            self.rfile.read(length)
            if kind == _SETTINGS and not flags & _ACK:
                self._write(_SETTINGS, _ACK, 0, b"")
            elif kind == _HEADERS:
                self._write(_HEADERS, _END_STREAM | _END_HEADERS, stream, _STATUS[self.status])

    def _write(self, kind: int, flags: int, stream: int, content: bytes) -> None:
        head = len(content).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big")
        self.wfile.write(head + content)
        self.wfile.flush()


class _Http2Bad(_Http2):
    status = 400


@contextmanager
def http_portal(kind: str) -> Iterator[str]:
    """Run a web server that answers 404 by "http1" or "http2", or 400 by "http2-bad", and give its
    address."""
    handler = {"http1": _Http1, "http2": _Http2, "http2-bad": _Http2Bad}[kind]
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def portal(kind: str) -> Iterator[str]:
    """Run the portal with the name of a gRPC status, or of an HTTP server, and give its address."""
    context = http_portal(kind) if kind.startswith("http") else grpc_portal(grpc.StatusCode[kind])
    with context as target:
        yield target


PORTALS = (
    "UNIMPLEMENTED",
    "INVALID_ARGUMENT",
    "OUT_OF_RANGE",
    "NOT_FOUND",
    "FAILED_PRECONDITION",
    "ALREADY_EXISTS",
    "RESOURCE_EXHAUSTED",
    "PERMISSION_DENIED",
    "UNAUTHENTICATED",
    "INTERNAL",
    "CANCELLED",
    "http1",
    "http2",
    "http2-bad",
)
