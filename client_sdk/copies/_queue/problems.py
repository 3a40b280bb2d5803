"""Why a batch is put aside that was not refused by the store."""

from __future__ import annotations

from client_sdk._exceptions import ErrorDetail, PsoupError
from client_sdk.copies._queue.batches import Room
from client_sdk.copies._queue.table import Waiting


def forgotten(waiting: Waiting) -> PsoupError:
    return PsoupError(
        f"the store has had sequence {waiting.sequence} of {waiting.publisher}, and no longer "
        "knows with which rows: another copy of this file may have sent these, or others",
        detail=ErrorDetail("UNVERIFIED"),
    )


def sent_otherwise(waiting: Waiting) -> PsoupError:
    return PsoupError(
        f"it may have been sent before as {waiting.tried}, for another tenant or owner; the store "
        "would take it once more",
        detail=ErrorDetail("OTHER_OWNER"),
    )


def too_large_now(waiting: Waiting, room: Room) -> PsoupError:
    return PsoupError(
        f"it may have been sent before, and its {len(waiting.piece.payload):,} bytes are more than "
        f"the {room.bytes:,} the store takes now, so that it can't be asked",
        detail=ErrorDetail("TOO_LARGE_NOW"),
    )


def damaged(waiting: Waiting) -> PsoupError:
    return PsoupError(
        f"batch {waiting.batch} is not what was queued: the file was damaged",
        detail=ErrorDetail("DAMAGED"),
    )
