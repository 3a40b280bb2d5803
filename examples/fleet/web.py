"""The page of the demo: its files, its state as a stream of events, and what its buttons do."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from fleet.board import Board
from fleet.phone import TICK_SECONDS

FILES = Path(__file__).parent / "page"
_TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
_MAX_BODY_BYTES = 4096
_SITE = "default-src 'self'; frame-ancestors 'none'"


class PageServer(ThreadingHTTPServer):
    """A port of this machine, taken by `__init__`. Serves a board from `start` to `close`."""

    daemon_threads = True
    block_on_close = False

    board: Board

    def __init__(self, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.closing = threading.Event()
        self.port = int(self.server_address[1])
        self.files = {f"/{file.name}": file for file in FILES.iterdir() if file.suffix in _TYPES}
        self.files["/"] = FILES / "index.html"
        self._thread = threading.Thread(target=self.serve_forever, args=(0.1,), name="page")

    def start(self, board: Board) -> None:
        self.board = board
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def close(self) -> None:
        self.closing.set()
        if self._thread.is_alive():
            self.shutdown()
            self._thread.join()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that goes away is no error."""


class _Handler(BaseHTTPRequestHandler):
    server: PageServer
    protocol_version = "HTTP/1.1"
    timeout = 60

    def do_GET(self) -> None:
        if not self._allowed():
            return
        if self.path == "/map":
            self._send_json(self.server.board.map())
        elif self.path == "/events":
            self._send_events()
        elif self.path in self.server.files:
            file = self.server.files[self.path]
            self._send(200, f"{_TYPES[file.suffix]}; charset=utf-8", file.read_bytes())
        else:
            self._refuse(404, "there is no such page")

    def do_POST(self) -> None:
        """Do what a button says: POST /phones/NAME/ACTION with a JSON object."""
        if not self._allowed():
            return
        length = self.headers.get("content-length", "")
        if self.headers.get("content-type") != "application/json" or not length.isdigit():
            return self._refuse(415, "send a JSON object")
        if int(length) > _MAX_BODY_BYTES:
            return self._refuse(413, "the body is too large")
        try:
            body = json.loads(self.rfile.read(int(length)))
            _, phones, name, action = self.path.split("/")
            phone = self.server.board.phones[name]
            match phones, action, body:
                case "phones", "plug", {}:
                    phone.plug()
                case "phones", "unplug", {}:
                    phone.unplug()
                case "phones", "advance", {"job": int(job)}:
                    phone.advance(job)
                case "phones", "add", {"title": str(title)}:
                    phone.add(title)
                case _:
                    return self._refuse(404, "there is no such action")
        except (ValueError, KeyError, RecursionError):
            return self._refuse(400, "the request can't be read")
        self._send_json({})

    def _allowed(self) -> bool:
        """Refuse pages of other sites, and other names of this machine."""
        hosts = {f"{name}:{self.server.port}" for name in ("127.0.0.1", "localhost")}
        origin = self.headers.get("origin", "")
        site = self.headers.get("sec-fetch-site", "none")
        if self.headers.get("host") not in hosts:
            self._refuse(421, "another host")
        elif site not in ("none", "same-origin") or origin.removeprefix("http://") not in {
            "",
            *hosts,
        }:
            self._refuse(403, "another site")
        else:
            return True
        return False

    def _send_events(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("cache-control", "no-store")
        self.send_header("connection", "close")
        self.end_headers()
        self.close_connection = True
        while not self.server.closing.is_set():
            state = json.dumps(self.server.board.state(), ensure_ascii=True)
            self.wfile.write(f"data: {state}\n\n".encode())
            self.wfile.flush()
            self.server.closing.wait(TICK_SECONDS)

    def _send_json(self, body: Any) -> None:
        self._send(200, "application/json", json.dumps(body).encode())

    def _refuse(self, status: int, text: str) -> None:
        # What is left of the body would be read as the next request.
        self.close_connection = True
        self._send(status, "text/plain; charset=utf-8", text.encode())

    def _send(self, status: int, content_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-type", content_type)
        self.send_header("content-length", str(len(body)))
        self.send_header("content-security-policy", _SITE)
        self.send_header("x-content-type-options", "nosniff")
        self.send_header("cache-control", "no-cache")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Stay quiet: the terminal shows the story."""
