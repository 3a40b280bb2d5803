"""psoup explain: how a registration is matched, and where the time goes."""

from __future__ import annotations

import click

from client_sdk import Explanation, Factor
from psoup.cli.connection import Connection
from psoup.cli.output import as_json, grid, pair_table
from psoup.cli.queries import resolve

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
        found = client.explain(resolve(client, query, connection.owner), window=window)
    if as_json_:
        click.echo(as_json(found))
        return
    pair_table(f"predicate {found.predicate_id}", _pairs(found))
    click.echo()
    grid(["factor", "shared by", "matched by"], [_line(each) for each in found.factors])
    click.echo()
    total = sum(spent.total_seconds() for _, spent in found.run.stages)
    shares = [(name, spent.total_seconds()) for name, spent in found.run.stages]
    grid(
        ["one invoke", "ms", "%"],
        [
            [name, f"{spent * 1000:.2f}", f"{100 * spent / total if total else 0:.0f}"]
            for name, spent in [*shares, ("in all", total)]
        ],
    )


def _pairs(found: Explanation) -> list[tuple[str, str]]:
    run, stored = found.run, found.stored
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
        ("refresh", _refresh(found)),
        ("engine", f"epoch {found.epoch}" if found.epoch else "has never run"),
        *_keyed(run.current_rows),
        (
            "one invoke",
            f"{run.considered_rows:,} rows considered, {run.computed_rows:,} computed on the spot, "
            f"{run.answer_rows:,} in the answer ({run.answer_bytes:,} bytes)",
        ),
    ]


def _refresh(found: Explanation) -> str:
    matched = f" (predicate {found.trigger_id})" if found.trigger_id else ""
    return found.refresh + matched if found.refresh else "always fresh"


def _keyed(current_rows: int | None) -> list[tuple[str, str]]:
    if current_rows is None:
        return []
    return [("keyed stream", f"{current_rows:,} current rows in the window, one a key")]


def _others(found: Explanation) -> str:
    if found.compared_predicates == found.other_predicates:
        return f"{found.other_predicates:,} over the stream"
    return f"{found.other_predicates:,} over the stream, {found.compared_predicates:,} looked at"


def _line(factor: Factor) -> list[str]:
    cost = _COST.get(factor.access, factor.access).format(factor)
    index = f"index of {factor.operand}: " if factor.operand else ""
    return [factor.text, f"{factor.shared_by:,} others", f"{index}{cost}"]
