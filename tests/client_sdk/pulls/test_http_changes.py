"""Changes posted to a receiver: signed, in order, at least once, with numbers."""

from __future__ import annotations

import hashlib
import hmac
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from client_sdk import OutputFailed, Pull, PullReport, pull_once, watch_pull
from client_sdk.pulls import BadPull, Puller, load_pulls
from client_sdk.pulls import _http_changes as http_changes
from tests.client_sdk.pulls.conftest import Place
from tests.support.authority import Authority, Pair

pytestmark = pytest.mark.process

ROOMS = "CREATE STREAM rooms (room TEXT, temp DOUBLE) KEY (room)"
HOT = "SELECT room, temp FROM rooms WHERE temp > 80"


class Receiver:
    """A receiver that answers with `statuses`, then with 204. It keeps what it took."""

    def __init__(self, certificate: Pair | None = None) -> None:
        self.statuses: list[int] = []
        # What it does first instead of an answer.
        self.misbehaviour: Callable[[BaseHTTPRequestHandler], None] | None = None
        self.posts: list[tuple[str, str, list[dict[str, Any]]]] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                misbehaviour, receiver.misbehaviour = receiver.misbehaviour, None
                if misbehaviour is not None:
                    misbehaviour(self)
                    return
                status = receiver.statuses.pop(0) if receiver.statuses else 204
                if status < 300:
                    expected = hmac.new(b"tiger", body, hashlib.sha256).hexdigest()
                    assert self.headers["Psoup-Signature"] == f"sha256={expected}"
                    delivery = self.headers["Psoup-Delivery"]
                    receiver.posts.append((self.path, delivery, json.loads(body)))
                self.send_response(status)
                if 300 <= status < 400:
                    self.send_header("Location", "http://169.254.169.254/latest")
                self.end_headers()

            def log_message(self, *arguments: Any) -> None:
                pass

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate.cert, certificate.key)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        scheme = "http" if certificate is None else "https"
        self.url = f"{scheme}://127.0.0.1:{self._server.server_port}/hook?x=1"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def changes(self) -> list[tuple[str, Any]]:
        return [(line["_tag"], line.get("temp")) for _, _, lines in self.posts for line in lines]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    receiver = Receiver()
    yield receiver
    receiver.close()


@pytest.fixture
def pull(place: Place, receiver: Receiver) -> Pull:
    return pull_to(place, receiver)


def pull_to(place: Place, receiver: Receiver) -> Pull:
    place.client.define(ROOMS)
    secret = place.folder / "secret"
    secret.write_text("tiger\n")
    pull = place.pull("hot.csv", sql=HOT, changes_to=receiver.url, changes_secret_file=secret)
    assert pull_once(place.client, pull).changes == 0
    return pull


def measure(place: Place, *temps: float) -> None:
    rows = [{"room": f"r{number}", "temp": temp} for number, temp in enumerate(temps)]
    place.client.publish("rooms", rows)


def test_each_change_is_posted_with_its_number(
    place: Place, pull: Pull, receiver: Receiver
) -> None:
    for temp in (99.0, 95.0, 20.0):
        measure(place, temp)
        assert pull_once(place.client, pull).changes == 1
    assert pull_once(place.client, pull).changes == 0
    assert receiver.changes() == [("+", 99.0), ("u", 95.0), ("-", 95.0)]
    paths, deliveries, _ = zip(*receiver.posts, strict=True)
    assert set(paths) == {"/hook?x=1"}
    numbers = [delivery.rpartition("/")[2] for delivery in deliveries]
    for (_, _, lines), number in zip(receiver.posts, numbers, strict=True):
        assert number == f"{lines[0]['_number']}-{lines[-1]['_number']}"
    assert len({delivery.partition("/")[0] for delivery in deliveries}) == 1


@pytest.mark.parametrize("status", [500, 404, 302, 307])
def test_what_is_not_taken_is_posted_again(
    place: Place, pull: Pull, receiver: Receiver, status: int
) -> None:
    measure(place, 99.0)
    receiver.statuses = [status]
    with pytest.raises(OutputFailed, match=str(status)):
        pull_once(place.client, pull)
    measure(place, 99.0, 98.0)
    pull_once(place.client, pull)
    assert receiver.changes() == [("+", 99.0), ("+", 98.0)]


def hang(handler: BaseHTTPRequestHandler) -> None:
    """Wait until the sender has enough of it."""
    assert not handler.connection.recv(1)


def drip(handler: BaseHTTPRequestHandler) -> None:
    """Send an answer without an end, slowly."""
    with suppress(OSError):
        while True:
            handler.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            time.sleep(0.05)


@pytest.mark.parametrize("misbehaviour", [hang, drip])
def test_a_receiver_that_does_not_answer_is_asked_again(
    place: Place,
    pull: Pull,
    receiver: Receiver,
    misbehaviour: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    measure(place, 99.0)
    with monkeypatch.context() as patch:
        patch.setattr(http_changes, "TIMEOUT_SECONDS", 0.3)
        receiver.misbehaviour = misbehaviour
        with pytest.raises(OutputFailed):
            pull_once(place.client, pull)
    assert not receiver.posts
    pull_once(place.client, pull)
    assert receiver.changes() == [("+", 99.0)]


def test_an_encrypted_receiver_needs_a_certificate_that_is_trusted(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path / "authority")
    receiver = Receiver(authority.server())
    try:
        pull = pull_to(place, receiver)
        measure(place, 99.0)
        with pytest.raises(OutputFailed, match="certificate"):
            pull_once(place.client, pull)
        assert not receiver.posts
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.ca))
        pull_once(place.client, pull)
        assert receiver.changes() == [("+", 99.0)]
    finally:
        receiver.close()


