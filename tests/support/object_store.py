"""A real S3-compatible server, moto's, in an environment of its own; and a proxy that cuts
connections to it."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

_PACKAGES = ("moto[s3]==5.2.5", "flask>=3", "flask-cors>=5")
_SECONDS = 60.0
BUCKET = "backups"


def _find() -> str:
    """Return the program; skip the test if there is none to be had."""
    if program := shutil.which("moto_server"):
        return program
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "psoup" / "moto"
    program_file = cache / "bin" / "moto_server"
    if not program_file.exists():
        cache.parent.mkdir(parents=True, exist_ok=True)
        venv = [sys.executable, "-m", "venv", str(cache)]
        pip = [str(cache / "bin" / "pip"), "install", "-q", *_PACKAGES]
        with suppress(subprocess.CalledProcessError):
            for command in (venv, pip):
                subprocess.run(command, check=True, capture_output=True)
    if not program_file.exists():
        shutil.rmtree(cache, ignore_errors=True)
        pytest.skip("no moto_server on this machine, and none could be installed with pip")
    return str(program_file)


class ObjectStore:
    """An S3-compatible server on `port` with the bucket BUCKET."""

    def __init__(self, port: int) -> None:
        self.port = port

    def address(self, prefix: str, *, bucket: str = BUCKET, port: int | None = None) -> str:
        """Return the address of a prefix, as a command takes it."""
        return f"s3://{bucket}/{prefix}?endpoint=http://127.0.0.1:{port or self.port}"

    def create_bucket(self) -> None:
        self._call(f"/{BUCKET}", "PUT")

    def refuse_all(self) -> None:
        """Refuse all credentials from now on; the server has no users."""
        self._allow(0)

    def allow_all(self) -> None:
        self._allow(1 << 40)

    def _allow(self, calls: int) -> None:
        self._call("/moto-api/reset-auth", "POST", str(calls).encode())

    def _call(self, path: str, method: str, content: bytes | None = None) -> None:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}",
            content,
            {"Content-Type": "application/octet-stream"},
            method=method,
        )
        urllib.request.urlopen(request, timeout=_SECONDS).close()


@contextmanager
def running_object_store() -> Iterator[ObjectStore]:
    """Run a server until the end of the block."""
    program = _find()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    with tempfile.TemporaryFile() as log:
        command = [program, "-H", "127.0.0.1", "-p", str(port)]
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            deadline = time.monotonic() + _SECONDS
            while True:
                assert process.poll() is None and time.monotonic() < deadline
                with suppress(OSError):
                    socket.create_connection(("127.0.0.1", port)).close()
                    break
                time.sleep(0.05)
            store = ObjectStore(port)
            store.create_bucket()
            yield store
        finally:
            process.kill()
            process.wait()


class CuttingProxy:
    """A proxy on `port` that passes at most `budget` bytes to a server, and then cuts its
    connections and refuses new ones. With `stall` it goes silent instead."""

    def __init__(self, server_port: int, budget: int, *, stall: bool = False) -> None:
        self._server_port = server_port
        self._budget = budget
        self._stall = stall
        self._lock = threading.Lock()
        self.is_spent = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()
        for connection in self._sockets:
            connection.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                if self.is_spent.is_set() and not self._stall:
                    client.close()
                    continue
                server = socket.create_connection(("127.0.0.1", self._server_port))
                self._sockets += [client, server]
                for pair in ((client, server, True), (server, client, False)):
                    threading.Thread(target=self._pass, args=pair, daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, is_counted: bool) -> None:
        with suppress(OSError):
            while content := source.recv(1 << 16):
                with self._lock:
                    if is_counted:
                        self._budget -= len(content)
                    is_spent = self._budget < 0
                if is_spent:
                    self.is_spent.set()
                    if self._stall:
                        return
                    break
                target.sendall(content)
        for connection in (source, target):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
