"""Items: one copy in a sync, what is requested for it, and how received parts change it."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field, replace
from typing import Literal

from client_sdk._exceptions import PsoupError, ServerError, UnknownCopy
from client_sdk._grpc.channels import detail_from, error_for
from client_sdk._session import HANDLE_GONE
from client_sdk.copies._changes.reported import EVERY_POINT, RESETS
from client_sdk.copies._file import catalog, tables
from client_sdk.copies._file.catalog import Record
from client_sdk.copies._file.clock import DeviceClock
from client_sdk.copies._file.file import CopyFile
from client_sdk.copies._file.records import Declaration, Shape, end_micros
from client_sdk.copies._overlay import own_rows
from client_sdk.copies._overlay.learning import needs_keys
from client_sdk.copies._query.base_rows import sync_window
from client_sdk.copies._sync.received import GARBLED, arrow_rows, ids_of, typed_rows
from client_sdk.copies._sync.transfer import (
    Basis,
    Ending,
    Inbox,
    Mismatch,
    drop_stage,
    finish,
    forget_answer,
    forget_query,
    reason_name,
    stage,
)
from client_sdk.copies._sync.verify import NO_REPAIR, WHOLE, Repair, compare, is_due, verify
from psoup.v1 import psoup_pb2 as pb

# The names of gRPC's status codes, by the number that a refusal carries.
_CODES = (
    *("OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND"),
    *("ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION"),
    *("ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"),
    "UNAUTHENTICATED",
)


class Step(enum.Enum):
    """What a received part has led to."""

    HELD = "it waits for the parts that follow"
    STAGED = "the parts so far are in the file"
    ENDED = "the copy is the answer of the store, or of a refresh point"
    REFUSED = "the store refused the item"
    WRONG = "count or digest was wrong; the item is requested in another way"


@dataclass
class Item:
    """One copy in a sync. `declaration` and `basis` are those of the file when it was last read.

    `verified` is True if every row was read in this round; `repair` is what that showed to be
    necessary. `replaced` is True if the registration has another query since. `resumed` is True if
    an earlier sync began the transfer: its end lacks what the caller has written since. Own rows up
    to the id `included`, if acknowledged, are in what the call sends, and those up to `covered` in
    the transfer under way. `refusal` says why own edits are not shown.
    """

    file: CopyFile
    declaration: Declaration
    hidden: bool
    clock: DeviceClock
    basis: Basis = (b"", b"")
    shape: Shape | None = None
    repair: Repair = NO_REPAIR
    inbox: Inbox = field(default_factory=Inbox)
    ended: bool = False
    error: PsoupError | None = None
    registered: bool = False
    verified: bool = False
    attempts: int = 0
    whole: bool = False
    reason: str = ""
    replaced: bool = False
    resumed: bool = False
    rows: int = 0
    removed: int = 0
    repaired: int = 0
    included: int | None = None
    covered: int | None = None
    refusal: PsoupError | None = None

    @classmethod
    def open(cls, file: CopyFile, record: Record, hidden: bool, clock: DeviceClock) -> Item:
        item = cls(file, record.declaration, hidden, clock)
        item.reopen()
        return item

    @property
    def name(self) -> str:
        return self.declaration.name

    @property
    def staged(self) -> bool:
        """True if a part of the next answer is in the file."""
        return bool(self.basis[1])

    @property
    def due(self) -> bool:
        """True if the item is to be requested, perhaps once more after a resumed transfer."""
        return self.error is None and (not self.ended or self.resumed)

    @property
    def must_register(self) -> bool:
        """True if the query has to be registered, perhaps again."""
        if not self.declaration.sql or self.registered:
            return False
        return self.is_gone if self.error is not None else not self.declaration.handle

    @property
    def is_gone(self) -> bool:
        """True if the registration does not exist any more."""
        return self.error is not None and self.error.reason in HANDLE_GONE

    @property
    def replaces_everything(self) -> bool:
        """True if nothing of the answer before may stay in the file."""
        return self.whole and self.reason in RESETS

    @property
    def change(self) -> Change:
        counts = self.whole, self.reason, self.rows, self.removed, self.repaired
        error = self.error or self.refusal
        if error is not None:
            return Change("refused", *counts, error=error)
        changed = self.whole or self.rows or self.removed
        status: Status = "changed" if changed else "unchanged"
        return Change("incomplete" if self.due else status, *counts)

    # ---- asking

    def ask(self, included: int | None) -> None:
        """Begin a call. After the end of a resumed transfer, it asks for what the store has now."""
        self.resumed = self.resumed and not self.ended
        self.ended = False
        self.include(included)

    def include(self, included: int | None) -> None:
        """Note up to which own row a call includes what was acknowledged."""
        self.included = included
        if not self.staged:
            # A staged transfer keeps its target, which an earlier call has fixed.
            self.covered = included

    def reopen(self) -> None:
        """Continue from what the file has now. Parts since the last token are dropped."""
        self.inbox = Inbox()
        # All rows are read before the write transaction, so that it is short.
        self._verify()
        with self.file.writing() as connection:
            record = catalog.by_id(connection, self.declaration.copy_id)
            if record is None:
                self.error = UnknownCopy(
                    f"{self.name} was forgotten, or declared again, during the sync"
                )
                return
            if not record.intact:
                catalog.redeclare(connection, record.declaration)
            staged = record.stage
            if staged is not None and not self._goes_on(record):
                drop_stage(connection, record)
                staged = None
                # Without its stage the transfer begins again, and ends at what the store has then.
                self.resumed = self.resumed and self.ended
            self.declaration = record.declaration
            self.basis = record.basis if staged is not None else (record.basis[0], b"")
            self._expect(record, staged.shape if staged is not None else None)

    def _verify(self) -> None:
        """Read every row if that is due, and find out what is to be repaired."""
        with self.file.reading() as connection:
            record = catalog.by_id(connection, self.declaration.copy_id)
            base = None if record is None else record.base
            if self.verified or record is None or base is None:
                return
            if not is_due(record, self._now()) and tables.exists(connection, base.table):
                return
            _, self.repair = verify(connection, base)
        self.verified = True
        if self.declaration.edits:
            # Own rows have no checksums; those of the queue have, and are evaluated again.
            with self.file.writing() as connection:
                own_rows.rebuild(connection, self.declaration)
        if not self.repair.needed:
            self._note_verified()

    def _note_verified(self) -> None:
        with self.file.writing() as connection:
            catalog.put_verified(connection, self.declaration.copy_id, self._now())

    def _now(self) -> int:
        return self.clock.micros()

    def _goes_on(self, record: Record) -> bool:
        """Return whether the staged rows belong to what is requested now."""
        staged = record.stage
        assert staged is not None
        # A stage of another repair lacks rows that this one requests.
        if staged.repair != self.repair.mark:
            return False
        with self.file.reading() as connection:
            return not staged.table or tables.exists(connection, staged.table)

    def _expect(self, record: Record, shape: Shape | None) -> None:
        if shape is not None:
            self.shape = shape
        elif record.base is not None:
            self.shape = record.base.shape

    def ask_whole(self) -> None:
        """Request the whole answer instead of the differences."""
        self.repair, self.verified = WHOLE, True
        self.reopen()

    def to_wire(self) -> pb.SyncItem:
        declaration, (token, resume) = self.declaration, self.basis
        with self.file.reading() as connection:
            window = sync_window(connection, declaration)
            keyed = needs_keys(connection, declaration)
        item = pb.SyncItem(
            handle=declaration.handle,
            token=resume or token,
            window=window,
            priority=declaration.priority,
            base_rows=declaration.base_rows,
            changes=bool(declaration.changes) or keyed,
            every_point=declaration.changes == EVERY_POINT,
        )
        if not (self.repair.whole and resume):
            # Requested again, a whole answer that is being transferred would start over.
            self.repair.ask(item)
        return item

    # ---- taking

    def take(self, part: pb.SyncPart) -> Step:
        """Take one part, and return what it has led to.

        Raises the errors of the file, Overtaken, and ServerError for rows that can't be read.
        """
        try:
            return self._take(part)
        except Mismatch as mismatch:
            self._ask_otherwise(mismatch)
            return Step.WRONG

    def _take(self, part: pb.SyncPart) -> Step:
        match part.WhichOneof("part"):
            case "begin":
                return self._begin(part.begin)
            case "removed":
                self.inbox.removed += ids_of(part.removed.runs)
                self.inbox.ended += ids_of(part.removed.ended)
            case "rows":
                self.inbox.rows += typed_rows(part.rows.rows, self._shape())
            case "arrow":
                self.inbox.rows += arrow_rows(part.arrow, self._shape())
            case "resume":
                self._stage(part.resume)
                return Step.STAGED
            case "end":
                self._end(part.end)
                return Step.ENDED
            case "refused":
                self.error = _refusal(part.refused)
                return Step.REFUSED
        return Step.HELD

    def _begin(self, begin: pb.SyncBegin) -> Step:
        if begin.reason == pb.SYNC_REASON_REPLACED and not self.replaced:
            self.replaced = True
            self._forget_query()
            if self.declaration.base_rows or self.declaration.edits:
                # The rows belong to a query that is to be learnt first. They are requested again
                # after that.
                return Step.WRONG
        if begin.reason == pb.SYNC_REASON_TARGET_GONE:
            # The server aims at what it has now instead.
            self.resumed, self.covered = False, self.included
        is_whole = begin.mode == pb.SYNC_MODE_WHOLE
        if not is_whole and not self.basis[0]:
            # What was remembered of the answer before was damaged while a transfer was staged.
            raise Mismatch(f"{self.name}: changes were received for a copy without an answer")
        self.inbox = Inbox(begin)
        if begin.columns:
            self.shape = Shape.from_wire(begin)
        if is_whole:
            reason = "REPLACED" if self.replaced else reason_name(begin.reason)
            self.whole, self.reason = True, reason or self.reason
        return Step.HELD

    def _forget_query(self) -> None:
        """Forget what was learnt of a query that another one has replaced: its stream.

        For base rows also how the answer is computed, and the rows, which are of no use any more.
        For own edits how they are evaluated.
        """
        with self.file.writing() as connection:
            record = catalog.by_id(connection, self.declaration.copy_id)
            if record is not None:
                catalog.amend(connection, record.copy_id, stream="")
                forget_query(connection, record.copy_id)
                if record.declaration.base_rows:
                    forget_answer(connection, record)
        self.declaration = replace(self.declaration, stream="")

    def _shape(self) -> Shape:
        if self.shape is None:
            raise ServerError("rows were received before their columns", code=GARBLED)
        return self.shape

    def _count(self) -> None:
        self.rows += len(self.inbox.rows)
        self.removed += len(self.inbox.removed)
        self.inbox = Inbox()

    def _stage(self, resume: bytes) -> None:
        copy_id = self.declaration.copy_id
        self.basis = stage(self.file, copy_id, self.basis, self.inbox, resume, self.repair)
        self._count()

    def _end(self, end: pb.SyncEnd) -> None:
        copy_id, inbox, repair = self.declaration.copy_id, self.inbox, self.repair
        # Measured first, since the time that writing takes would be part of the offset.
        offset = self.clock.measure(end_micros(end, "store_now"))
        now = self.clock.now(offset)
        ending = Ending(end, repair, self.hidden, offset, now, self.covered)
        self.basis = finish(self.file, copy_id, self.basis, inbox, ending)
        self._count()
        self.repaired += len(repair.damaged)
        # Every row has been checked: as it was received, or by the reading before the repair.
        if self.whole or repair.needed:
            self._note_verified()
        # The rows before stay visible until a hidden version is promoted, and are scrubbed then.
        if self.replaces_everything and not self.hidden:
            self.file.scrub()
        self.repair, self.covered = NO_REPAIR, self.included
        # Of several refresh points each has an end; the copy is complete with the last.
        self.ended = not end.more_points
        self.resumed = self.resumed and self.ended

    def next_round(self) -> None:
        """Begin another round, with its own counts."""
        self.ended, self.registered, self.verified, self.attempts = False, False, False, 0
        self.whole, self.reason, self.replaced, self.refusal = False, "", False, None
        self.rows = self.removed = self.repaired = 0

    def _ask_otherwise(self, mismatch: Mismatch) -> None:
        """Request the item again after a wrong count or digest.

        The first time every row is read and the store compares; the second time everything is sent.
        After that the item has failed.
        """
        self.inbox = Inbox()
        self.attempts += 1
        if self.attempts > 2:
            self.error = ServerError(
                f"{mismatch.message}, even after the whole answer was sent", code="DATA_LOSS"
            )
            return
        with self.file.writing() as connection:
            record = catalog.by_id(connection, self.declaration.copy_id)
            if record is None:
                return
            # The staged rows may be the wrong ones.
            drop_stage(connection, record)
            catalog.put_verified(connection, record.copy_id, None)
            self.verified = True
            if self.attempts == 1 and record.base is not None:
                self.repair = compare(connection, record.base)
            else:
                self.repair = WHOLE


def _refusal(refused: pb.SyncRefused) -> PsoupError:
    is_known_code = 0 <= refused.code < len(_CODES)
    code = _CODES[refused.code] if is_known_code else "UNKNOWN"
    return error_for(code, refused.message, detail_from(refused.detail))


Status = Literal["changed", "unchanged", "incomplete", "refused"]


@dataclass(frozen=True, slots=True)
class Change:
    """What a sync did to one copy.

    `status` is "changed", "unchanged", "incomplete" (the byte budget, or a transfer of one
    position, left the rest for the next sync; the copy is of an earlier position) or "refused"
    (`error` says why; the copy is as it was, or if only its own edits can't be shown, it is kept
    without them). `whole` is True if all rows were sent, and `reason`
    says why. `rows` were received and `removed` deleted. `repaired` rows had been damaged.
    """

    status: Status
    whole: bool = False
    reason: str = ""
    rows: int = 0
    removed: int = 0
    repaired: int = 0
    error: PsoupError | None = None
