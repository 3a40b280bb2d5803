"""What a refusal costs: no input of at most 16 MB may take more than 50 ms of the event loop's
processor time, or leave more than 1 MB behind; and a caller without a credential shuts nobody out.

The quick form sends every shape of message once, at the sizes where a bound ends; the soak form at
more sizes, and often enough that what is left shows.
"""

from __future__ import annotations

import contextlib
import itertools
import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pyarrow as pa
import pytest
from google.protobuf import descriptor_pool
from google.protobuf.message import DecodeError
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from psoup.access.keys import new_key
from psoup.errors import BadRequest
from psoup.server.admission import MAX_FIELDS, MAX_TYPED_BYTES, open_message
from psoup.server.wire.scanning import Malformed, scan, shape_of
from psoup.store import Store
from psoup.v1 import psoup_pb2 as pb
from psoup.write.keys import append_key
from tests.hostile.large import field, large_messages
from tests.hostile.metered import MeteredServer, bounded_here
from tests.hostile.mutating import mutated_bytes
from tests.support.server.process import detail, ipc

MB = 1 << 20
LARGEST = 16 * MB - 64
SERVICES = "psoup.v1.Psoup", "grpc.health.v1.Health", reflection.SERVICE_NAME
# Just below the bounds of fields and of bytes, and far beyond.
SIZES = 2 * MAX_FIELDS - 2000, MAX_TYPED_BYTES - 64, LARGEST
PUBLISH, PUBLISH_STREAM, REGISTER = (
    f"/psoup.v1.Psoup/{name}" for name in ("Publish", "PublishStream", "Register")
)
CHECK = "/grpc.health.v1.Health/Check"
# So that what follows is read as well.
GOOD_FIELDS = {
    PUBLISH: field(2, b"s"),
    PUBLISH_STREAM: field(2, b"s"),
    REGISTER: field(4, b"SELECT v FROM s"),
}
_FAILURES = frozenset({"INTERNAL", "UNKNOWN", "UNAVAILABLE", "DEADLINE_EXCEEDED"})
_SECONDS = 60
_REFUSALS = 40
# What may be left of some hundred inputs of 1 MB each, or more.
_MOST_LEFT_BYTES = 64 * MB
# Of 640 MB that were refused, what the allocators may keep.
_MOST_GROWN_BYTES = 128 * MB
_MOST_CONNECTIONS = 200
# Rows that were accepted stay in memory, within --memory.
_MOST_CACHED_BYTES = 128 * MB


class Boundary:
    """A server of little memory that asks for keys, and callers: `admin` may do all in the tenant,
    `reader` may not publish."""

    def __init__(self, folder: Path) -> None:
        store = Store.open(folder / "store", create=True, sync=False)
        self.admin, self.reader = (_key(store, role) for role in ("administrator", "reader"))
        options = "--memory", "128MB", "--auth", "keys", "--durability", "none", "--wait", "1"
        self.server = MeteredServer(
            folder / "store", *options, "--watches", "100", token=self.admin
        )
        for sql in (
            "CREATE STREAM s (v BIGINT)",
            "CREATE STREAM k (v BIGINT) KEY (v)",
            "CREATE STREAM t (v TEXT)",
        ):
            self.server.stub.Define(pb.DefineRequest(sql=sql), metadata=shown(self.admin))

    def send(self, path: str, content: bytes, token: str) -> str:
        """Return the code of a call with a request of these bytes."""
        service, _, name = path[1:].partition("/")
        method = descriptor_pool.Default().FindServiceByName(service).methods_by_name[name]
        channel: Any = self.server.channel
        kinds = {
            (False, False): channel.unary_unary,
            (False, True): channel.unary_stream,
            (True, True): channel.stream_stream,
        }
        call = kinds[method.client_streaming, method.server_streaming](path, bytes, bytes)
        request = iter([content]) if method.client_streaming else content
        try:
            response = call(request, timeout=_SECONDS, metadata=shown(token))
            for _ in itertools.islice(response, 1) if method.server_streaming else ():
                pass
            if method.server_streaming:
                response.cancel()
        except grpc.RpcError as error:
            code: str = error.code().name
            return code
        return "OK"


def _key(store: Store, role: str) -> str:
    key, text = new_key("acme", role, (role,), "", 1)
    append_key(store, key)
    return text


def shown(token: str) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {token}"),) if token else ()


@pytest.fixture(scope="module")
def boundary(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Boundary]:
    boundary = Boundary(tmp_path_factory.mktemp("boundary"))
    yield boundary
    boundary.server.stop()


