"""A server never answers from damage: it names the file, or computes, or is right all the same."""

from __future__ import annotations

import itertools
import random
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pyarrow as pa
import pytest
from click.testing import CliRunner

from psoup.cli import cli
from psoup.store import Store
from psoup.store.log.log import PROOF_SECONDS
from psoup.v1 import psoup_pb2 as pb
from tests.conftest import count_ids
from tests.damage import flip, flip_in, flip_in_column, named_files, tear_commit
from tests.damage.world import DAY, answers, make, trips
from tests.server.conftest import Start
from tests.support.server.process import ROOT, ServerProcess, detail

pytestmark = pytest.mark.usefixtures("counted_ids")

LOST = grpc.StatusCode.DATA_LOSS


@dataclass(frozen=True)
class SoundStore:
    """A store without damage, and what it answers. Each test damages a copy."""

    root: Path
    handles: list[bytes]
    answers: list[Any]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> SoundStore:
    folder = tmp_path_factory.mktemp("sound")
    with pytest.MonkeyPatch.context() as monkeypatch:
        count_ids(monkeypatch)
        handles = make(folder / "store")
    # The server gets a copy, too: it writes.
    shutil.copytree(folder / "store", folder / "served")
    server = ServerProcess(folder / "served")
    try:
        return SoundStore(folder / "store", handles, answers(server, handles))
    finally:
        server.stop()


@pytest.fixture
def handles(tmp_path: Path, sound: SoundStore) -> list[bytes]:
    shutil.copytree(sound.root, tmp_path / "store")
    return sound.handles


@pytest.fixture
def store(tmp_path: Path, handles: list[bytes]) -> Store:
    return Store.open(tmp_path / "store")


@pytest.fixture
def right(sound: SoundStore) -> list[Any]:
    """What the store answers while it is sound."""
    return sound.answers


def assert_lost(server: ServerProcess, handle: bytes, file: str, **fields: Any) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        server.invoke(handle, **fields)
    assert caught.value.code() == LOST and detail(caught.value).reason == "CORRUPT_STORE"
    assert file in str(caught.value.details())


def damaged_log_file(store: Store) -> Path:
    """The file of the last commit with rows of trips, damaged within its rows."""
    version = store.log.latest_version() - 1
    file = store.log.file(version)
    assert file is not None
    path = store.log.folder.path_of(file)
    flip_in_column(path, "payload")
    return path


def repaired(root: Path, *options: str) -> tuple[int, str]:
    run = CliRunner().invoke(cli, ["repair", str(root), *options])
    return run.exit_code, run.output


def test_a_damaged_file_of_rows_fails_the_answers_that_need_it(
    store: Store, handles: list[bytes], right: list[Any], start: Start
) -> None:
    damaged = named_files(store, "stems/1")[0]
    flip(damaged)
    server = start()
    for handle in handles[:1] + handles[2:3]:
        assert_lost(server, handle, damaged.name)
    assert answers(server, handles[1:2] + handles[3:]) == right[1:2] + right[3:]
    code, output = repaired(store.root)
    assert code == 1 and damaged.name in output


def test_a_gone_file_of_rows_is_named(store: Store, handles: list[bytes], start: Start) -> None:
    file = named_files(store, "stems/1")[0]
    file.unlink()
    assert_lost(start(), handles[0], file.name)


@pytest.mark.parametrize("table", ["matches", "coverage"])
@pytest.mark.parametrize("lost", [True, False])
def test_what_is_derived_is_computed_on_the_spot(
    store: Store, handles: list[bytes], right: list[Any], start: Start, table: str, lost: bool
) -> None:
    for path in named_files(store, table):
        path.unlink() if lost else flip(path)
    server = start()
    assert answers(server, handles) == right
    assert server.invoke(handles[0])[0].computed_rows or answers(server, handles) == right
    explained = server.stub.Explain(pb.ExplainRequest(handle=handles[0]))
    assert explained.stream_rows == 60


def test_damaged_rows_of_the_log_are_a_hole_until_they_are_given_up(
    store: Store, handles: list[bytes], right: list[Any], start: Start
) -> None:
    damaged = damaged_log_file(store)
    server = start()
    for handle in handles[:3]:
        assert_lost(server, handle, damaged.name)
    assert answers(server, handles[3:]) == right[3:]
    earlier = {"as_of": _instant(3)}
    assert server.invoke(handles[1], window="RANGE 10 MINUTES", **earlier)[0].row_count == 0
    (hole,) = server.stub.Status(pb.StatusRequest()).holes
    assert (hole.stream, hole.first_row_id, hole.row_count) == ("trips", 48, 12)
    assert hole.file == f"log/{damaged.name}" and not hole.accepted
    (refused,) = server.stub.Sync(pb.SyncRequest(items=[pb.SyncItem(handle=handles[0])]))
    assert damaged.name in refused.refused.message
    server.publish("trips", trips(6))

    assert repaired(store.root, "--accept")[0] == 0
    header, table = server.invoke(
        handles[0], least_position=server.publish("trips", trips(7)).position
    )
    assert any("rows 48 to 59 of stream trips" in note for note in header.notes)
    ids = table["row_id"].to_pylist()
    assert not set(ids) & set(range(48, 60)) and {row["row_id"] for row in right[0]} - set(ids)
    assert repaired(store.root)[0] == 0


def test_keyed_streams_rows_windows_and_refresh_need_all_rows(
    store: Store, handles: list[bytes], start: Start
) -> None:
    damaged = damaged_log_file(store)
    server = start()
    assert_lost(server, handles[1], damaged.name, window="ROWS 1")
    refreshed = server.register("SELECT place FROM places REFRESH ON trips").handle
    assert_lost(server, refreshed, damaged.name)


