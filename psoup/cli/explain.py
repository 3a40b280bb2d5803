"""psoup explain: how a registration is matched, and where the time goes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import click

from client_sdk import (
    ExplainedLeg,
    ExplainedOperator,
    ExplainedRun,
    ExplainedStep,
    Explanation,
    Factor,
)
from psoup.cli.connection import Connection
from psoup.cli.output import as_json, echo, grid, pair_table

_FACTORS = ["factor", "shared by", "matched by"]
_COST = {
    "looked up": "one hash look-up a row, for all {0.constant_count:,} texts together",
    "searched": "one binary search a row, for all {0.constant_count:,} constants together",
    "compared": "a comparison a row for each constant, {0.constant_count:,} in all",
    "evaluated": "evaluated, while its conjunction has rows left",
}


@click.command()
@click.argument("query", metavar="HANDLE|KEY")
@click.option("--window", help="Another window for the invoke that is measured.")
@click.option("--json", "as_json_", is_flag=True, help="For programs.")
@click.pass_obj
def explain(connection: Connection, query: str, window: str | None, as_json_: bool) -> None:
    """How a registration is matched, what it shares, and where the time of an invoke goes.

    \b
    psoup explain dear
    psoup explain dear --window "RANGE 1 HOUR" --json
    """
    with connection.client() as client:
        found = client.explain(query, window=window)
    if as_json_:
        echo(as_json(found))
        return
    if len(found.legs) > 1:
        _show_several(found)
    else:
        pair_table("predicate", _pairs(found))
        echo()
        grid(_FACTORS, [_line(each) for each in found.factors])
    echo()
    _show_stages(found.run)


def _show_stages(run: ExplainedRun) -> None:
    total = sum(spent.total_seconds() for _, spent in run.stages)
    shares = [(name, spent.total_seconds()) for name, spent in run.stages]
    grid(
        ["one invoke", "ms", "%"],
        [
            [name, f"{spent * 1000:.2f}", f"{100 * spent / total if total else 0:.0f}"]
            for name, spent in [*shares, ("in all", total)]
        ],
    )


# ---- one stream


def _pairs(found: Explanation) -> list[tuple[str, str]]:
    return [
        *_predicate_pairs(found),
        ("refresh", _refresh(found)),
        *_views(found),
        ("engine", _engine(found)),
        *_quarantined(found.legs),
        *_implied(found.legs),
        *_keyed(found.run.current_rows),
        ("one invoke", _invoke(found.run)),
    ]


def _predicate_pairs(found: Explanation | ExplainedLeg) -> list[tuple[str, str]]:
    stored = found.stored
    progress = 100.0 * found.matched_rows / found.stream_rows if found.stream_rows else 100.0
    return [
        ("registrations", f"{found.registration_count:,} share it"),
        ("other predicates", _others(found)),
        ("matched", f"{found.matched_rows:,} of {found.stream_rows:,} rows ({progress:.0f} %)"),
        (
            "stored",
            f"{stored.row_count:,} matches in {stored.block_count:,} blocks: {stored.byte_count:,}"
            f" bytes, {stored.piece_count:,} pieces, {stored.file_count:,} files",
        ),
    ]


def _quarantined(legs: Sequence[ExplainedLeg]) -> list[tuple[str, str]]:
    """A line for each leg of which something is in quarantine."""
    return [("quarantine", leg.quarantined) for leg in legs if leg.quarantined]


def _engine(found: Explanation) -> str:
    return f"epoch {found.epoch}" if found.epoch else "has never run"


def _invoke(run: ExplainedRun) -> str:
    stored = f"{run.stored_combinations:,} combinations taken, " if run.stored_combinations else ""
    pairs = f"{run.joined_pairs:,} pairs joined, " if run.joined_pairs else ""
    return (
        f"{run.considered_rows:,} rows considered, {run.computed_rows:,} computed on the spot, "
        f"{stored}{pairs}{run.answer_rows:,} in the answer ({run.answer_bytes:,} bytes)"
    )


def _refresh(found: Explanation) -> str:
    shown = found.refresh or ("only inside the query" if _refreshes_inside(found) else "")
    return shown or "always fresh"


def _refreshes_inside(found: Explanation) -> bool:
    """Tells whether a leg, or a query inside, has a REFRESH of its own."""
    if any("REFRESH " in leg.window for leg in found.legs):
        return True
    waiting = [] if found.operator is None else [found.operator]
    while waiting:
        operator = waiting.pop()
        if operator.name == "refresh":
            return True
        waiting += operator.inputs
    return False


def _views(found: Explanation) -> list[tuple[str, str]]:
    return [("views", ", ".join(found.views))] if found.views else []


def _keyed(current_rows: int | None) -> list[tuple[str, str]]:
    if current_rows is None:
        return []
    return [("keyed stream", f"{current_rows:,} current rows in the window, one a key")]


def _implied(legs: Sequence[ExplainedLeg]) -> list[tuple[str, str]]:
    """The lines about predicates that those of the legs imply."""
    return [
        (
            "implied by",
            f"{one.condition}, {one.looked_at_rows:,} of {one.rows:,} rows looked at",
        )
        for one in (leg.implied_by for leg in legs)
        if one is not None
    ]


def _others(found: Explanation | ExplainedLeg) -> str:
    if found.compared_predicates == found.other_predicates:
        return f"{found.other_predicates:,} over the stream"
    return f"{found.other_predicates:,} over the stream, {found.compared_predicates:,} looked at"


def _line(factor: Factor) -> list[str]:
    cost = _COST.get(factor.access, factor.access).format(factor)
    index = f"index of {factor.operand}: " if factor.operand else ""
    return [factor.text, f"{factor.shared_by:,} others", f"{index}{cost}"]


# ---- several streams


_METHODS = {
    "equality": "by equal keys",
    "range": "by sorted values",
    "pairs": "pair by pair",
}


def _show_several(found: Explanation) -> None:
    """The tree of operators, then each reference to a stream."""
    pairs = [("refresh", _refresh(found)), *_views(found), ("engine", _engine(found))]
    if found.composite:
        pairs.append(("join", found.composite))
    pair_table("several streams", [*pairs, ("one invoke", _invoke(found.run))])
    echo()
    if found.operator is not None:
        for line in _tree(found.operator, found.legs):
            echo(line)
    for number, leg in enumerate(found.legs, 1):
        echo()
        title = f"{number}  {leg.stream} · {leg.window}"
        more = [*_quarantined([leg]), *_implied([leg]), *_keyed(leg.current_rows), _counted(leg)]
        pair_table(title, [*_predicate_pairs(leg), *more])
        if leg.factors:
            echo()
            grid(_FACTORS, [_line(each) for each in leg.factors])


def _counted(leg: ExplainedLeg) -> tuple[str, str]:
    found = "" if leg.row_count is None else f", {leg.row_count:,} match in the window"
    return "rows", f"{leg.considered_rows:,} considered{found}"


def _tree(operator: ExplainedOperator, legs: Sequence[ExplainedLeg]) -> Iterator[str]:
    """The lines of an operator, and below it those of its inputs, drawn as branches."""
    yield _operator_line(operator, legs)
    more = "│  " if operator.inputs else "   "
    names = [_input_name(one, legs) for one in operator.inputs]
    if operator.first_input is not None:
        yield f"{more}begins with {names[operator.first_input]}"
    for step in operator.steps:
        yield f"{more}{_step_line(step, names)}"
    for number, one in enumerate(operator.inputs, 1):
        first, rest = ("└─ ", "   ") if number == len(operator.inputs) else ("├─ ", "│  ")
        lines = _tree(one, legs)
        yield first + next(lines)
        yield from (rest + line for line in lines)


def _operator_line(operator: ExplainedOperator, legs: Sequence[ExplainedLeg]) -> str:
    place = "" if operator.leg is None else f"{operator.leg + 1}  "
    rows = None if operator.leg is None else legs[operator.leg].row_count
    counted = "" if rows is None else f" · {rows:,} rows"
    detail = f" {operator.detail}" if operator.detail else ""
    return f"{place}{operator.name}{detail} · {operator.pattern}{counted}"


def _input_name(operator: ExplainedOperator, legs: Sequence[ExplainedLeg]) -> str:
    """The name of a join's input: the first stream below it, with its number."""
    while operator.leg is None:
        operator = operator.inputs[0]
    return f"{operator.leg + 1} {legs[operator.leg].stream}"


def _step_line(step: ExplainedStep, names: Sequence[str]) -> str:
    return (
        f"then {names[step.input]}, {_METHODS.get(step.method, step.method)}: "
        f"{step.joined_rows:,} × {step.input_rows:,} rows, {step.candidate_pairs:,} pairs looked "
        f"at, {step.kept_pairs:,} left"
    )
