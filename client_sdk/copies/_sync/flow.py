"""A sync as a flow: one call for all copies, and further ones for those that were cut, refused or
wrong."""

from __future__ import annotations

from dataclasses import replace

from client_sdk._exceptions import PsoupError, ServerError, Timeout
from client_sdk._grpc.effects import Attempts, Flow, Hear, Listen, Pause, Repeat
from client_sdk._session import Session
from client_sdk.copies._file.clock import DeviceClock
from client_sdk.copies._file.file import CopyFile
from client_sdk.copies._sync.items import Item, Step
from client_sdk.copies._sync.opening import (
    MOST_ITEMS,
    SyncOptions,
    forget_position,
    learn_streams,
    least_of,
    meet,
    open_items,
    prepare_item,
    register,
)
from client_sdk.copies._sync.result import Synced
from client_sdk.copies._sync.transfer import promote

# The bytes of gRPC's framing of a message.
_FRAME_BYTES = 5


class SyncRun:
    """One sync. The caller holds the lock of the file."""

    def __init__(
        self, file: CopyFile, session: Session, options: SyncOptions, clock: DeviceClock
    ) -> None:
        self._file = file
        self._clock = clock
        self._session = session
        self._options = options
        self._remaining_bytes = options.byte_budget
        self._attempts = Attempts(session.retry, Repeat.READ, session.timeout)
        self._progress = False
        self._received = 0
        self._asked = b""
        self._lags = self._confirming = False

    def flow(self) -> Flow[Synced]:
        self._items = open_items(self._file, self._options, self._clock)
        for item in self._items:
            # Noted before any call: only a transfer of an earlier sync ends at an older position.
            item.resumed = item.staged
        yield from self._register()
        yield from self._rounds()
        if self._lags and self._has_budget:
            # Another round trip for own edits whose acknowledgement this session has not seen.
            self._confirming = True
            for item in self._live():
                item.ended = item.ended and not item.declaration.edits
            yield from self._rounds()
        # The byte budget is for the copies; descriptions of streams can wait for another sync.
        if self._has_budget:
            yield from learn_streams(self._file, self._session, self._items)
        return self._synced()

    @property
    def _has_budget(self) -> bool:
        return self._remaining_bytes is None or self._remaining_bytes > 0

    def _rounds(self) -> Flow[None]:
        """Make calls until nothing is due, or the byte budget is used up."""
        while due := self._due():
            try:
                yield from self._call(due)
            except PsoupError as error:
                yield from self._after(error)
                for item in due:
                    item.reopen()
            else:
                yield from self._register()
                if self._options.one_position and all(item.ended for item in self._live()):
                    self._promote()
                    # With one position, `_due` returns all live items for ever, so the end is found
                    # here.
                    if not any(item.due for item in self._live()):
                        break
            if not self._has_budget:
                break

    def _live(self) -> list[Item]:
        return [item for item in self._items if item.error is None]

    def _promote(self) -> None:
        """Make the answers of one position visible."""
        live = self._live()
        promote(self._file, [item.declaration.copy_id for item in live], self._clock)
        if any(item.replaces_everything for item in live):
            self._file.scrub()

    def _due(self) -> list[Item]:
        """Return the items to request. With one position all of them, until all have ended in one
        call.
        """
        if self._options.one_position:
            return self._live()
        return [item for item in self._items if item.due][:MOST_ITEMS]

    def _synced(self) -> Synced:
        changes = {item.name: item.change for item in self._items}
        if self._options.one_position and any(item.due for item in self._live()):
            for item in self._live():
                changes[item.name] = replace(changes[item.name], status="incomplete")
        return Synced(changes, received_bytes=self._received)

    def _register(self) -> Flow[None]:
        yield from meet(self._file, self._session, self._items)
        for item in self._items:
            if item.must_register:
                yield from register(self._file, self._session, item)
            yield from prepare_item(self._file, self._session, item)

    # ---- one call

    def _call(self, due: list[Item]) -> Flow[None]:
        self._progress = False
        least = least_of(self._file, self._session, confirming=self._confirming)
        self._lags = least.lags and any(item.declaration.edits for item in self._live())
        for item in due:
            item.ask(least.included)
        budget = self._remaining_bytes or 0
        request = self._options.request(self._session, due, budget, least.position)
        self._asked = request.least_position
        yield Listen("Sync", request, self._attempts.remaining())
        # Items whose further parts in this call are ignored: they were refused, or are to be
        # requested in another way.
        skipped: set[int] = set()
        moved = False
        while (part := (yield Hear())) is not None:
            moved = True
            size = part.ByteSize() + _FRAME_BYTES
            self._received += size
            if self._remaining_bytes is not None:
                self._remaining_bytes -= size
            if part.item in skipped:
                continue
            step = due[part.item].take(part)
            if step in (Step.STAGED, Step.ENDED):
                self._progress = True
                self._attempts.reset()
            if step in (Step.WRONG, Step.REFUSED):
                skipped.add(part.item)
        for number in skipped:
            if due[number].due:
                due[number].reopen()
        # Without this error, a server that sends nothing would be asked again without a pause.
        if self._remaining_bytes is None and not moved:
            raise ServerError("the server ended a sync with nothing in it", code="ABORTED")

    def _after(self, error: PsoupError) -> Flow[None]:
        """Wait after an error. Raises it if the call is not to be repeated."""
        if forget_position(self._file, self._session, error, self._asked):
            return
        # The timeout limits the time without progress, not a transfer: staged parts are not sent
        # again.
        if isinstance(error, Timeout) and self._progress:
            self._attempts.reset()
            return
        yield Pause(self._attempts.pause_after(error))
