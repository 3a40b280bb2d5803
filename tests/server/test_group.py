"""Several servers on one port: quotas, turns and limits hold for all of them together."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pyarrow as pa
import pytest

from psoup.access.principal import Principal
from psoup.server.call import Call
from psoup.server.group.counts import GroupCounts, LocalCounts, QuotaCounts, make_table
from psoup.server.group.membership import parse_membership
from psoup.server.group.parent import reserved_port
from psoup.server.options import make_parser, parse_arguments
from psoup.server.sharing.shares import CHUNK_UNITS
from psoup.server.sharing.turns import Turns
from psoup.v1 import psoup_pb2 as pb
from psoup.v1.psoup_pb2_grpc import PsoupStub
from querystem.pace import spending
from tests.support.server.process import ROOT, ServerProcess, detail, ipc


@pytest.fixture
def table() -> Iterator[int]:
    """The descriptor of a table for two members and few keys."""
    with tempfile.TemporaryFile() as file:
        make_table(file.fileno(), 2, 100)
        yield file.fileno()


# ---- counts: one contract for both kinds


@pytest.fixture(params=["local", "group"])
def counts(request: pytest.FixtureRequest, table: int) -> tuple[QuotaCounts, Any]:
    clock = SimpleNamespace(now=1.0)
    if request.param == "local":
        return LocalCounts(lambda: clock.now), clock
    return GroupCounts(table, 0, 2, lambda: clock.now), clock


def test_a_bucket_fills_up_to_one_second(counts: tuple[QuotaCounts, Any]) -> None:
    bucket, clock = counts
    key = ("rows", "t", "")
    assert bucket.level(key, 100) == 100
    bucket.take(key, 100, 250)
    assert bucket.level(key, 100) == -150
    clock.now += 1.0
    assert bucket.level(key, 100) == pytest.approx(-50)
    clock.now -= 0.5
    assert bucket.level(key, 100) == pytest.approx(-50), "a clock that goes back fills nothing"
    clock.now += 1000
    assert bucket.level(key, 100) == 100
    assert bucket.level(("rows", "t", "alice"), 7) == 7
    assert bucket.level(key, 40) == 40, "a quota that was lowered holds at once"


def test_open_things_are_counted_by_key(counts: tuple[QuotaCounts, Any]) -> None:
    numbers, clock = counts
    assert [numbers.add(("w", "t"), 1), numbers.add(("w", "t"), 1)] == [1, 2]
    assert numbers.add(("w", "t'"), 1) == 1
    clock.now += 10_000
    assert numbers.add(("w", "t"), -1) == 1 == numbers.number(("w", "t"))
    assert numbers.add(("w", "t"), -1) == 0 == numbers.number(("w", "t"))


# ---- counts of a group


def test_members_count_together(table: int) -> None:
    first, second = (GroupCounts(table, member, 2, lambda: 1.0) for member in range(2))
    first.take(("rows", "t", ""), 10, 8)
    assert second.level(("rows", "t", ""), 10) == 2
    first.add(("w", "t"), 3)
    assert second.add(("w", "t"), 1) == 4
    first.forget(0)
    assert second.number(("w", "t")) == 1, "what a dead member had open is gone"


def test_entries_are_used_again_but_not_while_something_is_open(table: int) -> None:
    clock = SimpleNamespace(now=1.0)
    counts = GroupCounts(table, 0, 2, lambda: clock.now)
    open_keys: list[tuple[str, ...]] = [("w", str(number)) for number in range(200)]
    for key in open_keys:
        counts.add(key, 1)
    # Far more keys than the table has entries, each in debt for a moment only.
    for number in range(20_000):
        clock.now += 1.0
        counts.take(("rows", str(number), ""), 10.0, 5.0)
    assert {counts.number(key) for key in open_keys} == {1}
    assert counts.level(("rows", "19999", ""), 10.0) == 5.0


TAKE = """
import sys
from psoup.server.group.counts import GroupCounts
counts = GroupCounts(int(sys.argv[1]), int(sys.argv[2]), 2, lambda: 1.0)
for _ in range(2000):
    counts.take(("rows", "t", ""), 10, 1)
    counts.add(("w", "t"), 1)
