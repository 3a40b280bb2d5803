"""The faults of a life. Each is over when its function returns."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import grpc
import pyarrow as pa

from client_sdk import Client, PsoupError, Retry
from datastem.instants import SECOND
from psoup.v1 import psoup_pb2 as pb
from psoup.v1.psoup_pb2_grpc import PsoupStub
from tests.support.system.processes import Process
from tests.torture.workload import DEFINITIONS
from tests.torture.world import World, frozen

Fault = Callable[[World, Random], None]

_DAY = 24 * 3600
# From a clock that goes unnoticed to one that is past every lease and retention.
_CLOCK_STEPS = (30, 3 * 3600, _DAY, 40 * _DAY, -3600)
# The servers' default, in seconds.
_CLOCK_LIMIT = 600
# Tables that can be computed again from the rows and the log.
_DERIVED = ("matches", "coverage", "closures")
# Clients that invoke everything and read late, with little room for what they have not read.
_SLOW_READERS = 12
_READ_SECONDS = 30.0
_SMALL_WINDOW = [
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", 64 << 10),
]


def _kill_or_stop(dice: Random) -> Callable[[Process], object]:
    return Process.kill if dice.random() < 0.6 else Process.stop


def end_server(world: World, dice: Random) -> None:
    """Kill or stop one server, and start it again."""
    world.restart_server(dice.randrange(len(world.targets)), _kill_or_stop(dice))


def end_engine(world: World, dice: Random) -> None:
    """Kill the engine, perhaps while it starts, and start it again."""
    world.restart_engine(_kill_or_stop(dice))
    if dice.random() < 0.7:
        world.engine.wait_for("engine ready")


def freeze(world: World, dice: Random) -> None:
    """Stop a process for a while, as on a laptop that sleeps."""
    with frozen(dice.choice(world.processes())):
        time.sleep(dice.uniform(0.3, 3.0))


def fill_disk(world: World, dice: Random) -> None:
    """Let all writes fail for a moment."""
    with world.switched_on("full-disk"):
        time.sleep(dice.uniform(0.2, 2.0))


def misreport_links(world: World, dice: Random) -> None:
    """Let some commits succeed and be reported as conflicts for a while, as NFS may."""
    with world.switched_on("own-conflict"):
        time.sleep(dice.uniform(0.5, 4.0))


def stall_link(world: World, dice: Random) -> None:
    """Stall a server in the link of a commit until its version was used, and perhaps is free."""
    server = dice.choice(world.servers)
    with world.switched_on(f"stalled-link-{server.pid}"):
        time.sleep(dice.uniform(1.0, 12.0))


def leave_engine_away(world: World, dice: Random) -> None:
    """Run no engine for longer than commits stay behind a checkpoint; then let it catch up."""
    _kill_or_stop(dice)(world.engine)
    time.sleep(dice.uniform(3.0, 8.0))
    world.start_engine()


def claim_oddly(world: World, dice: Random) -> None:
    """Append a policy to the log that is filled with a claim that can't be evaluated."""
    world.run("tests.torture.odd_claims", str(world.store), str(dice.randrange(1 << 30)))


def step_clock(world: World, dice: Random) -> None:
    """Set the clock of a server wrong for a while; perhaps it is the only server."""
    place = dice.randrange(len(world.targets))
    world.set_clock(place, dice.choice(_CLOCK_STEPS))
    if dice.random() < 0.5:
        world.restart_server(place, Process.kill)
    time.sleep(dice.uniform(0.5, 3.0))
    world.set_clock(place, 0)


def start_ahead(world: World, dice: Random) -> None:
    """Start a server with a clock that is ahead, and publish to it before it has read another
    clock."""
    place = dice.randrange(len(world.targets))
    world.set_clock(place, dice.choice([step for step in _CLOCK_STEPS if step > _CLOCK_LIMIT]))
    world.restart_server(place, Process.kill)
    refusal = ""
    with Client(world.targets[place], retry=Retry(attempts=1)) as client:
        try:
            client.register("SELECT n FROM plain WHERE n < 0", key=f"ahead {place}")
        except PsoupError as error:
            refusal = error.reason
    time.sleep(dice.uniform(0.5, 3.0))
    world.set_clock(place, 0)
    if len(world.targets) > 1:
        assert refusal in ("CLOCK_AHEAD", "CLOCK_UNCONFIRMED"), refusal
        ahead = world.newest_stamp() / SECOND - time.time()
        assert ahead <= _CLOCK_LIMIT, f"the stamps are {ahead:.0f} s ahead"


