"""Queries in the conditions of joins: in an inner join they are conditions of WHERE."""

from __future__ import annotations

from sqlglot import exp

from querystem.language.syntax.tree import chain, is_query, outside_queries


def move_queries_of_on(root: exp.Expr) -> None:
    """Move the conditions of ON with queries inside to WHERE, in every SELECT of a tree.

    An inner join has the combinations for which both are true. A LEFT JOIN after it keeps each of
    its combinations, so it does not matter which is first. The ON of a LEFT JOIN stays as it is.
    """
    for select in root.find_all(exp.Select):
        moved = [part for join in select.args.get("joins") or () for part in _take_conditions(join)]
        if not moved:
            continue
        where = select.args.get("where")
        conditions = [*moved, *([where.this] if where is not None else [])]
        whole = conditions[0]
        for condition in conditions[1:]:
            whole = exp.And(this=whole, expression=condition)
        select.set("where", exp.Where(this=whole))


def _take_conditions(join: exp.Expr) -> list[exp.Expr]:
    """Take the conditions with queries inside out of the ON of an inner join, and return them."""
    on = join.args.get("on")
    if on is None or join.args.get("side") or join.args.get("kind") in ("LEFT", "RIGHT", "FULL"):
        return []
    parts = list(chain(on.unnest(), exp.And))
    moved = [part for part in parts if any(map(is_query, outside_queries(part)))]
    if not moved:
        return []
    remaining = [part for part in parts if part not in moved]
    whole = remaining[0] if remaining else exp.Boolean(this=True)
    for part in remaining[1:]:
        whole = exp.And(this=whole, expression=part)
    join.set("on", whole)
    return moved
