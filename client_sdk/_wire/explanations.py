"""Explanations: how a registration is matched, how its streams are joined, where the time goes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from client_sdk._wire.models import pattern_name
from client_sdk._wire.values import span
from psoup.v1 import psoup_pb2 as pb


@dataclass(frozen=True, slots=True)
class Factor:
    """A condition of WHERE, as the engine's index has it.

    `access` is "looked up", "searched", "compared" or "evaluated", from the cheapest on; the last
    has no `operand`. In all predicates, the operand is compared with `constant_count` constants.
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
class IndexStructure:
    """The structure of the engine's index that finds a predicate; `text` describes it.

    `method` is "hash table", "pattern table", "any of", "grid", "every box", "bitmaps" or "by
    itself". Rows are looked up by their `operands`. `predicate_count` predicates are in it.
    """

    method: str
    operands: tuple[str, ...]
    predicate_count: int
    text: str

    @classmethod
    def from_wire(cls, message: pb.IndexStructure) -> IndexStructure:
        method = pb.IndexMethod.Name(message.method).removeprefix("INDEX_METHOD_")
        return cls(
            method=method.replace("_", " ").lower(),
            operands=tuple(message.operands),
            predicate_count=message.predicate_count,
            text=message.text,
        )


@dataclass(frozen=True, slots=True)
class StoredMatches:
    """The sizes of what the engine has stored for one predicate."""

    file_count: int
    piece_count: int
    block_count: int
    byte_count: int
    row_count: int

    @classmethod
    def from_wire(cls, message: pb.StoredMatches) -> StoredMatches:
        return cls(
            message.file_count,
            message.piece_count,
            message.block_count,
            message.byte_count,
            message.row_count,
        )


@dataclass(frozen=True, slots=True)
class ExplainedRun:
    """One invoke that was measured. `stages` are names and durations, in order.

    `current_rows` of a keyed stream were current and in the window; it is None for other streams.
    `joined_pairs` of rows were compared to join streams, and `stored_combinations` were read that
    the engine had found before.
    """

    considered_rows: int
    computed_rows: int
    answer_rows: int
    answer_bytes: int
    stages: tuple[tuple[str, timedelta], ...]
    current_rows: int | None = None
    joined_pairs: int = 0
    stored_combinations: int = 0

    @classmethod
    def from_wire(cls, message: pb.ExplainedRun) -> ExplainedRun:
        return cls(
            considered_rows=message.considered_rows,
            computed_rows=message.computed_rows,
            answer_rows=message.answer_rows,
            answer_bytes=message.answer_bytes,
            stages=tuple((stage.name, span(stage.duration)) for stage in message.stages),
            current_rows=message.current_rows if message.HasField("current_rows") else None,
            joined_pairs=message.joined_pairs,
            stored_combinations=message.stored_combinations,
        )


@dataclass(frozen=True, slots=True)
class ImpliedBy:
    """An implied predicate: only the rows it matches were evaluated, instead of all `rows`."""

    condition: str
    looked_at_rows: int
    rows: int

    @classmethod
    def from_wire(cls, message: pb.ImpliedBy) -> ImpliedBy:
        return cls(message.condition, message.looked_at_rows, message.rows)


@dataclass(frozen=True, slots=True)
class ExplainedPredicate:
    """The predicate of a reference to a stream: what it shares, and what is stored for it.

    `matched_rows` of `stream_rows` are matched ahead. `factors` is empty if every row matches. What
    the factors say about sharing covers `compared_predicates` of `other_predicates`.
    """

    registration_count: int
    factors: tuple[Factor, ...]
    other_predicates: int
    compared_predicates: int
    stored: StoredMatches
    matched_rows: int
    stream_rows: int


def _of_predicate(message: pb.ExplainedLeg | pb.Explanation) -> dict[str, Any]:
    """Return the fields of ExplainedPredicate, by name."""
    return {
        "registration_count": message.registration_count,
        "factors": tuple(map(Factor.from_wire, message.factors)),
        "other_predicates": message.other_predicates,
        "compared_predicates": message.compared_predicates,
        "stored": StoredMatches.from_wire(message.stored),
        "matched_rows": message.matched_rows,
        "stream_rows": message.stream_rows,
    }