def test_large_batches_are_cut_and_go_in_order(
    place: Place, pull: Pull, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_changes, "MAX_DELIVERY_CHANGES", 3)
    measure(place, *range(81, 91))
    receiver.statuses = [204, 500]
    with pytest.raises(OutputFailed):
        pull_once(place.client, pull)
    pull_once(place.client, pull)
    sizes = [len(lines) for _, _, lines in receiver.posts]
    assert sizes == [3, 3, 3, 3, 1]
    numbers = [line["_number"] for _, _, lines in receiver.posts for line in lines]
    # The first delivery came twice, with the same numbers: a receiver that keeps the last one
    # takes each change once.
    assert numbers[:3] == numbers[3:6] and numbers[3:] == sorted(set(numbers))


def test_a_receiver_that_is_gone_ends_the_pull(
    place: Place, pull: Pull, receiver: Receiver
) -> None:
    measure(place, 99.0)
    receiver.statuses = [410]
    with pytest.raises(BadPull, match="410"):
        pull_once(place.client, pull)
    receiver.close()
    with pytest.raises(OutputFailed):
        pull_once(place.client, pull)
    receiver.__init__()  # type: ignore[misc]


def test_a_pull_that_watches_posts_what_is_new(
    place: Place, pull: Pull, receiver: Receiver
) -> None:
    """A delivery is refused, taken, and then the receiver wants no more."""
    pauses, reports, timers = list[float](), list[PullReport](), list[threading.Timer]()
    receiver.statuses = [500, 204, 410]
    for report in watch_pull(place.client, pull, pause=pauses.append):
        reports.append(report)
        # The first pull has nothing new; while the next two wait, the room gets hotter.
        if report.error is None:
            timers.append(threading.Timer(0.1, measure, (place, 99.0 + len(reports))))
            timers[-1].start()
    for timer in timers:
        timer.join()
    assert pauses == [1.0]
    assert isinstance(reports[-1].error, BadPull)
    assert receiver.changes() == [("+", 100.0)]


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://", "no URL"),
        ("http://u:tiger@h/", "no secrets"),
        ("https://h:99999/", "changes_to"),
        ("http://h/#x", "no URL"),
    ],
)
def test_urls_that_are_refused(url: str, message: str) -> None:
    with pytest.raises(BadPull, match=message) as caught:
        http_changes.HttpChanges(url)
    assert "tiger" not in str(caught.value)


def test_a_file_of_pulls(tmp_path: Path) -> None:
    path = tmp_path / "pulls.toml"
    lines = ["[pulls.a]", 'sql = "SELECT * FROM t"', 'to = "a.csv"']
    path.write_text("\n".join([*lines, 'changes_to = "https://h/x"', 'changes_secret_file = "s"']))
    (pull,) = load_pulls(path)
    assert pull.changes_to == "https://h/x" and pull.changes_secret_file == tmp_path / "s"
    assert pull.changes_path is None
    path.write_text("\n".join([*lines, 'changes_secret_file = "s"']))
    with pytest.raises(BadPull, match="is for changes that go to a URL"):
        load_pulls(path)


def test_two_pulls_may_post_to_one_receiver(place: Place) -> None:
    pulls = [place.pull(f"{name}.csv", changes_to="http://h/x") for name in ("a", "b")]
    Puller(pulls).close()


def test_a_pull_that_was_away_posts_the_end_of_an_erased_row(
    place: Place, pull: Pull, receiver: Receiver
) -> None:
    measure(place, 99.0, 98.0)
    pull_once(place.client, pull)
    place.client.define("ERASE FROM rooms WHERE room = 'r0'")
    measure_one(place, "r1", 97.0)
    assert pull_once(place.client, pull).changes == 2
    assert sorted(receiver.changes()[2:]) == [("-", 99.0), ("u", 97.0)]
    assert "r0" not in pull.to.read_text() and "r1" in pull.to.read_text()


def measure_one(place: Place, room: str, temp: float) -> None:
    place.client.publish("rooms", [{"room": room, "temp": temp}])


@pytest.mark.parametrize("to", ["file", "url"])
def test_a_renamed_customer_is_an_update_of_each_order(
    place: Place, receiver: Receiver, to: str
) -> None:
    """A combination is identified by the keys of its rows: `u`, not `-` and `+`."""
    place.client.define("CREATE STREAM customers (id BIGINT, name TEXT) KEY (id)")
    place.client.define("CREATE STREAM orders (id BIGINT, customer BIGINT) KEY (id)")
    sql = "SELECT o.id, c.name FROM orders o JOIN customers c ON o.customer = c.id"
    secret, path = place.folder / "secret", place.folder / "changes.jsonl"
    secret.write_text("tiger\n")
    target: dict[str, Any] = {"changes_to": path}
    if to == "url":
        target = {"changes_to": receiver.url, "changes_secret_file": secret}
    pull = place.pull("doors.csv", sql=sql, **target)
    place.client.publish("customers", [{"id": n, "name": f"n{n}"} for n in range(2)])
    place.client.publish("orders", [{"id": n, "customer": n % 2} for n in range(4)])
    pull_once(place.client, pull)
    place.client.publish("customers", [{"id": 1, "name": "another"}])
    assert pull_once(place.client, pull).changes == 2
    place.client.define("ERASE FROM customers WHERE id = 0")
    assert pull_once(place.client, pull).changes == 2
    posted = [line for _, _, lines in receiver.posts for line in lines]
    changes = posted or [json.loads(line) for line in path.read_text().splitlines()]
    assert sorted((line["_tag"], line["id"], line["name"]) for line in changes) == [
        ("-", 0, "n0"), ("-", 2, "n0"), ("u", 1, "another"), ("u", 3, "another"),
    ]  # fmt: skip
    assert "n0" not in pull.to.read_text()
