"""A line to a server that flips bits of what is sent, as lines without TLS may, or stalls."""

from __future__ import annotations

import math
import random
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_PREFACE_BYTES = 24
_HEAD_BYTES = 9
_DATA_FRAME = 0


class FlippingLine:
    """A proxy that flips one bit in about every second DATA frame of requests while it is
    `flipping`, and lets nothing through after `room` bytes.

    The frames of HTTP/2 stay what they are, so that it is the store that has to notice.
    """

    def __init__(self, target: str, seed: int = 7, room: float = math.inf) -> None:
        self.flipping = True
        self.room = room
        self.flips = 0
        self._random = random.Random(seed)
        self._target = _address(target)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = [self._listener]
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        for connection in self._sockets:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._target)
                self._sockets += [client, server]
                for pump in (self._requests, self._responses):
                    threading.Thread(target=pump, args=(client, server), daemon=True).start()

    def _requests(self, client: socket.socket, server: socket.socket) -> None:
        try:
            server.sendall(_read(client, _PREFACE_BYTES))
            while True:
                head = _read(client, _HEAD_BYTES)
                payload = bytearray(_read(client, int.from_bytes(head[:3], "big")))
                if head[3] == _DATA_FRAME and payload and self._is_due():
                    place = self._random.randrange(len(payload))
                    payload[place] ^= 1 << self._random.randrange(8)
                    self.flips += 1
                self.room -= len(payload)
                if self.room < 0:
                    return
                server.sendall(head + payload)
        except (OSError, EOFError):
            _end(server)

    def _is_due(self) -> bool:
        return self.flipping and self._random.random() < 0.5

    def _responses(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while content := server.recv(1 << 16):
                client.sendall(content)
        _end(client)


@contextmanager
def flipping(target: str) -> Iterator[FlippingLine]:
    line = FlippingLine(target)
    try:
        yield line
    finally:
        line.close()


def _address(target: str) -> tuple[str, int]:
    host, _, port = target.rpartition(":")
    return host, int(port)


def _read(source: socket.socket, count: int) -> bytes:
    content = b""
    while len(content) < count:
        received = source.recv(count - len(content))
        if not received:
            raise EOFError
        content += received
    return content


def _end(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
