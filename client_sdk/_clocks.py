"""What a store says about its servers' clocks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from client_sdk._time import moment, optional_moment, span
from psoup.v1 import psoup_pb2 as pb


@dataclass(frozen=True, slots=True)
class ClockJump:
    """A step of the store's time that nothing accounted for, by the clock of the machine `server`.

    `confirmed` is "operator", "time" or the machine that agreed; empty while nobody has.
    """

    number: int
    before: datetime
    to: datetime
    server: str
    confirmed: str


@dataclass(frozen=True, slots=True)
class StoreClock:
    """`problem` says why the server that answers appends nothing; it is empty where it does.

    `unconfirmed` is how much of the store's time stands on unconfirmed jumps. `others` are the
    other machines heard of lately, and by how much the server that answers is ahead of each.
    """

    server: str
    clock: datetime
    stamp: datetime | None
    problem: str
    unconfirmed: timedelta
    jumps: tuple[ClockJump, ...] = ()
    others: Mapping[str, timedelta] = field(default_factory=dict)

    @classmethod
    def from_wire(cls, message: pb.ClockState) -> StoreClock:
        return cls(
            server=message.server,
            clock=moment(message.clock),
            stamp=optional_moment(message, "stamp"),
            problem=message.problem,
            unconfirmed=span(message.unconfirmed),
            jumps=tuple(
                ClockJump(one.number, moment(one.before), moment(one.to), one.server, one.confirmed)
                for one in message.jumps
            ),
            others={one.server: span(one.ahead) for one in message.others},
        )
