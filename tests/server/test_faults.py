"""Several servers, killed servers, failing disks: nothing acknowledged is lost, nothing twice."""

from __future__ import annotations

import asyncio
import errno
import itertools
import random
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pyarrow as pa
import pytest

from psoup.errors import DiskFull, StorageFailed
from psoup.server.calls.publish import publish
from psoup.server.core import Core
from psoup.server.settings import Settings
from psoup.store import Store
from psoup.v1 import psoup_pb2 as pb
from psoup.write.streams import Define
from querystem.language import CreateStream, parse_statement
from tests.server.conftest import Start
from tests.store.test_durable import misreport_links
from tests.store.test_numbers import stall_in_link
from tests.support.server.callers import new_call
from tests.support.server.epochs import HandMadeEngine
from tests.support.server.process import ipc

pytestmark = pytest.mark.process


def numbers(*values: int) -> pa.Table:
    return pa.table({"a": pa.array(values, pa.int64())})


def test_two_servers_take_one_publisher_s_batches_in_turns(start: Start) -> None:
    servers = [start(), start()]
    servers[0].define("CREATE STREAM s (a BIGINT)")
    for sequence, server in zip(range(1, 61), itertools.cycle(servers)):
        sent = server.publish("s", numbers(sequence), publisher="p", sequence=sequence)
        assert sent.first_row_id == sequence - 1
    for server in servers:
        again = server.publish("s", numbers(60), publisher="p", sequence=60)
        assert again.duplicate and again.position == sent.position
        with pytest.raises(grpc.RpcError):
            server.publish("s", numbers(0), publisher="p", sequence=60)
    handle = servers[1].register("SELECT a, row_id FROM s").handle
    answers = [server.values(handle, least_position=sent.position) for server in servers]
    assert answers[0] == answers[1] == [[n + 1, n] for n in range(60)]


def test_the_same_sequence_at_two_servers_at_once(start: Start) -> None:
    servers = [start(), start()]
    servers[0].define("CREATE STREAM s (a BIGINT)")
    with ThreadPoolExecutor(2) as pool:
        for sequence in range(1, 31):
            sent = list(
                pool.map(
                    lambda server, n=sequence: server.publish(
                        "s", numbers(n), publisher="p", sequence=n
                    ),
                    servers,
                )
            )
            assert sorted(response.duplicate for response in sent) == [False, True]
            assert sent[0].position == sent[1].position


def test_two_registers_with_one_key_at_once(start: Start) -> None:
    servers = [start(), start()]
    servers[0].define("CREATE STREAM s (a BIGINT)")
    servers[1].register("SELECT a FROM s")

    def register(server: Any, key: str) -> tuple[bytes, bool]:
        response = server.register("SELECT a FROM s WHERE a = 1", client_key=key)
        return response.handle, response.created

    with ThreadPoolExecutor(4) as pool:
        for number in range(20):
            registrations = list(pool.map(register, servers * 2, [f"k{number}"] * 4))
            assert len({handle for handle, _ in registrations}) == 1
            assert sorted(created for _, created in registrations) == [False, False, False, True]


