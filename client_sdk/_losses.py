"""What a store says about rows it has lost."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from client_sdk._time import optional_moment
from psoup.v1 import psoup_pb2 as pb


@dataclass(frozen=True, slots=True)
class LostRows:
    """Rows of a stream that were accepted and whose `file` is damaged or gone.

    `begin` and `end` are their least and greatest ts. Answers that would need them fail until the
    operator has `accepted` the loss.
    """

    tenant: str
    stream: str
    first_row_id: int
    row_count: int
    begin: datetime | None
    end: datetime | None
    file: str
    accepted: bool

    @classmethod
    def from_wire(cls, message: pb.Hole) -> LostRows:
        return cls(
            tenant=message.tenant,
            stream=message.stream,
            first_row_id=message.first_row_id,
            row_count=message.row_count,
            begin=optional_moment(message, "begin"),
            end=optional_moment(message, "end"),
            file=message.file,
            accepted=message.accepted,
        )
