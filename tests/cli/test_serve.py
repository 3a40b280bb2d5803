"""A store run by `psoup serve`: up, watched, and ended in order."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from client_sdk import Client, PsoupError, Retry
from psoup.cli import serve
from psoup.cli.problems import Problem
from psoup.cli.supervisor import Supervisor
from psoup.processes import Backoff, Child
from tests.support.client_sdk.fake_store import FakeStore
from tests.support.client_sdk.loopback import serving
from tests.support.server.process import ServerProcess

ROOT = Path(__file__).parents[2]
SLEEP = [
    sys.executable,
    "-c",
    "import time; print('server ready on it', flush=True); time.sleep(600)",
]
DEAF = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
    "print('deaf', flush=True); time.sleep(600)"
)


class Heard:
    """Collects what is said, and lets a test wait for a line."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._news = threading.Condition()

    def __call__(self, name: str, line: str) -> None:
        with self._news:
            self.lines.append(f"{name}: {line}")
            self._news.notify_all()

    def wait_for(self, text: str, times: int = 1) -> None:
        def come() -> bool:
            return sum(text in line for line in self.lines) >= times

        with self._news:
            assert self._news.wait_for(come, timeout=240), self.lines


def test_a_child_speaks_under_its_name_and_ends() -> None:
    heard = Heard()
    child = Child("server", [sys.executable, "-c", "print('hello')"], heard)
    assert child.ended() is None
    child.start()
    heard.wait_for("server: hello")
    child.stop(grace_seconds=10.0)
    assert child.ended() in (0, -signal.SIGTERM)


def test_a_child_that_does_not_listen_is_killed() -> None:
    heard = Heard()
    child = Child("engine", [sys.executable, "-c", DEAF], heard)
    child.start()
    heard.wait_for("deaf")
    child.stop(grace_seconds=0.1)
    assert child.ended() == -signal.SIGKILL
    heard.wait_for("is killed")


def test_restarts_wait_longer_and_longer() -> None:
    backoff = Backoff(first=1.0, longest=4.0, stable=60.0)
    assert [backoff.after(ran) for ran in (0, 0, 0, 0, 61, 0)] == [1, 2, 4, 4, 1, 2]


def supervised(
    commands: dict[str, list[str]], target: str, **asks: bool
) -> tuple[Supervisor, Heard]:
    heard = Heard()
    supervisor = Supervisor(commands, target, Path("store"), lambda _: "fake", **asks)
    supervisor.say = heard  # type: ignore[method-assign]
    supervisor._backoff = Backoff(first=0.01, longest=0.01)
    for child in (supervisor._server, supervisor._engine):
        if child is not None:
            child._print_line = heard
    return supervisor, heard


def test_an_engine_that_dies_is_started_again() -> None:
    with serving(FakeStoreWithStatus()) as target:
        dies = [sys.executable, "-c", "raise SystemExit(7)"]
        supervisor, heard = supervised({"server": SLEEP, "engine": dies}, target)
        codes: list[int] = []
        running = threading.Thread(target=lambda: codes.append(supervisor.run()))
        running.start()
        heard.wait_for("the engine ended (exit code 7)", times=3)
        supervisor.stopping.set()
        running.join(60)
    assert codes == [0]
    assert any("ready" in line for line in heard.lines)
    assert supervisor._server.ended() == -signal.SIGTERM


@pytest.mark.parametrize("asks", [False, True])
def test_the_welcome_tells_what_clients_need(asks: bool) -> None:
    supervisor, heard = supervised({"server": SLEEP}, "127.0.0.1:1", tls=asks, tokens=asks)
    supervisor._welcome()
    lines = "\n".join(heard.lines)
    assert ("PSOUP_TLS_CA" in lines) == ("PSOUP_TOKEN_FILE" in lines) == asks


def test_a_server_that_dies_ends_the_store() -> None:
    supervisor, heard = supervised(
        {"server": [sys.executable, "-c", "raise SystemExit(5)"]}, "127.0.0.1:1"
    )
    assert supervisor.run() == 1
    assert any("server ended by itself (exit code 5)" in line for line in heard.lines)


class FakeStoreWithStatus(FakeStore):
    def Status(self, request: Any) -> Any:
        from psoup.v1 import psoup_pb2 as pb

        return pb.StatusResponse(store_id="fake")


