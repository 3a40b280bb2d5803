"""Encrypted files: no row is readable, a wrong key is told apart from damage, keys are replaced."""

from __future__ import annotations

import random
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from client_sdk import Copies, CopyError, FileBusy, FileDamaged, WrongKey
from client_sdk.copies._file.encryption import sidecar_of
from tests.client_sdk.copies.rooms import HOT, ROOMS
from tests.support.client_sdk.inside import InsideStore
from tests.support.lengths import scaled

pytest.importorskip("sqlcipher3")

SECRET = "a room that nobody may read"
KEY, OTHER_KEY = bytes(range(32)), bytes(range(1, 33))
ROOT = Path(__file__).parents[3]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "phone.db"


@pytest.fixture
def rooms_store(store: InsideStore) -> InsideStore:
    store.client.define(ROOMS)
    rows = [{"room": f"{SECRET} {number}", "temp": 99} for number in range(200)]
    store.client.publish("rooms", rows)
    return store


def _fill(store: InsideStore, path: Path, key: bytes | None = KEY) -> None:
    with Copies(path, clock=store.now, key=key) as copies:
        copies.keep("hot", HOT, changes=True, edits=True)
        copies.sync(store.client)
        copies.publish("rooms", [{"room": f"{SECRET} queued", "temp": 90}])


def _content(path: Path) -> bytes:
    return b"".join(file.read_bytes() for file in path.parent.glob(f"{path.name}*"))


