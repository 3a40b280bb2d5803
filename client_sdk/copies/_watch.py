"""Watch as a flow: rounds of Sync on one call, taken up again from the tokens when it is cut."""

from __future__ import annotations

from datetime import timedelta

from client_sdk._exceptions import PsoupError, Timeout
from client_sdk._grpc.effects import Attempts, Flow, Give, Hear, Listen, Pause, Repeat
from client_sdk._session import Session
from client_sdk._wire.values import duration
from client_sdk.copies._apply import Overtaken
from client_sdk.copies._file import CopyFile
from client_sdk.copies._flow import (
    MOST_ITEMS,
    Wish,
    learn_streams,
    meet,
    open_items,
    prepare_item,
    register,
)
from client_sdk.copies._items import Item, Step
from client_sdk.copies._models import Synced
from psoup.v1 import psoup_pb2 as pb

# A call lives so long; then it is made anew, so that a line that is dead is noticed.
_CALL_SECONDS = 1800.0


class WatchRun:
    """Gives a Synced for each copy that came to an end, or was refused; ends when none is left.

    It holds no lock: where another sync has moved a copy on, it goes on from there.
    """

    def __init__(
        self, file: CopyFile, session: Session, wish: Wish, every: timedelta | None
    ) -> None:
        self._file = file
        self._session = session
        self._wish = wish
        self._every = every
        self._attempts = Attempts(session.retry, Repeat.READ, None)
        self._heard = False

    def flow(self) -> Flow[None]:
        self._items = open_items(self._file, self._wish)
        if len(self._items) > MOST_ITEMS:
            raise ValueError(f"a watch is of {MOST_ITEMS:,} copies at most")
        while True:
            yield from self._register()
            live = [item for item in self._items if item.error is None]
            if not live:
                return
            yield from learn_streams(self._file, self._session, live)
            try:
                yield from self._call(live)
                yield Pause(self._session.retry.pause(1))
            except Overtaken:
                pass
            except PsoupError as error:
                if not (isinstance(error, Timeout) and self._heard):
                    yield Pause(self._attempts.pause_after(error))
            for item in live:
                if item.error is None:
                    item.reopen()

    def _register(self) -> Flow[None]:
        yield from meet(self._file, self._session, self._items)
        for item in self._items:
            if item.must_register:
                yield from register(self._file, self._session, item)
                if item.error is not None:
                    yield Give(_told(item))
            if item.error is None:
                yield from prepare_item(self._file, self._session, item)
                if item.error is not None:
                    yield Give(_told(item))

    def _call(self, live: list[Item]) -> Flow[None]:
        """Until the call ends, or has to be made anew."""
        request = pb.WatchRequest(
            sync=self._wish.request(self._session, live, 0),
            every=None if self._every is None else duration(self._every),
        )
        self._heard = False
        yield Listen("Watch", request, _CALL_SECONDS)
        while (part := (yield Hear())) is not None:
            self._heard = True
            self._attempts.reset()
            if part.HasField("beat"):
                continue
            item = live[part.item]
            step = item.take(part)
            if step is Step.ENDED:
                yield Give(_told(item))
                item.next_round()
            elif step is Step.WRONG or item.must_register:
                return
            elif step is Step.REFUSED:
                yield Give(_told(item))


def _told(item: Item) -> Synced:
    return Synced({item.name: item.change})
