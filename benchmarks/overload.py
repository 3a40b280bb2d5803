"""Overload: what another tenant notices while one does its worst, and how large the server gets.

An attack is what some callers do at once, again and again. A client of another tenant
makes small calls one after the other; beside each is what the same call took on a quiet server.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pyarrow as pa

from benchmarks.memory import resident
from benchmarks.report import Report
from benchmarks.timing import Times, timed
from client_sdk import Client
from psoup.v1 import psoup_pb2 as pb
from psoup.v1.psoup_pb2_grpc import PsoupStub
from tests.support.system.processes import RunningStore

TENANT = "heavy"
SECONDS = 3.0
_ROWS, _LONG_TEXTS = 200_000, 200


@dataclass(frozen=True)
class Attack:
    """`turn` is one call of one of the callers, with a number that no other call has; what it
    fails with is left to it."""

    name: str
    callers: int
    turn: Callable[[Any, int], None]


def _ask(where: str) -> Callable[[Any, int], None]:
    """An Ask that gives up after a few seconds; no two have the same predicate."""

    def turn(stub: Any, number: int) -> None:
        sql = f"SELECT count(*) AS n FROM s WHERE {where} OR t = 'number {number}'"
        list(stub.Ask(pb.AskRequest(tenant=TENANT, sql=sql), timeout=SECONDS))

    return turn


def _bombs(stub: Any, number: int) -> None:
    """A batch that would be 240 MB, and one after it that is just not too large."""
    for megabytes in (240, 60):
        with contextlib.suppress(grpc.RpcError):
            arrow = _packed(megabytes)
            stub.Publish(pb.PublishRequest(tenant=TENANT, stream="bombs", arrow=arrow))


@functools.cache
def _packed(megabytes: int) -> bytes:
    """Return texts of many megabytes, compressed to a few kilobytes."""
    rows = pa.table({"t": pa.repeat("x" * 1_000_000, megabytes)})
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, rows.schema, options=options) as writer:
        writer.write_table(rows)
    return bytes(sink.getvalue())


def _flood(stub: Any, number: int) -> None:
    """Ten thousand calls in one moment."""
    calls = [stub.ListStreams.future(pb.ListStreamsRequest()) for _ in range(10_000)]
    for call in calls:
        call.code()


_ORS = " OR ".join(f"t LIKE '%{number}%b%'" for number in range(2_500))
ATTACKS = (
    Attack("8 callers, LIKE of 40 KB", 8, _ask(f"t LIKE '{'%a' * 20_000}b'")),
    Attack("8 callers, 2,500 ORs of LIKE", 8, _ask(_ORS)),
    Attack("8 callers, texts of 64 KB that are refused", 8, _ask("(a" + "+1" * 32_000 + ") > 0")),
    Attack("4 callers, batches of kB that unpack to 60 and 240 MB", 4, _bombs),
    Attack("10,000 calls at once", 1, _flood),
)


def run(folder: Path, quick: bool) -> Report:
    seconds = 5.0 if quick else 30.0
    setting = f"{_ROWS:,} rows no engine has matched, {seconds:.0f} s each; calls of another tenant"
    report = Report("overload", setting)
    with RunningStore(folder) as store:
        target = store.start_server()
        light = _Light(target)
        _prepare(target)
        light.measure(1.0)
        quiet = light.measure(seconds)
        _add(report, "nothing else", quiet, quiet)
        for attack in ATTACKS:
            with _attacked(target, attack), _peak(store.servers[0].pid) as peak:
                attacked = light.measure(seconds)
            _add(report, attack.name, attacked, quiet)
            after, _ = timed(light.answer)
            report.add(f"{attack.name}: the first answer after it", after * 1e3, "ms")
            report.add(f"{attack.name}: the server's peak", max(peak) / 2**20, "MB")
        ended, _ = timed(lambda: _stopped_while(store, target))
        report.add("SIGTERM amid 2,500 ORs of LIKE until the end", ended, "s")
    return report


def _prepare(target: str) -> None:
    with Client(target, tenant=TENANT) as client:
        client.define("CREATE STREAM s (a BIGINT, t TEXT)")
        client.define("CREATE STREAM bombs (t TEXT)")
        texts = ["a" * 45_000] * _LONG_TEXTS
        client.publish("s", pa.table({"a": range(_LONG_TEXTS), "t": texts}))
        for first in range(0, _ROWS, 50_000):
            numbers = range(first, first + 50_000)
            client.publish("s", pa.table({"a": numbers, "t": [f"text {n}" for n in numbers]}))


# ---- the other tenant


class _Light:
    """Small calls one after the other."""

    def __init__(self, target: str) -> None:
        self._client = Client(target, tenant="light", timeout=120)
        self._client.define("CREATE STREAM s (a BIGINT)")
        self._client.publish("s", pa.table({"a": range(1_000)}))
        self._handle = self._client.register("SELECT a FROM s WHERE a < 100").handle

    def answer(self) -> Any:
        return self._client.invoke(self._handle)

    def measure(self, seconds: float) -> dict[str, Times]:
        calls: Mapping[str, Callable[[], Any]] = {
            "status": self._client.status,
            "publish of a row": lambda: self._client.publish("s", pa.table({"a": [5_000]})),
            "invoke": self.answer,
            "ask": lambda: self._client.ask("SELECT count(*) AS n FROM s WHERE a < 50 ROWS 100"),
        }
        seconds_by_call: dict[str, list[float]] = {name: [] for name in calls}
        until = time.monotonic() + seconds
        while time.monotonic() < until or not seconds_by_call["ask"]:
            for name, call in calls.items():
                seconds_by_call[name].append(timed(call)[0])
        return {name: Times(samples) for name, samples in seconds_by_call.items()}


def _add(
    report: Report, during: str, measured: Mapping[str, Times], quiet: Mapping[str, Times]
) -> None:
    for name, times in measured.items():
        what = f"{during}: {name}, p99 of {len(times.seconds):,}"
        beside = (
            {} if measured is quiet else {"ratio": times.p99 / quiet[name].p99, "beside": "quiet"}
        )
        report.add(what, times.p99 * 1e3, "ms", **beside)


# ---- the one that does its worst


@contextlib.contextmanager
def _attacked(target: str, attack: Attack) -> Iterator[None]:
    ending = threading.Event()

    def caller(number: int) -> None:
        with grpc.insecure_channel(target, [("grpc.use_local_subchannel_pool", 1)]) as channel:
            stub = PsoupStub(channel)
            while not ending.is_set():
                with contextlib.suppress(grpc.RpcError):
                    attack.turn(stub, number)
                number += attack.callers

    threads = [
        threading.Thread(target=caller, args=[n], daemon=True) for n in range(attack.callers)
    ]
    for thread in threads:
        thread.start()
    time.sleep(1.0)
    try:
        yield
    finally:
        ending.set()
        for thread in threads:
            thread.join()


@contextlib.contextmanager
def _peak(pid: int) -> Iterator[Sequence[int]]:
    """Resident bytes of a process, ten times a second."""
    ending, samples = threading.Event(), [resident([pid])]

    def look() -> None:
        while not ending.wait(0.1):
            samples.append(resident([pid]))

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield samples
    finally:
        ending.set()
        thread.join()


def _stopped_while(store: RunningStore, target: str) -> None:
    with _attacked(target, ATTACKS[1]):
        assert store.servers[0].stop() == 0