def _instant(hours: int) -> Any:
    from google.protobuf.timestamp_pb2 import Timestamp

    moment = Timestamp()
    moment.FromDatetime(DAY)
    moment.seconds += 3600 * hours
    return moment


def cannot_start(root: Path) -> str:
    command = [sys.executable, "-m", "psoup.server", "--store", str(root), "--port", "0"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert ended.returncode == 1, ended
    return ended.stderr


def test_a_damaged_commit_of_the_log_stops_a_server_with_its_name(store: Store) -> None:
    commit = store.log.folder.log / f"{store.log.latest_version() - 1:020d}.json"
    flip(commit)
    errors = cannot_start(store.root)
    assert commit.name in errors and "psoup repair" in errors


def test_running_servers_acknowledge_nothing_over_a_hole(start: Start, tmp_path: Path) -> None:
    servers = [start(), start()]
    servers[0].define("CREATE STREAM s (a BIGINT)")
    sequences = itertools.count(1)

    def publish(server: ServerProcess) -> None:
        server.publish("s", pa.table({"a": [next(sequences)]}))

    for server in servers * 7:
        publish(server)
    path = tmp_path / "store" / "log" / "_delta_log" / f"{7:020d}.json"
    content = path.read_bytes()
    path.unlink()
    time.sleep(PROOF_SECONDS)
    for server in servers:
        with pytest.raises(grpc.RpcError) as refused:
            publish(server)
        assert refused.value.code() == LOST and path.name in str(refused.value.details())
    path.write_bytes(content)
    for server in servers:
        publish(server)


def test_a_gone_file_of_the_log_is_damage_and_not_trimming(store: Store, start: Start) -> None:
    version = store.log.latest_version() - 1
    file = store.log.file(version)
    assert file is not None
    store.log.folder.path_of(file).unlink()
    errors = cannot_start(store.root)
    assert f"version {version} of the log can't be read" in errors and file.path in errors


@pytest.mark.parametrize("name", ["matches", "coverage", "closures"])
def test_a_torn_commit_of_what_is_derived_stops_nothing(
    store: Store, handles: list[bytes], right: list[Any], start: Start, name: str
) -> None:
    tear_commit(store, name)
    assert answers(start(), handles) == right


def test_damaged_definitions_stop_a_server_with_their_file(tmp_path: Path, start: Start) -> None:
    server = start()
    server.define("CREATE STREAM s (a BIGINT)")
    server.stop()
    store = Store.open(tmp_path / "store")
    file = store.log.file(store.log.latest_version())
    assert file is not None
    flip_in(store.log.folder.path_of(file), b"BIGINT")
    assert file.path in cannot_start(store.root)


@pytest.mark.parametrize("where", ["commit", "catalog", "rows", "epoch"])
def test_restoring_a_damaged_file_suffices(
    store: Store, handles: list[bytes], right: list[Any], start: Start, where: str
) -> None:
    match where:
        case "commit":
            path = store.log.folder.log / f"{store.log.latest_version():020d}.json"
        case "catalog":
            path = named_files(store, "catalog")[0]
        case "rows":
            path = named_files(store, "stems/2")[1]
        case _:
            files = store.epochs.folder.snapshot().files.values()
            newest = max(files, key=lambda file: file.high["epoch"])
            path = store.epochs.folder.path_of(newest)
    content = path.read_bytes()
    flip(path)
    code, output = repaired(store.root)
    assert code == 1 and path.name in output
    path.write_bytes(content)
    assert repaired(store.root)[0] == 0
    assert answers(start(), handles) == right


def survives(root: Path, handles: list[bytes], right: list[Any], path: Path) -> str:
    """What a server makes of a store in which this file has a flipped bit; never a wrong answer."""
    try:
        server = ServerProcess(root)
    except AssertionError as refused:
        assert "can't start" in str(refused) and path.name.split(".")[0] in str(refused), refused
        return "refused"
    outcomes = set()
    try:
        for handle, expected in zip(handles, right, strict=True):
            try:
                assert server.invoke(handle)[1].to_pylist() == expected, path
                outcomes.add("right")
            except grpc.RpcError as error:
                assert error.code() == LOST, (path, error)
                assert path.name in str(error.details()), (path, error)
                outcomes.add("lost")
    finally:
        server.kill()
    return " ".join(sorted(outcomes))


def flipped(root: Path, handles: list[bytes], right: list[Any], seed: int, count: int) -> set[str]:
    """The outcomes of so many single flips anywhere in a store."""
    dice, outcomes = random.Random(seed), set()
    files = sorted(path for path in root.rglob("*") if path.is_file() and path.suffix != ".key")
    for number in range(count):
        copy = root.parent / f"copy{number}" / "store"
        shutil.copytree(root, copy)
        path = copy / dice.choice(files).relative_to(root)
        if size := path.stat().st_size:
            flip(path, dice.randrange(8 * size))
            outcomes.add(survives(copy, handles, right, path))
        shutil.rmtree(copy.parent)
    return outcomes


def test_flipped_bits_are_never_answered_from(
    store: Store, handles: list[bytes], right: list[Any]
) -> None:
    assert flipped(store.root, handles, right, 11, 10) <= {
        "right", "lost", "lost right", "refused"
    }  # fmt: skip


@pytest.mark.soak
def test_flipped_bits_are_never_answered_from_at_length(
    store: Store, handles: list[bytes], right: list[Any]
) -> None:
    flipped(store.root, handles, right, 12, 400)
