"""Server processes whose machines disagree about the time, and what an operator sees of it."""

from __future__ import annotations

import json
from pathlib import Path

import grpc
import pytest
from click.testing import CliRunner

from psoup.cli import cli
from psoup.v1 import psoup_pb2 as pb
from tests.server.conftest import Start
from tests.support.server.process import ServerProcess, detail, rows_of

pytestmark = pytest.mark.process

DAY = 24 * 3600


def machine(folder: Path, name: str, ahead: float = 0) -> Path:
    """Its clock: replaced, never written into, since a server may be reading it."""
    fresh = folder / f".{name}"
    fresh.write_text(f"{ahead}\n")
    return fresh.rename(folder / name)


def put(server: ServerProcess, number: int) -> bytes:
    """The position."""
    return bytes(server.publish("s", rows=rows_of(["a"], [pb.Value(bigint=number)])).position)


def psoup(server: ServerProcess, *arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(cli, ["--target", server.address, *arguments])
    assert result.exit_code == code, result.output
    return result.output


def test_a_day_ahead_from_start_to_confirmation(start: Start, tmp_path: Path) -> None:
    right = start(clock=machine(tmp_path, "right"))
    right.define("CREATE STREAM s (a BIGINT) RETAIN 1 HOUR")
    handle = right.register("SELECT a FROM s").handle
    put(right, 1)
    assert right.values(handle) == [[1]]
    wrong = start(clock=machine(tmp_path, "wrong", DAY))
    with pytest.raises(grpc.RpcError) as caught:
        put(wrong, 2)
    assert detail(caught.value).reason == "CLOCK_AHEAD", "it has asked the other one"
    assert right.values(handle) == [[1]]
    wrong.stop()
    right.stop()
    wrong = start(clock=machine(tmp_path, "wrong", DAY))
    put(wrong, 2)
    right = start(clock=machine(tmp_path, "right"))
    # Every server's NOW follows; what is hidden is known to be in doubt.
    status = right.stub.Status(pb.StatusRequest())
    assert right.values(handle) == [[2]]
    assert status.clock.unconfirmed.seconds >= DAY - 60 and not status.clock.problem
    assert "unconfirmed" in psoup(right, "status")
    output = json.loads(psoup(right, "clock", "--json"))
    assert [jump["confirmed"] for jump in output["jumps"]] == [""]

    put(right, 3)
    with pytest.raises(grpc.RpcError) as caught:
        put(wrong, 4)
    assert caught.value.code() == grpc.StatusCode.UNAVAILABLE
    assert detail(caught.value).reason == "CLOCK_AHEAD"
    assert "accepts no rows" in psoup(wrong, "status")
    assert "ahead of it" in psoup(wrong, "clock")

    assert "confirmed by operator" in psoup(right, "clock", "--confirm", "1")
    assert not wrong.stub.Status(pb.StatusRequest()).clock.unconfirmed.seconds
    assert "there is no jump 2" in psoup(right, "clock", "--confirm", "2", code=1)
    assert "nothing" in psoup(right, "clock", "--confirm-all")
    psoup(right, "clock", "--confirm", "1", "--confirm-all", code=2)


def test_a_clock_that_is_set_while_the_server_runs(start: Start, tmp_path: Path) -> None:
    server = start(clock=machine(tmp_path, "clock"))
    server.define("CREATE STREAM s (a BIGINT)")
    machine(tmp_path, "clock", 3600)
    with pytest.raises(grpc.RpcError) as caught:
        put(server, 1)
    assert "60 minutes forward" in (caught.value.details() or "")
    machine(tmp_path, "clock", -3600)
    put(server, 2)
    trusting = start("--clock-settle", "0", clock=machine(tmp_path, "trusted", DAY))
    put(trusting, 3)
    clock = trusting.stub.Clock(pb.ClockRequest())
    assert [jump.confirmed for jump in clock.jumps] == ["time"]


def test_a_wrong_clock_is_taken_back(start: Start, tmp_path: Path) -> None:
    right = start(clock=machine(tmp_path, "right"))
    right.define("CREATE STREAM s (a BIGINT) RETAIN 1 HOUR")
    handle = right.register("SELECT a FROM s").handle
    put(right, 1)
    right.stop()
    wrong = start(clock=machine(tmp_path, "wrong", DAY))
    position = put(wrong, 2)
    right = start(clock=machine(tmp_path, "right"))
    store = str(tmp_path / "store")
    assert "stop every server" in psoup(right, "repair", store, "--clock", "--yes", code=1)
    right.stop()
    assert "stop every server" in psoup(right, "repair", store, "--clock", "--yes", code=1)
    wrong.stop()
    assert "last stamp" in psoup(right, "repair", store, "--clock", "--yes")
    assert "nothing was changed" in psoup(right, "repair", store, "--clock", "--yes")
    right = start(clock=machine(tmp_path, "right"))
    assert right.values(handle) == [[1], [2]]
    assert not right.stub.Clock(pb.ClockRequest()).jumps
    with pytest.raises(grpc.RpcError) as caught:
        right.values(handle, least_position=position)
    assert detail(caught.value).reason == "FOREIGN_POSITION"
    assert "no damage" in psoup(right, "repair", store)