def every_input(sizes: tuple[int, ...]) -> Iterator[tuple[str, str, bytes]]:
    """Yield a method, the name of a message, and the message, for all methods and kinds."""
    for service, nbytes in itertools.product(SERVICES, sizes):
        for method in descriptor_pool.Default().FindServiceByName(service).methods:
            for name, content in large_messages(method.input_type, nbytes):
                path = f"/{service}/{method.name}"
                yield path, f"{name}, {nbytes:,} bytes", GOOD_FIELDS.get(path, b"") + content


def rows_of_nothing() -> bytes:
    """Return a publish of a million NULLs, in some hundred bytes, to a stream that takes none."""
    return field(2, b"k") + field(5, ipc(pa.table({"v": pa.nulls(1_000_000)})))


def accepted_publishes() -> Iterator[tuple[str, bytes]]:
    """Yield publishes that are accepted, with many rows and with long ones."""
    numbers, texts = pa.array(range(1_000_000)), pa.array(["x" * 1000] * 8000)
    yield "a million numbers", field(2, b"s") + field(5, ipc(pa.table({"v": numbers})))
    yield "a million NULLs", field(2, b"s") + field(5, ipc(pa.table({"v": pa.nulls(1_000_000)})))
    # Some times, as blocks grow by rows of several publishes.
    for number in range(6):
        yield f"long texts, {number}", field(2, b"t") + field(5, ipc(pa.table({"v": texts})))


def many_parameters() -> bytes:
    entries = (field(1, b"%d" % number) for number in range(MAX_FIELDS - 10))
    return GOOD_FIELDS[REGISTER] + b"".join(field(5, entry) for entry in entries)


# ---- the scan before the parser


def elements_of(request: pb.PublishRequest) -> int:
    """Return how many objects the parser has made of rows, values and names."""
    rows = request.rows
    return len(rows.columns) + len(rows.rows) + sum(len(row.values) for row in rows.rows)


@pytest.mark.parametrize("cases", [3000, pytest.param(300_000, marks=pytest.mark.soak)])
@pytest.mark.timeout(3600)
def test_the_scan_sees_every_object_the_parser_would_make(cases: int) -> None:
    shape, missed = shape_of(PUBLISH), 0
    row = pb.Row(values=[pb.Value(bigint=7), pb.Value(), pb.Value(text="xyz")])
    messages = [
        pb.PublishRequest(stream="s", rows=pb.Rows(columns=["a"] * 3, rows=[row] * count))
        for count in (1, 3, 20)
    ]
    contents = [request.SerializeToString() for request in messages] + [field(5, b"x" * 40)]
    for number in range(cases):
        draw = random.Random(number)
        message = mutated_bytes(draw, draw.choice(contents) + draw.choice(contents), contents)
        most = draw.choice((1, 5, 20, 100))
        with bounded_here(number):
            try:
                scanned = scan(message, shape, most)
            except Malformed:
                continue
        try:
            request = pb.PublishRequest.FromString(scanned.split(message, shape)[0])
        except DecodeError:
            continue
        missed += scanned.complete and elements_of(request) > most
        assert not missed, (number, message.hex())


@pytest.mark.parametrize("nbytes", [1_000, 600_000, LARGEST])
@pytest.mark.parametrize("byte", [b"\xff", b"\x80", b"\x00", b"\x2a\x00", b"\x0a\x00", b"\x78\x01"])
async def test_opening_a_message_takes_the_loop_little(byte: bytes, nbytes: int) -> None:
    message = (byte * nbytes)[:nbytes]
    with bounded_here((byte, nbytes)), contextlib.suppress(BadRequest):
        await open_message(PUBLISH, message)


# ---- the whole way of a message


@pytest.mark.parametrize(
    "sizes", [SIZES[:2], pytest.param((20_000, 200_000, *SIZES), marks=pytest.mark.soak)]
)
@pytest.mark.process
@pytest.mark.timeout(7200)
def test_no_input_takes_the_loop_for_long(boundary: Boundary, sizes: tuple[int, ...]) -> None:
    inputs = [*every_input(sizes), (REGISTER, "parameters", many_parameters())]
    inputs.append((PUBLISH, "rows of nothing", rows_of_nothing()))
    inputs += [(path, "0xff", b"\xff" * LARGEST) for path in (PUBLISH, REGISTER, CHECK)]
    codes, before = set(), boundary.server.read()
    for path, name, content in inputs:
        send = partial(boundary.send, path, content, boundary.admin)
        code = boundary.server.sent((path, name), send)
        codes.add(code)
        assert code not in _FAILURES, (path, name)
    remaining = boundary.server.read().allocated_bytes - before.allocated_bytes
    assert remaining < _MOST_LEFT_BYTES, f"{remaining:,} bytes are left of {len(inputs):,} inputs"
    assert {"OK", "INVALID_ARGUMENT"} <= codes