"""


def test_no_change_of_two_processes_is_lost(table: int) -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", TAKE, str(table), str(member)], pass_fds=(table,), cwd=ROOT
        )
        for member in range(2)
    ]
    assert [process.wait(120) for process in processes] == [0, 0]
    counts = GroupCounts(table, 0, 2, lambda: 1.0)
    assert counts.level(("rows", "t", ""), 10) == 10 - 4000
    assert counts.number(("w", "t")) == 4000


def test_units_of_other_members_are_told_once(table: int) -> None:
    first, second = (GroupCounts(table, member, 2, lambda: 1.0) for member in range(2))
    assert first.units_of_others("t", 0) == second.units_of_others("t", 0) == 0
    assert first.units_of_others("t", 50) == 0
    assert second.units_of_others("t", 7) == 50
    assert second.units_of_others("t", 0) == 0 and first.units_of_others("t", 0) == 7


async def test_work_on_another_server_counts_in_the_order_of_turns() -> None:
    """A flood that works on another server, too, has its turn here after a tenant that does not."""
    units_elsewhere = {"flood": 0, "quiet": 0}

    def units_of_others(tenant: str, units: int) -> int:
        missed, units_elsewhere[tenant] = units_elsewhere[tenant], 0
        return missed

    order: list[str] = []
    turns = Turns(1, units_of_others=units_of_others)

    def flood() -> None:
        order.append("flood")
        wait_until(lambda: "quiet" in order)
        units_elsewhere["flood"] = 100 * CHUNK_UNITS
        for chunk in range(20):
            spending()(CHUNK_UNITS)
            order.append("flood")
            if not chunk:
                # The quiet tenant has done its first chunk, in the slot for first ones.
                wait_until(lambda: turns.waiting == 1)

    def quiet() -> None:
        for _ in range(20):
            order.append("quiet")
            wait_until(lambda: order.count("flood") > 1)
            spending()(CHUNK_UNITS)

    def call(tenant: str) -> Call:
        return Call(Principal(tenant, ""), tenant)

    try:
        await asyncio.gather(turns.run(call("flood"), flood), turns.run(call("quiet"), quiet))
    finally:
        turns.stop()
    assert order == ["flood", "quiet", "flood", *["quiet"] * 19, *["flood"] * 19]


# ---- options


def test_each_member_has_a_part_of_the_machine() -> None:
    options = ["--store", "s", "--memory", "800MiB", "--calls", "10", "--watches", "30"]
    member = parse_arguments([*options, "--servers", "1", "--group", "5:1/4"])
    assert (member.memory, member.calls, member.watches) == (200 << 20, 2, 7)
    assert member.group == parse_membership("5:1/4")
    assert "--group" not in make_parser().format_help()


@pytest.mark.parametrize("wrong", ["", "5", "5:2/2", "5:-1/2", "x:0/2", "-1:0/2"])
def test_a_wrong_place_is_refused(wrong: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse_arguments(["--store", "s", f"--group={wrong}"])
    assert "is no place in a group" in capsys.readouterr().err


@pytest.mark.parametrize("wrong", ["0", "-1", "two", "²"])
def test_a_group_has_servers(wrong: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse_arguments(["--store", "s", "--servers", wrong])
    assert "at least 1" in capsys.readouterr().err


def test_two_groups_never_share_a_port() -> None:
    with (
        reserved_port("127.0.0.1", 0) as port,
        pytest.raises(OSError, match="can't listen"),
        reserved_port("127.0.0.1", port),
    ):
        pass
    with reserved_port("127.0.0.1", port) as same:
        assert same == port


# ---- a group of processes

CONNECTIONS = 16


@pytest.fixture
def group(tmp_path: Path) -> Iterator[ServerProcess]:
    server = ServerProcess(tmp_path / "store", "--servers", "2")
    try:
        server.define("CREATE STREAM s (a BIGINT)")
        yield server
    finally:
        assert server.stop() == 0, server.errors.read_text()


def members(server: ServerProcess) -> list[int]:
    children = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text()
    return [int(pid) for pid in children.split()]


def stubs(server: ServerProcess) -> list[tuple[grpc.Channel, Any]]:
    """Return stubs with a connection each, which the kernel divides between the members."""
    options = [("grpc.use_local_subchannel_pool", 1)]
    channels = [grpc.insecure_channel(server.address, options) for _ in range(CONNECTIONS)]
    return [(channel, PsoupStub(channel)) for channel in channels]


def allow(server: ServerProcess, **limits: int) -> None:
    quota = [pb.QuotaLimit(name=name, limit=limit) for name, limit in limits.items()]
    server.stub.SetQuota(pb.SetQuotaRequest(limits=quota))


def watches_in_use(server: ServerProcess) -> int:
    (quota,) = server.stub.ListQuotas(pb.ListQuotasRequest()).quotas
    return sum(limit.used for limit in quota.limits if limit.name == "watches")


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc to find the members")
def test_quotas_hold_for_the_group_and_a_dead_member_comes_back(group: ServerProcess) -> None:
    handle = group.register("SELECT a FROM s").handle
    allow(group, watches=5, rows_per_second=100)
    connected = stubs(group)
    item = pb.SyncItem(handle=handle)
    request = pb.WatchRequest(sync=pb.SyncRequest(items=[item]))
    watches, refusals = [], 0
    for _, stub in connected:
        watch = stub.Watch(request, timeout=300)
        try:
            next(watch)
            watches.append(watch)
        except grpc.RpcError as error:
            assert detail(error).field == "watches", error
            refusals += 1
    assert (len(watches), refusals) == (5, CONNECTIONS - 5)

    # A batch through one connection is a debt on all: whichever server takes the next call refuses.
    batch = pb.PublishRequest(stream="s", arrow=ipc(pa.table({"a": list(range(100_000))})))
    group.stub.Publish(batch)
    for _, stub in connected:
        with pytest.raises(grpc.RpcError) as full:
            stub.Publish(pb.PublishRequest(stream="s", arrow=ipc(pa.table({"a": [1]}))))
        assert detail(full.value).field == "rows_per_second"

    # The watches of a member that is killed count no more, and the group has two members again.
    before = members(group)
    assert len(before) == 2
    os.kill(before[0], signal.SIGKILL)
    wait_until(lambda: before[0] not in members(group) and len(members(group)) == 2)
    wait_until(lambda: group.errors.read_text().count("identity:") == 3)
    wait_until(lambda: watches_in_use(group) == sum(watch.is_active() for watch in watches))
    header, answer = group.ask("SELECT a FROM s ROWS 3")
    assert header.row_count == answer.num_rows == 3
    for channel, _ in connected:
        channel.close()


def test_a_member_that_cannot_start_ends_the_group(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("no folder")
    with pytest.raises(AssertionError, match="can't start"):
        ServerProcess(tmp_path / "store", "--servers", "2")
