"""A store of one stream, and a file with a queue."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from client_sdk.copies._file.file import CopyFile
from client_sdk.copies._queue.outbox import Outbox
from tests.support.client_sdk.flaky_store import SQL, FlakyStore, client_of


@pytest.fixture
def store() -> FlakyStore:
    store = FlakyStore()
    client_of(store).define(SQL)
    return store


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[[], Outbox]]:
    """Return a function that opens the test's file, as often as it is called."""
    files: list[CopyFile] = []

    def open_outbox() -> Outbox:
        files.append(CopyFile(tmp_path / "phone.db"))
        return Outbox(files[-1])

    yield open_outbox
    for file in files:
        file.close()