@pytest.mark.process
def test_an_accepted_publish_takes_the_loop_little(boundary: Boundary) -> None:
    for name, content in accepted_publishes():
        send = partial(boundary.send, PUBLISH, content, boundary.admin)
        assert boundary.server.sent(name, send, _MOST_CACHED_BYTES) == "OK", name


@pytest.mark.process
def test_accepted_registrations_take_the_loop_little(boundary: Boundary) -> None:
    numbers = itertools.count()

    def send(names: list[str] | None = None) -> str:
        names = names or [f"key {next(numbers)}" for _ in range(5000)]
        table = pa.table({"p": pa.array(range(5000)), "client_key": names})
        content = field(3, b"SELECT v FROM s WHERE v < :p") + field(4, ipc(table))
        return boundary.send("/psoup.v1.Psoup/RegisterMany", content, boundary.admin)

    assert boundary.server.sent("registrations", send) == "OK"
    again = partial(send, [f"key {number}" for number in range(5000)])
    assert boundary.server.sent("registrations that are there", again) == "OK"


@pytest.mark.parametrize(
    ("path", "content"),
    [
        (PUBLISH, field(2, b"s") + field(6, field(2, field(1, b"") * (LARGEST // 2 - 10)))),
        (PUBLISH, field(2, b"s") + field(5, bytes(LARGEST - 20))),
        (PUBLISH_STREAM, field(2, b"s") + field(5, bytes(LARGEST - 20))),
        (REGISTER, field(4, b"x" * (LARGEST - 20))),
        ("/psoup.v1.Psoup/RegisterMany", field(4, bytes(LARGEST - 20))),
        ("/psoup.v1.Psoup/Ask", field(3, b"x" * (LARGEST - 20))),
        (CHECK, field(1, b"x" * (LARGEST - 20))),
    ],
    ids=lambda request: request if isinstance(request, str) else "",
)
@pytest.mark.process
def test_nothing_is_left_of_many_large_refusals(
    boundary: Boundary, path: str, content: bytes
) -> None:
    """A caller without permission, with messages as large as they may be."""
    before = boundary.server.read()
    with boundary.server.bounded(path, inputs=_REFUSALS):
        codes = {boundary.send(path, content, boundary.reader) for _ in range(_REFUSALS)}
    assert len(codes) == 1 and not codes & {"OK", *_FAILURES}
    grown = boundary.server.read().resident_bytes - before.resident_bytes
    assert grown < _MOST_GROWN_BYTES, f"{grown:,} bytes more are resident"


@pytest.mark.process
def test_health_watches_take_no_place_of_callers_with_a_credential(boundary: Boundary) -> None:
    connections, watches = [], []
    request = health_pb2.HealthCheckRequest()
    for number in range(_MOST_CONNECTIONS):
        options = [("grpc.use_local_subchannel_pool", 1), ("test.number", number)]
        channel = grpc.insecure_channel(boundary.server.address, options=options)
        connections.append(channel)
        opened = [health_pb2_grpc.HealthStub(channel).Watch(request) for _ in range(5)]
        refused = 0
        for watch in opened:
            try:
                next(watch)
                watches.append(watch)
            except grpc.RpcError as error:
                assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
                assert detail(error).reason == "OVERLOADED"
                refused += 1
        assert refused >= 1, "a connection has few places"
        if refused == 5:
            break
    else:
        raise AssertionError("unauthenticated calls are not bounded in total")

    stub, metadata = boundary.server.stub, shown(boundary.admin)
    registered = stub.Register(pb.RegisterRequest(sql="SELECT v FROM s"), metadata=metadata)
    items = [pb.SyncItem(handle=registered.handle)]
    watch = stub.Watch(pb.WatchRequest(sync=pb.SyncRequest(items=items)), metadata=metadata)
    assert next(watch).HasField("begin"), "there is a place for whoever has a credential"
    watch.cancel()
    check = health_pb2_grpc.HealthStub(connections[-1]).Check(request)
    assert check.status == health_pb2.HealthCheckResponse.SERVING
    for open_watch in watches:
        open_watch.cancel()
    for channel in connections:
        channel.close()
