"""psoup copy with --key-file: encrypted copies from the command line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from client_sdk import Copies
from psoup.cli import cli
from psoup.cli.connection import Connection
from tests.support.client_sdk.inside import InsideStore
from tests.support.engine.leftovers import leftovers

pytest.importorskip("sqlcipher3")

SECRET = "Annabella-Zyx"
KEY = bytes(range(32))


class Phone:
    """A file of copies with the commands for it, and a file with its key."""

    def __init__(self, store: InsideStore, folder: Path) -> None:
        self.store, self.folder = store, folder
        folder.mkdir()
        self.file, self.key = folder / "phone.db", folder.parent / "phone.key"
        self.key.write_text(KEY.hex() + "\n")

    def run(self, command: str, *arguments: str, key: bool = True, code: int = 0) -> Result:
        options = ["--key-file", str(self.key)] if key else []
        line = ["copy", command, str(self.file), *arguments, *options]
        done = CliRunner().invoke(cli, line, obj=Connection(transport=self.store.line))
        assert done.exit_code == code, done.output
        return done


@pytest.fixture
def phone(tmp_path: Path) -> Iterator[Phone]:
    store = InsideStore(tmp_path)
    store.client.define("CREATE STREAM people (id BIGINT, name TEXT) KEY (id)")
    store.client.publish("people", [{"id": 1, "name": SECRET}])
    yield Phone(store, tmp_path / "phone")
    store.close()


def test_copies_are_encrypted_from_the_beginning(phone: Phone) -> None:
    phone.run("keep", "people", "SELECT id, name FROM people")
    phone.run("sync")
    assert SECRET in phone.run("rows", "people").output
    assert not leftovers(phone.folder, SECRET)
    refused = phone.run("rows", "people", key=False, code=1)
    assert "encrypted" in refused.output and SECRET not in refused.output
    phone.key.write_bytes(bytes(32))
    assert "another key" in phone.run("status", code=1).output
    with Copies(phone.file, key=KEY) as copies:
        assert copies["people"].rows()


def test_a_plain_file_is_encrypted(phone: Phone) -> None:
    phone.run("keep", "people", "SELECT id, name FROM people", key=False)
    phone.run("sync", key=False)
    assert leftovers(phone.folder, SECRET)
    assert "give --key-file" in phone.run("encrypt", key=False, code=2).output
    phone.run("encrypt")
    assert not leftovers(phone.folder, SECRET)
    assert SECRET in phone.run("rows", "people").output
    line = ["copy", "rows", str(phone.file), "people"]
    done = CliRunner().invoke(cli, line, env={"PSOUP_COPY_KEY_FILE": str(phone.key)})
    assert SECRET in done.output, done.output


@pytest.mark.parametrize("content", [b"", b"short", b"zz" * 32, b"ab" * 31, bytes(33)])
def test_files_that_have_no_key(phone: Phone, content: bytes) -> None:
    phone.key.write_bytes(content)
    refused = phone.run("keep", "people", "SELECT 1", code=2)
    assert "32 bytes" in refused.output and not phone.file.exists()
    phone.key.unlink()
    assert "No such file" in phone.run("keep", "people", "SELECT 1", code=2).output