@pytest.mark.parametrize(
    ("listen", "expected"),
    [("127.0.0.1:7181", ("127.0.0.1", 7181)), (":80", ("127.0.0.1", 80)), ("[::1]:9", ("::1", 9))],
)
def test_addresses(listen: str, expected: tuple[str, int]) -> None:
    assert serve.address(listen) == expected
    assert serve.address("127.0.0.1:0")[1] > 0


@pytest.mark.parametrize("listen", ["localhost", "localhost:http", "host:70000"])
def test_what_is_no_address_is_wrong_usage(listen: str) -> None:
    with pytest.raises(Problem):
        serve.address(listen)


def test_missing_extras_are_named_with_the_line_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(serve._REQUIRED_PACKAGES, "engine", ("no_such_package",))
    with pytest.raises(Problem, match=r"no_such_package.*\n  pip install 'psoup\[engine\]'"):
        serve.require("engine")


def test_a_server_that_is_not_the_folder_s_is_not_taken_for_it() -> None:
    with serving(FakeStoreWithStatus()) as target:
        supervisor, heard = supervised({"server": SLEEP}, target)
        supervisor._store_id = lambda _: "mine"
        assert supervisor.run() == 1
    assert any("in use by a server of another store, fake" in line for line in heard.lines)
    assert not any("ready:" in line for line in heard.lines)


def test_nothing_is_ready_before_the_own_server_says_so() -> None:
    """Another server of the same store may have the port."""
    with serving(FakeStoreWithStatus()) as target:
        late = "import time; time.sleep(1); raise SystemExit(1)"
        supervisor, heard = supervised({"server": [sys.executable, "-c", late]}, target)
        assert supervisor.run() == 1
    assert any("in use by a server of the same store" in line for line in heard.lines)
    assert not any("ready:" in line for line in heard.lines)


@pytest.mark.process
@pytest.mark.parametrize("folder", ["other", "store"])
def test_a_port_that_another_server_holds(tmp_path: Path, folder: str) -> None:
    command = [sys.executable, "-m", "psoup.cli", "serve", str(tmp_path / folder), "--no-engine"]
    holder = ServerProcess(tmp_path / "store")
    address = holder.address
    try:
        process = subprocess.run(
            [*command, "--listen", address], cwd=ROOT, capture_output=True, text=True, timeout=120
        )
    finally:
        holder.stop()
    assert process.returncode == 1
    assert "ready:" not in process.stderr
    holder_store = "the same store" if folder == "store" else "another store"
    assert f"{address} is in use by a server of {holder_store}" in process.stderr
    assert "--listen HOST:PORT" in process.stderr


@pytest.mark.process
def test_the_children_of_a_killed_serve_end(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "psoup.cli", "serve", str(tmp_path / "store")]
    process = subprocess.Popen(
        [*command, "--listen", "127.0.0.1:0", "--no-engine"],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    with process.stderr:
        lines = iter(process.stderr.readline, "")
        target = next(
            children[1] for line in lines if (children := re.search(r"ready: (\S+)", line))
        )
        process.kill()
        process.wait()
    deadline = time.monotonic() + 60
    with Client(target, retry=Retry(attempts=1), timeout=1.0) as client:
        while answers(client):
            assert time.monotonic() < deadline, "the server goes on without its parent"
            time.sleep(0.05)


def answers(client: Client) -> bool:
    try:
        client.status()
    except PsoupError:
        return False
    return True


@pytest.mark.process
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_serve_runs_a_store_until_it_is_told_to_end(tmp_path: Path, number: signal.Signals) -> None:
    command = [sys.executable, "-m", "psoup.cli", "serve", str(tmp_path / "store")]
    process = subprocess.Popen(
        [*command, "--listen", "127.0.0.1:0", "--no-engine"],
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    try:
        lines = iter(process.stderr.readline, "")
        target = next(match[1] for line in lines if (match := re.search(r"ready: (\S+)", line)))
        with Client(target) as client:
            client.define("CREATE STREAM s (a BIGINT)")
            client.publish("s", [{"a": 1}])
            assert client.invoke(client.register("SELECT a FROM s")).rows == [{"a": 1}]
        process.send_signal(number)
        assert "stopped; everything acknowledged is in the folder" in process.stderr.read()
        assert process.wait(60) == 0
        with (
            Client(target, retry=Retry(attempts=1)) as client,
            pytest.raises(Exception, match="No answer"),
        ):
            client.status()
    finally:
        process.kill()
        process.stderr.close()