@dataclass(frozen=True, slots=True)
class ExplainedLeg(ExplainedPredicate):
    """A reference of the query to a stream: its predicate, what is stored for it, and its rows.

    `considered_rows` were evaluated with the predicate. `row_count` of them are in the window and
    match; it is None if cached summaries made counting unnecessary. `current_rows` are those of a
    keyed stream. `implied_by` is the predicate whose matches were read instead of all rows, or
    None. `quarantined` says what of the leg the engine has set aside because it fails. `index` is
    the structure of the engine's index; it is None for callers who do not administer the tenant.
    """

    stream: str
    window: str
    considered_rows: int
    row_count: int | None
    current_rows: int | None
    implied_by: ImpliedBy | None = None
    quarantined: str = ""
    index: IndexStructure | None = None

    @classmethod
    def from_wire(cls, message: pb.ExplainedLeg) -> ExplainedLeg:
        index = IndexStructure.from_wire(message.index)
        implied = ImpliedBy.from_wire(message.implied_by)
        return cls(
            stream=message.stream,
            window=message.window,
            **_of_predicate(message),
            considered_rows=message.considered_rows,
            row_count=message.row_count if message.HasField("row_count") else None,
            current_rows=message.current_rows if message.HasField("current_rows") else None,
            implied_by=implied if message.HasField("implied_by") else None,
            quarantined=message.quarantined,
            index=index if message.HasField("index") else None,
        )


@dataclass(frozen=True, slots=True)
class ExplainedStep:
    """A step of a join: one input is joined to the result of the steps before.

    `method` is "equality", "range" or "pairs". `candidate_pairs` of all pairs of rows were
    compared, and `kept_pairs` of them matched.
    """

    input: int
    method: str
    joined_rows: int
    input_rows: int
    candidate_pairs: int
    kept_pairs: int

    @classmethod
    def from_wire(cls, message: pb.ExplainedStep) -> ExplainedStep:
        return cls(
            input=message.input,
            method=pb.JoinMethod.Name(message.method).removeprefix("JOIN_METHOD_").lower(),
            joined_rows=message.joined_rows,
            input_rows=message.input_rows,
            candidate_pairs=message.candidate_pairs,
            kept_pairs=message.kept_pairs,
        )


@dataclass(frozen=True, slots=True)
class ExplainedOperator:
    """An operator of the query's tree, and the update pattern of the rows it produces.

    A stream has its index among the legs. A join has the input that it began with, and a step for
    each of the other inputs, in the order in which they were joined.
    """

    name: str
    detail: str
    pattern: str
    inputs: tuple[ExplainedOperator, ...] = ()
    leg: int | None = None
    first_input: int | None = None
    steps: tuple[ExplainedStep, ...] = ()

    @classmethod
    def from_wire(cls, message: pb.ExplainedOperator) -> ExplainedOperator:
        return cls(
            name=message.name,
            detail=message.detail,
            pattern=pattern_name(message.pattern),
            inputs=tuple(map(cls.from_wire, message.inputs)),
            leg=message.leg if message.HasField("leg") else None,
            first_input=message.first_input if message.HasField("first_input") else None,
            steps=tuple(map(ExplainedStep.from_wire, message.steps)),
        )


@dataclass(frozen=True, slots=True)
class Explanation(ExplainedPredicate):
    """How a registration is matched, what it shares, what is stored for it, and where the time
    goes.

    The predicate is that of the first of the `legs`, the query's references to streams. `operator`
    is the root of the tree of operators over their rows. Old servers report neither legs nor
    operators.
    """

    epoch: int
    run: ExplainedRun
    refresh: str
    legs: tuple[ExplainedLeg, ...] = ()
    operator: ExplainedOperator | None = None
    views: tuple[str, ...] = ()
    composite: str = ""

    @classmethod
    def from_wire(cls, message: pb.Explanation) -> Explanation:
        has_operator = message.HasField("operator")
        return cls(
            **_of_predicate(message),
            epoch=message.epoch,
            run=ExplainedRun.from_wire(message.run),
            refresh=message.refresh,
            legs=tuple(map(ExplainedLeg.from_wire, message.legs)),
            operator=ExplainedOperator.from_wire(message.operator) if has_operator else None,
            views=tuple(message.views),
            composite=message.composite,
        )
