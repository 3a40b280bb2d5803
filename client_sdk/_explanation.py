"""What a store says about one registration and its answers, as values."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from client_sdk._time import span
from psoup.v1 import psoup_pb2 as pb


@dataclass(frozen=True, slots=True)
class Factor:
    """A condition of WHERE, as the engine's index has it.

    `access` is "looked up", "searched", "compared" or "evaluated", from the cheapest on; the last
    has no `operand`. The operand is compared with `constant_count` constants in all predicates.
    """

    text: str
    access: str
    operand: str | None
    constant_count: int
    shared_by: int

    @classmethod
    def from_wire(cls, message: pb.Factor) -> Factor:
        access = pb.Access.Name(message.access).removeprefix("ACCESS_")
        return cls(
            text=message.text,
            access=access.replace("_", " ").lower(),
            operand=message.operand or None,
            constant_count=message.constant_count,
            shared_by=message.shared_by,
        )


@dataclass(frozen=True, slots=True)
class StoredMatches:
    """What the engine has written for one predicate."""

    file_count: int
    piece_count: int
    block_count: int
    byte_count: int
    row_count: int


@dataclass(frozen=True, slots=True)
class ExplainedRun:
    """One invoke. `stages` are names and durations, in order.

    `current_rows` of a keyed stream were current and in the window; None for other streams.
    """

    considered_rows: int
    computed_rows: int
    answer_rows: int
    answer_bytes: int
    stages: tuple[tuple[str, timedelta], ...]
    current_rows: int | None = None

    @classmethod
    def from_wire(cls, message: pb.ExplainedRun) -> ExplainedRun:
        return cls(
            considered_rows=message.considered_rows,
            computed_rows=message.computed_rows,
            answer_rows=message.answer_rows,
            answer_bytes=message.answer_bytes,
            stages=tuple((stage.name, span(stage.duration)) for stage in message.stages),
            current_rows=message.current_rows if message.HasField("current_rows") else None,
        )


@dataclass(frozen=True, slots=True)
class Explanation:
    """How a registration is matched, what it shares, what is stored, and where the time goes.

    `matched_rows` of `stream_rows` are precomputed. `factors` is empty where every row matches;
    what they say of others is about `compared_predicates` of `other_predicates`.
    """

    predicate_id: int
    registration_count: int
    factors: tuple[Factor, ...]
    other_predicates: int
    compared_predicates: int
    stored: StoredMatches
    matched_rows: int
    stream_rows: int
    epoch: int
    run: ExplainedRun
    refresh: str
    trigger_id: int | None

    @classmethod
    def from_wire(cls, message: pb.Explanation) -> Explanation:
        stored = message.stored
        return cls(
            predicate_id=message.predicate_id,
            registration_count=message.registration_count,
            factors=tuple(map(Factor.from_wire, message.factors)),
            other_predicates=message.other_predicates,
            compared_predicates=message.compared_predicates,
            stored=StoredMatches(
                stored.file_count,
                stored.piece_count,
                stored.block_count,
                stored.byte_count,
                stored.row_count,
            ),
            matched_rows=message.matched_rows,
            stream_rows=message.stream_rows,
            epoch=message.epoch,
            run=ExplainedRun.from_wire(message.run),
            refresh=message.refresh,
            trigger_id=message.trigger_id or None,
        )
