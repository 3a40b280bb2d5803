"""A running store whose copies are asked about later instants, after which the store is too."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from client_sdk import Client, Copies


def check_later(
    client: Client,
    copies: Copies,
    publish: Callable[[Client, int, int], None],
    check: Callable[[datetime], None],
    seconds: Sequence[float],
) -> None:
    """Publish rows with `publish(client, first, count)` and sync the copies. Then call `check` for
    instants these seconds later, and for the present after more rows were synced."""
    publish(client, 0, 12)
    time.sleep(0.8)
    publish(client, 12, 7)
    synced = copies.sync(client)
    assert synced.complete, [result.error for result in synced.values() if result.error]
    now = max(result for name in synced if (result := copies[name].state.now))
    time.sleep(max(seconds) + 0.1)
    for later in seconds:
        check(now + timedelta(seconds=later))
    publish(client, 19, 5)
    assert copies.sync(client).complete
    check(datetime.now().astimezone())