def test_no_row_is_in_the_files(
    rooms_store: InsideStore, path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with Copies(path, clock=rooms_store.now, key=lambda: KEY) as copies:
        copies.keep("hot", HOT, changes=True, edits=True)
        copies.sync(rooms_store.client)
        copies.publish("rooms", [{"room": f"{SECRET} queued", "temp": 90}])
        assert len(copies["hot"]) == 201
        # The log is there while the file is open, and is encrypted, too.
        assert Path(f"{path}-wal").stat().st_size
        content = _content(path)
        for text in (SECRET, "SELECT", "hot", "_psoup_copies"):
            assert text.encode() not in content
        assert copies.query("SELECT count(*) AS n FROM hot")[0]["n"] == 201
    assert SECRET.encode() not in _content(path)
    with Copies(path, clock=rooms_store.now, key=KEY) as copies:
        assert copies.sync(rooms_store.client).sent.rows == 1 and len(copies["hot"]) == 201
        assert copies.verify()["hot"].sound
    with pytest.raises(WrongKey):
        Copies(path, key=OTHER_KEY)
    assert capfd.readouterr().err == ""


def test_a_wrong_key_is_no_damage(rooms_store: InsideStore, path: Path) -> None:
    _fill(rooms_store, path)
    before = path.read_bytes()
    with pytest.raises(WrongKey, match="another key"):
        Copies(path, key=OTHER_KEY)
    with pytest.raises(WrongKey, match="open it with its key"):
        Copies(path)
    for key in (OTHER_KEY, None):
        with pytest.raises(WrongKey):
            Copies.recover(path, key)
    # Without the sidecar it can't be said which of the two it is.
    sidecar_of(path).unlink()
    with pytest.raises(WrongKey, match="or is damaged"):
        Copies(path, key=OTHER_KEY)
    assert path.read_bytes() == before
    with Copies(path, key=KEY) as copies:
        assert len(copies["hot"]) == 201
    assert sidecar_of(path).exists()
    with pytest.raises(ValueError, match="32 random bytes"):
        Copies(path, key=b"too short")


def test_a_plain_file_is_not_opened_with_a_key(rooms_store: InsideStore, path: Path) -> None:
    _fill(rooms_store, path, key=None)
    with pytest.raises(WrongKey, match="not encrypted"):
        Copies(path, key=KEY)
    with Copies(path) as copies:
        assert len(copies["hot"]) == 201


@pytest.mark.parametrize("place", ["first", "middle"])
def test_a_damaged_page_is_found_and_the_rest_recovered(
    rooms_store: InsideStore, path: Path, place: str
) -> None:
    _fill(rooms_store, path)
    content = bytearray(path.read_bytes())
    content[100 if place == "first" else len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(FileDamaged), Copies(path, clock=rooms_store.now, key=KEY) as copies:
        copies.verify()
    if place == "first":
        return
    assert Copies.recover(path, KEY).damaged.exists()
    assert SECRET.encode() not in _content(path)
    with Copies(path, clock=rooms_store.now, key=KEY) as copies:
        copies.keep("hot", HOT)
        assert copies.sync(rooms_store.client).complete and len(copies["hot"]) >= 200


def test_a_plain_file_is_encrypted(rooms_store: InsideStore, path: Path) -> None:
    _fill(rooms_store, path, key=None)
    assert SECRET.encode() in _content(path)
    with Copies(path), pytest.raises(CopyError, match="locked"):
        Copies.encrypt(path, KEY)
    # What an attempt left that was killed is in no way.
    Path(f"{path}.encrypting").write_bytes(b"x" * 5000)
    Copies.encrypt(path, KEY)
    assert SECRET.encode() not in _content(path)
    with pytest.raises(CopyError, match="encrypted already"):
        Copies.encrypt(path, OTHER_KEY)
    with Copies(path, clock=rooms_store.now, key=KEY) as copies:
        assert len(copies["hot"]) == 201 and copies.queued.rows == 1
        assert copies.sync(rooms_store.client).complete and copies.verify()["hot"].sound


def test_another_key(rooms_store: InsideStore, path: Path) -> None:
    _fill(rooms_store, path)
    with Copies(path, clock=rooms_store.now, key=KEY) as copies:
        with Copies(path, key=KEY), pytest.raises(FileBusy):
            copies.rekey(OTHER_KEY)
        copies.rekey(OTHER_KEY)
        assert len(copies["hot"]) == 201 and copies.sync(rooms_store.client).complete
    with pytest.raises(WrongKey):
        Copies(path, key=KEY)
    with Copies(path, key=OTHER_KEY) as copies:
        assert copies.verify()["hot"].sound
    with Copies.in_memory() as memory, pytest.raises(ValueError, match="not encrypted"):
        memory.rekey(KEY)


_REKEY = """
import sys
from client_sdk import Copies
path, old, new = sys.argv[1], *map(bytes.fromhex, sys.argv[2:])
copies = Copies(path, key=old)
print("ready", flush=True)
copies.rekey(new)
copies.close()
print("done", flush=True)
"""


@pytest.fixture
def large(rooms_store: InsideStore, path: Path) -> Path:
    """A file whose key takes a while to replace: most of it is a batch that waits."""
    with Copies(path, clock=rooms_store.now, key=KEY) as copies:
        copies.keep("hot", HOT)
        copies.sync(rooms_store.client)
        rows = [{"room": f"{number} {'x' * 1000}", "temp": 90} for number in range(10_000)]
        copies.publish("rooms", rows)
    return path


def test_killed_while_the_key_is_replaced(large: Path) -> None:
    """The old key or the new one opens the file, with all rows, whenever the process is killed."""
    chance, key = random.Random(1), KEY
    for number in range(scaled(5)):
        new = secrets.token_bytes(32)
        command = [sys.executable, "-c", _REKEY, str(large), key.hex(), new.hex()]
        child = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None and child.stdout.readline() == "ready\n"
        time.sleep(chance.uniform(0, 0.3))
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
        opened = [candidate for candidate in (key, new) if _opens(large, candidate)]
        assert len(opened) == 1, number
        (key,) = opened
        with Copies(large, key=key) as copies:
            assert copies.verify()["hot"].sound and copies.queued.rows == 10_000


def _opens(path: Path, key: bytes) -> bool:
    try:
        Copies(path, key=key).close()
    except WrongKey:
        return False
    return True
