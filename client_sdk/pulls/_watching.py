"""A pull that stays connected: it is made again as soon as there is something new."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from client_sdk._client import Client
from client_sdk._exceptions import PsoupError
from client_sdk.copies import Copies
from client_sdk.pulls._deliver import PullReport
from client_sdk.pulls._pull import Pull
from client_sdk.pulls._puller import hopeless
from client_sdk.pulls._pulling import pull_many

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 1.0, 3600.0


def watch_pull(
    client: Client, pull: Pull, *, pause: Callable[[float], None] = time.sleep
) -> Iterator[PullReport]:
    """Make a pull now, and again whenever its answer has changed, for as long as you iterate.

    Yield a report of each. After a failure it is made again, after pauses that double up to an
    hour. The last report is of a failure that no repeat helps.
    """
    seconds = FIRST_PAUSE_SECONDS
    while True:
        (report,) = pull_many(client, [pull])
        yield report
        if report.error is not None:
            if hopeless(report.error):
                return
            pause(seconds)
            seconds = min(2 * seconds, LONGEST_PAUSE_SECONDS)
            continue
        seconds = FIRST_PAUSE_SECONDS
        try:
            _wait_for_news(client, pull)
        except PsoupError:
            # The next pull reports what is wrong.
            pause(FIRST_PAUSE_SECONDS)


def _wait_for_news(client: Client, pull: Pull) -> None:
    """Return when the copy has changed. What it received is in it, for the next pull to write."""
    with Copies(pull.state_path, key=pull.state_key()) as copies:
        rounds = copies.watch(client, only=[pull.name])
        try:
            for synced in rounds:
                if pull.name in synced.changed or synced[pull.name].error is not None:
                    return
        finally:
            rounds.close()
