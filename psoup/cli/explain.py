"""psoup explain: how a registration or a text is matched, and what an invoke of it costs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

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
from psoup.cli.output import as_json, counted, echo, grid, pair_table
from psoup.cli.problems import fail
from psoup.cli.texts import FILE, parameters, sql_text

_FACTORS = ["factor", "shared by", "matched by"]
_COST = {
    "looked up": "one hash look-up per row, for all {0.constant_count:,} texts together",
    "searched": "one binary search per row, for all {0.constant_count:,} constants together",
    "compared": "a comparison per row and constant, {0.constant_count:,} in all",
    "evaluated": "evaluated while rows of its conjunction remain",
}


@click.command()
@click.argument("query", metavar="HANDLE|CLIENT_KEY", required=False)
@click.option("--window", show_default="the query's", help="The window of the measured invoke.")
@click.option("--sql", help="Explain this text, which need not be registered.")
@click.option("--file", "-f", type=FILE, help="Read the text from a file.")
@click.option("--param", multiple=True, metavar="NAME[:TYPE]=VALUE", help="A value for :name.")
@click.option("--json", "as_json_", is_flag=True, help="Print JSON, for programs.")
@click.pass_obj
def explain(
    connection: Connection,
    query: str | None,
    window: str | None,
    sql: str | None,
    file: Path | None,
    param: tuple[str, ...],
    as_json_: bool,
) -> None:
    """Show how a registration is matched, what it shares, and where the time of an invoke goes.

    With --sql or --file, show the same for a text that is not registered.

    \b
    psoup explain dear
    psoup explain dear --window "RANGE 1 HOUR" --json
    psoup explain --sql "SELECT * FROM trades WHERE price > :least" --param least=100
    """
    is_text = sql is not None or file is not None
    if is_text == (query is not None):
        fail("name a registration, or give a text with --sql or --file")
    if is_text and window is not None:
        fail("--window is for a registration; write the window into the text")
    if param and not is_text:
        fail("--param is for a text; a registration has its parameters")
    with connection.client() as client:
        if query is None:
            text, values = sql_text(sql, file), parameters(param)
            explanation = client.explain_text(text, parameters=values)
        else:
            explanation = client.explain(query, window=window)
    if as_json_:
        echo(as_json(explanation))
        return
    if len(explanation.legs) > 1:
        _show_several(explanation)
    else:
        pair_table("predicate", _pairs(explanation))
        echo()
        grid(_FACTORS, [_line(factor) for factor in explanation.factors])
    echo()
    _show_stages(explanation.run)


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


def _pairs(explanation: Explanation) -> list[tuple[str, str]]:
    return [
        *_predicate_pairs(explanation),
        ("refresh", _refresh(explanation)),
        *_views(explanation),
        ("engine", _engine(explanation)),
        *_index(explanation.legs),
        *_quarantined(explanation.legs),
        *_implied(explanation.legs),
        *_keyed(explanation.run.current_rows),
        ("one invoke", _invoke(explanation.run)),
    ]


def _predicate_pairs(explained: Explanation | ExplainedLeg) -> list[tuple[str, str]]:
    stored, rows = explained.stored, counted(explained.stream_rows, "row")
    progress = (
        100.0 * explained.matched_rows / explained.stream_rows if explained.stream_rows else 100.0
    )
    return [
        ("registrations", f"{explained.registration_count:,} with this predicate"),
        ("other predicates", _other_predicates(explained)),
        ("matched", f"{explained.matched_rows:,} of {rows} ({progress:.0f} %)"),
        (
            "stored",
            f"{counted(stored.row_count, 'match', 'matches')} in "
            f"{counted(stored.block_count, 'block')}: {counted(stored.byte_count, 'byte')}, "
            f"{counted(stored.piece_count, 'piece')}, {counted(stored.file_count, 'file')}",
        ),
    ]


def _index(legs: Sequence[ExplainedLeg]) -> list[tuple[str, str]]:
    """Return a line for each leg whose structure in the engine's index is known."""
    return [
        ("index", f"{index.text} ({counted(index.predicate_count, 'predicate')} in it)")
        for index in (leg.index for leg in legs)
        if index is not None
    ]


def _quarantined(legs: Sequence[ExplainedLeg]) -> list[tuple[str, str]]:
    """Return a line for each leg that has a predicate in quarantine."""
    return [("quarantine", leg.quarantined) for leg in legs if leg.quarantined]


def _engine(explanation: Explanation) -> str:
    return f"epoch {explanation.epoch}" if explanation.epoch else "has never run"


def _invoke(run: ExplainedRun) -> str:
    stored = ""
    if run.stored_combinations:
        stored = f"{counted(run.stored_combinations, 'stored combination')} used, "
    pairs = f"{counted(run.joined_pairs, 'pair')} joined, " if run.joined_pairs else ""
    return (
        f"{counted(run.considered_rows, 'row')} considered, "
        f"{run.computed_rows:,} computed on the spot, "
        f"{stored}{pairs}{run.answer_rows:,} in the answer ({counted(run.answer_bytes, 'byte')})"
    )