def test_every_acknowledged_batch_survives_a_kill_once(start: Start) -> None:
    choose = random.Random(7)
    server = start()
    server.define("CREATE STREAM s (a BIGINT)")
    handle = server.register("SELECT a FROM s").handle
    acknowledged = dict.fromkeys(range(3), 0)
    for _ in range(3):
        threads = [
            threading.Thread(target=_publish_until_dead, args=(server, writer, acknowledged))
            for writer in acknowledged
        ]
        for thread in threads:
            thread.start()
        time.sleep(choose.uniform(0.2, 0.6))
        server.kill()
        for thread in threads:
            thread.join()
        server = start()
        values = [row[0] for row in server.values(handle)]
        assert len(values) == len(set(values)), "nothing twice"
        for writer, count in acknowledged.items():
            values_of_writer = [value for value in values if value // 10**6 == writer]
            assert values_of_writer == [
                writer * 10**6 + n for n in range(1, len(values_of_writer) + 1)
            ]
            assert count <= len(values_of_writer) <= count + 1, (
                "at most the one whose answer was lost"
            )
            acknowledged[writer] = count
    assert sum(acknowledged.values()) > 10


def _publish_until_dead(server: Any, writer: int, acknowledged: dict[int, int]) -> None:
    """Goes on with the first sequence that was not acknowledged, as a client would."""
    while True:
        sequence = acknowledged[writer] + 1
        try:
            server.publish(
                "s", numbers(writer * 10**6 + sequence), publisher=f"w{writer}", sequence=sequence
            )
        except (grpc.RpcError, ValueError):
            return
        acknowledged[writer] = sequence


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_cleanly(start: Start, number: int) -> None:
    server = start()
    server.define("CREATE STREAM s (a BIGINT)")
    assert server.stop(number) == 0
    assert "Traceback" not in server.errors.read_text()


@pytest.mark.parametrize(
    ("code", "expected"), [(errno.ENOSPC, DiskFull), (errno.EIO, StorageFailed)]
)
@pytest.mark.parametrize("where", ["file", "commit"])
async def test_a_failing_disk_takes_nothing_and_harms_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, expected: type, where: str
) -> None:
    core = Core(Store.open(tmp_path / "store", create=True), Settings(tmp_path))
    await core.start()
    statement = parse_statement("CREATE STREAM s (a BIGINT)")
    assert isinstance(statement, CreateStream)
    await core.appender.submit(Define("main", "main", statement.schema))
    request = pb.PublishRequest(stream="s", publisher="p", sequence=1, arrow=ipc(numbers(1)))

    def fail(*args: Any, **kwargs: Any) -> None:
        raise OSError(code, "injected")

    with monkeypatch.context() as patch:
        if where == "file":
            patch.setattr("psoup.store.log.log.write_data_file", fail)
        else:
            patch.setattr("psoup.store.delta.commits.put_if_absent", fail)
        for _ in range(2):
            with pytest.raises(expected):
                await publish(core, new_call(), request)
    files = list((tmp_path / "store" / "log").glob("*.parquet"))
    assert len(files) == 1, "what a failed append wrote is gone"
    sent = await publish(core, new_call(), request)
    assert (sent.duplicate, sent.first_row_id) == (False, 0)
    await core.stop()


async def serving(store: Path) -> Core:
    core = Core(Store.open(store, create=True, sync=False), Settings(store))
    await core.start()
    return core


async def define(core: Core) -> None:
    statement = parse_statement("CREATE STREAM s (a BIGINT)")
    assert isinstance(statement, CreateStream)
    await core.appender.submit(Define("main", "main", statement.schema))


async def test_links_that_are_misreported_store_no_batch_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    core = await serving(tmp_path / "store")
    await define(core)
    misreport_links(monkeypatch, errno.EEXIST, every=5)
    sent = [
        await publish(core, new_call(), pb.PublishRequest(stream="s", arrow=ipc(numbers(number))))
        for number in range(40)
    ]
    assert [(reply.duplicate, reply.first_row_id) for reply in sent] == [
        (False, number) for number in range(40)
    ]
    assert [stream.high for stream in core.follower.state.streams.values()] == [40]
    await core.stop()


async def test_a_server_that_stalls_in_a_link_acknowledges_nothing_that_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stalled, healthy = await serving(tmp_path / "store"), await serving(tmp_path / "store")
    await define(healthy)
    late = pb.PublishRequest(stream="s", publisher="late", sequence=1, arrow=ipc(numbers(7)))
    await stalled.follower.catch_up()
    entered, going = threading.Event(), threading.Event()

    def stall() -> None:
        entered.set()
        assert going.wait(60)

    with monkeypatch.context() as patch:
        stall_in_link(patch, stall)
        publishing = asyncio.create_task(publish(stalled, new_call(), late))
        await asyncio.to_thread(entered.wait, 60)
        engine, folder = HandMadeEngine(healthy.store), healthy.store.log.folder
        for _ in range(2):
            for _ in range(3):
                await publish(
                    healthy, new_call(), pb.PublishRequest(stream="s", arrow=ipc(numbers(1)))
                )
            engine.step()
            folder.checkpoint()
        folder.drop_commits(folder.floor())
        going.set()
        with pytest.raises(StorageFailed, match="behind two checkpoints"):
            await publishing
    sent = await publish(stalled, new_call(), late)
    assert (sent.duplicate, sent.first_row_id) == (False, 6)
    await healthy.follower.catch_up()
    for core in (stalled, healthy):
        assert [stream.high for stream in core.follower.state.streams.values()] == [7]
        await core.stop()