def flip_bit(world: World, dice: Random) -> None:
    """Flip a bit of a derived file, for good."""
    files = [file for table in _DERIVED for file in (world.store / table).rglob("*.parquet")]
    if files:
        flip(dice.choice(sorted(files)), dice)


def damage_composites(world: World, dice: Random) -> None:
    """Flip a bit of a stored join, or of a commit of its table; perhaps restart a process."""
    folders = [
        world.store / kind / joins.name
        for joins in (world.store / "joins").glob("*")
        for kind in ("stems", "joins")
    ]
    if not folders:
        return
    pattern = dice.choice(["*.parquet", "_delta_log/*.json"])
    if files := sorted(dice.choice(folders).glob(pattern)):
        flip(files[-1] if pattern.endswith("json") else dice.choice(files), dice)
    start = dice.choice([end_server, end_engine, None])
    if start is not None:
        start(world, dice)


def flip(file: Path, dice: Random) -> None:
    """Flip one bit of a file, unless the file has been deleted."""
    try:
        with file.open("r+b") as handle:
            content = handle.read()
            place = dice.randrange(len(content))
            handle.seek(place)
            handle.write(bytes([content[place] ^ 1 << dice.randrange(8)]))
    except FileNotFoundError:
        return


def cut_power(world: World, dice: Random) -> None:
    """End every process at once, and keep only what was synced."""
    world.cut_power(dice)


def restore(world: World, dice: Random) -> None:
    """Restore the store from a back-up, with its key for tokens; clients keep what they have."""
    version = world.back_up()
    time.sleep(dice.uniform(1.0, 4.0))
    with world.quiet():
        world.ledger.undo(version)
        for actor in world.actors:
            actor.undo(version)
        world.restore()


def read_slowly(world: World, dice: Random) -> None:
    """Let many clients invoke all rows and read later. Each gets its whole answer or an error."""
    target = dice.choice(world.targets)
    channels = [grpc.insecure_channel(target, options=_SMALL_WINDOW) for _ in range(_SLOW_READERS)]
    try:
        calls = [
            PsoupStub(channel).Ask(
                pb.AskRequest(
                    sql=f"SELECT * FROM {dice.choice([*DEFINITIONS])}", encoding=pb.ENCODING_ARROW
                ),
                timeout=_READ_SECONDS,
            )
            for channel in channels
        ]
        firsts = [_next(call) for call in calls]
        time.sleep(dice.uniform(0.5, 3.0))
        for call, first in zip(calls, firsts, strict=True):
            if first is not None:
                _check_whole(first, call)
    finally:
        for channel in channels:
            channel.close()


def _next(call: Any) -> pb.InvokeResponse | None:
    """Return the first message; None if the call was refused."""
    try:
        message: pb.InvokeResponse = next(call)
    except grpc.RpcError:
        return None
    return message


def _check_whole(first: pb.InvokeResponse, call: Any) -> None:
    """Read the remaining messages of an answer, which has as many rows as announced, or an
    error."""
    try:
        content = b"".join(message.arrow for message in call)
    except grpc.RpcError:
        return
    rows = pa.ipc.open_stream(content).read_all().num_rows
    assert rows == first.header.row_count, f"{rows} of {first.header.row_count} rows came"


FAULTS: dict[str, Fault] = {
    "end a server": end_server,
    "end the engine": end_engine,
    "freeze": freeze,
    "fill the disk": fill_disk,
    "own conflict": misreport_links,
    "stalled link": stall_link,
    "engine away": leave_engine_away,
    "odd claims": claim_oddly,
    "step a clock": step_clock,
    "clock ahead at start": start_ahead,
    "flip a bit": flip_bit,
    "damaged composites": damage_composites,
    "cut the power": cut_power,
    "restore a back-up": restore,
    "slow readers": read_slowly,
}