def _refresh(explanation: Explanation) -> str:
    refresh = explanation.refresh or (
        "only inside the query" if _refreshes_inside(explanation) else ""
    )
    return refresh or "always fresh"


def _refreshes_inside(explanation: Explanation) -> bool:
    """Return whether a leg, or a query inside, has its own REFRESH."""
    if any("REFRESH " in leg.window for leg in explanation.legs):
        return True
    pending = [] if explanation.operator is None else [explanation.operator]
    while pending:
        operator = pending.pop()
        if operator.name == "refresh":
            return True
        pending += operator.inputs
    return False


def _views(explanation: Explanation) -> list[tuple[str, str]]:
    return [("views", ", ".join(explanation.views))] if explanation.views else []


def _keyed(current_rows: int | None) -> list[tuple[str, str]]:
    if current_rows is None:
        return []
    return [
        (
            "keyed stream",
            f"{counted(current_rows, 'current row')} in the window, one for each stream key",
        )
    ]


def _implied(legs: Sequence[ExplainedLeg]) -> list[tuple[str, str]]:
    """Return a line for each leg whose predicate implies another one."""
    return [
        (
            "implied by",
            f"{implied.condition}, "
            f"{implied.looked_at_rows:,} of {counted(implied.rows, 'row')} read",
        )
        for implied in (leg.implied_by for leg in legs)
        if implied is not None
    ]


def _other_predicates(explained: Explanation | ExplainedLeg) -> str:
    if explained.compared_predicates == explained.other_predicates:
        return f"{explained.other_predicates:,} over the stream"
    compared = f"{explained.compared_predicates:,} compared"
    return f"{explained.other_predicates:,} over the stream, {compared}"


def _line(factor: Factor) -> list[str]:
    cost = _COST.get(factor.access, factor.access).format(factor)
    index = f"index of {factor.operand}: " if factor.operand else ""
    return [factor.text, counted(factor.shared_by, "other"), f"{index}{cost}"]


# ---- several streams


_METHODS = {
    "equality": "by equal join keys",
    "range": "by sorted values",
    "pairs": "pair by pair",
}


def _show_several(explanation: Explanation) -> None:
    """Show the tree of operators, then each reference to a stream."""
    pairs = [
        ("refresh", _refresh(explanation)),
        *_views(explanation),
        ("engine", _engine(explanation)),
    ]
    if explanation.composite:
        pairs.append(("join", explanation.composite))
    pair_table("several streams", [*pairs, ("one invoke", _invoke(explanation.run))])
    echo()
    if explanation.operator is not None:
        for line in _tree(explanation.operator, explanation.legs):
            echo(line)
    for number, leg in enumerate(explanation.legs, 1):
        echo()
        title = f"{number}  {leg.stream} · {leg.window}"
        notes = [*_index([leg]), *_quarantined([leg]), *_implied([leg])]
        details = [*_predicate_pairs(leg), *notes, *_keyed(leg.current_rows), _counted(leg)]
        pair_table(title, details)
        if leg.factors:
            echo()
            grid(_FACTORS, [_line(factor) for factor in leg.factors])


def _counted(leg: ExplainedLeg) -> tuple[str, str]:
    matching = "" if leg.row_count is None else f", {leg.row_count:,} match in the window"
    return "rows", f"{leg.considered_rows:,} considered{matching}"


def _tree(operator: ExplainedOperator, legs: Sequence[ExplainedLeg]) -> Iterator[str]:
    """Yield the lines of an operator, and below it those of its inputs, drawn as branches."""
    yield _operator_line(operator, legs)
    margin = "│  " if operator.inputs else "   "
    names = [_input_name(child, legs) for child in operator.inputs]
    if operator.first_input is not None:
        yield f"{margin}begins with {names[operator.first_input]}"
    for step in operator.steps:
        yield f"{margin}{_step_line(step, names)}"
    for number, child in enumerate(operator.inputs, 1):
        first, other_lines = ("└─ ", "   ") if number == len(operator.inputs) else ("├─ ", "│  ")
        lines = _tree(child, legs)
        yield first + next(lines)
        yield from (other_lines + line for line in lines)


def _operator_line(operator: ExplainedOperator, legs: Sequence[ExplainedLeg]) -> str:
    place = "" if operator.leg is None else f"{operator.leg + 1}  "
    rows = None if operator.leg is None else legs[operator.leg].row_count
    row_count = "" if rows is None else f" · {counted(rows, 'row')}"
    detail = f" {operator.detail}" if operator.detail else ""
    return f"{place}{operator.name}{detail} · {operator.pattern}{row_count}"


def _input_name(operator: ExplainedOperator, legs: Sequence[ExplainedLeg]) -> str:
    """Return the name of a join's input: the first stream below it, with its number."""
    while operator.leg is None:
        operator = operator.inputs[0]
    return f"{operator.leg + 1} {legs[operator.leg].stream}"


def _step_line(step: ExplainedStep, names: Sequence[str]) -> str:
    return (
        f"then {names[step.input]}, {_METHODS.get(step.method, step.method)}: "
        f"{step.joined_rows:,} × {step.input_rows:,} rows, "
        f"{counted(step.candidate_pairs, 'pair')} compared, {step.kept_pairs:,} joined"
    )
