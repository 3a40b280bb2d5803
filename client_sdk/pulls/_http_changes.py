"""Changes of an answer to an HTTP receiver: signed, in order, at least once, with numbers.

A POST has a JSON array of the lines that a file of changes would get. Its header `Psoup-Delivery`
is `SERIES/FIRST-LAST`, the numbers of its first and last change: a receiver that keeps the last
number takes each change once. With a secret, `Psoup-Signature` is `sha256=` and the HMAC of the
body.
"""

from __future__ import annotations

import hashlib
import hmac
import http.client
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from client_sdk._exceptions import BadPull
from client_sdk.copies import ChangeBatch
from client_sdk.pulls._change_lines import change_lines
from client_sdk.pulls._receivers import Receivers

MAX_DELIVERY_CHANGES = 1000
MAX_DELIVERY_BYTES = 1_000_000
TIMEOUT_SECONDS = 30.0
_MAX_ANSWER_BYTES = 1 << 16
_GONE = 410
ANY_RECEIVER = Receivers()


class DeliveryFailed(OSError):
    """The receiver did not take a delivery. It is sent again by the next pull."""


def is_url(target: object) -> bool:
    """Return whether changes go to a receiver, and not to a file."""
    return isinstance(target, str) and target.lower().startswith(("http://", "https://"))


class HttpChanges:
    """A receiver of changes. A status of 2xx takes them; 410 ends the pull; with any other one they
    are sent again. Redirects are not followed.

    Raises BadPull if the URL or the secret can't be used, or `receivers` does not permit it.
    """

    failures: tuple[type[Exception], ...] = (OSError, http.client.HTTPException)

    def __init__(
        self, url: str, secret_file: Path | None = None, receivers: Receivers = ANY_RECEIVER
    ) -> None:
        try:
            self._url = urlsplit(url)
            port = self._url.port
        except ValueError as error:
            raise BadPull(f"changes_to: {error}") from None
        if not self._url.hostname or self._url.fragment or port == 0:
            raise BadPull("changes_to: is no URL of a receiver")
        if self._url.username is not None:
            raise BadPull("changes_to: no secrets in the URL; sign with changes_secret_file")
        receivers.check(self._url.hostname)
        self._receivers = receivers
        self._secret_file = secret_file
        self._secret()

    def _secret(self) -> bytes:
        """Return the secret, which is read each time; empty without one."""
        if self._secret_file is None:
            return b""
        try:
            secret = self._secret_file.read_bytes().strip()
        except OSError as error:
            raise BadPull(f"changes_secret_file: {self._secret_file}: {error.strerror}") from None
        if not secret:
            raise BadPull(f"changes_secret_file: {self._secret_file} is empty")
        return secret

    def append(self, batch: ChangeBatch, *, goes_on: bool) -> None:
        """Deliver a batch in its order. Raises one of `failures`, and BadPull for 410."""
        for first, last, body in deliveries(batch):
            self._post(f"{batch.series}/{first}-{last}", body)

    def _post(self, delivery: str, body: bytes) -> None:
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "psoup",
            "Psoup-Delivery": delivery,
        }
        if secret := self._secret():
            signature = hmac.new(secret, body, hashlib.sha256).hexdigest()
            headers["Psoup-Signature"] = f"sha256={signature}"
        connection = self._connect()
        # A receiver that sends a byte now and then is cut off, too.
        timer = threading.Timer(TIMEOUT_SECONDS, _cut, (connection.sock,))
        timer.daemon = True
        timer.start()
        try:
            path = (self._url.path or "/") + (f"?{self._url.query}" if self._url.query else "")
            connection.request("POST", path, body, headers)
            response = connection.getresponse()
            response.read(_MAX_ANSWER_BYTES)
            status = response.status
        finally:
            timer.cancel()
            connection.close()
        if status == _GONE:
            raise BadPull("changes_to: the receiver answers 410 Gone: it wants no more changes")
        if not 200 <= status < 300:
            redirect = "; redirects are not followed" if 300 <= status < 400 else ""
            raise DeliveryFailed(f"the receiver answers {status}{redirect}")

    def _connect(self) -> http.client.HTTPConnection:
        """Return a connection to a permitted address. Raises OSError."""
        host, is_encrypted = str(self._url.hostname), self._url.scheme.lower() == "https"
        kind = http.client.HTTPSConnection if is_encrypted else http.client.HTTPConnection
        connection = kind(host, self._url.port)
        # A connection that has a socket makes no other one.
        connection.sock = self._receivers.connect(host, connection.port, TIMEOUT_SECONDS)
        if is_encrypted:
            try:
                context = ssl.create_default_context()
                connection.sock = context.wrap_socket(connection.sock, server_hostname=host)
            except BaseException:
                connection.close()
                raise
        return connection


def _cut(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def deliveries(batch: ChangeBatch) -> Iterator[tuple[int, int, bytes]]:
    """Yield the bodies of a batch, each with the numbers of its first and last change."""
    numbers = list[int]()
    lines = list[bytes]()
    size = 0
    for number, line in change_lines(batch, 0):
        full = len(lines) >= MAX_DELIVERY_CHANGES or size + len(line) > MAX_DELIVERY_BYTES
        if lines and full:
            yield numbers[0], numbers[-1], _body(lines)
            numbers, lines, size = [], [], 0
        numbers.append(number)
        lines.append(line)
        size += len(line)
    if lines:
        yield numbers[0], numbers[-1], _body(lines)


def _body(lines: list[bytes]) -> bytes:
    return b"[" + b",\n".join(lines) + b"]"
