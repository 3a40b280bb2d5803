"""A running store whose copies are asked about later instants, after which the store is too."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path

from client_sdk import Client, Copies
from tests.support.server.process import ServerProcess


@contextmanager
def running_store(folder: Path, *streams: str) -> Iterator[Client]:
    """A client of a server whose store has some streams."""
    server = ServerProcess(folder)
    try:
        with Client(server.address) as client:
            for sql in streams:
                client.define(sql)
            yield client
    finally:
        server.stop()


def check_later(
    client: Client,
    copies: Copies,
    publish: Callable[[Client, int, int], None],
    check: Callable[[datetime], None],
    seconds: Sequence[float],
) -> None:
    """Publishes rows by their number and how many, and syncs the copies; then `check` is called for
    instants so many seconds later, and for the present once more has come and was synced."""
    publish(client, 0, 12)
    time.sleep(0.8)
    publish(client, 12, 7)
    synced = copies.sync(client)
    assert synced.complete, [one.error for one in synced.values() if one.error]
    now = max(one for name in synced if (one := copies[name].state.now))
    time.sleep(max(seconds) + 0.1)
    for later in seconds:
        check(now + timedelta(seconds=later))
    publish(client, 19, 5)
    assert copies.sync(client).complete
    check(datetime.now().astimezone())
