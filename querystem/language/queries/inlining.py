"""Views that are inlined: those that only select and project rows of one stream.

The rows of such a view are rows of its stream. So the window of a query over it is the stream's,
and its condition and the query's are one predicate, matched and shared as such. All other views
are queries inside the query, as are these under a window that does not go by ts.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from datastem.schema import StreamSchema
from querystem.language.functions.aggregates import is_aggregate
from querystem.language.syntax.tree import is_query
from querystem.user_functions import FunctionDefinition
from querystem.views import ViewDefinition

# The query of a view, parsed.
ParsedView = Callable[[ViewDefinition], exp.Expr]
# What a reference names: for rows a stream or a view.
Named = Callable[[exp.Expr], StreamSchema | ViewDefinition | FunctionDefinition | None]

_OTHER_CLAUSES = ("distinct", "group", "having", "order", "limit", "offset", "refresh")


def is_flat(select: exp.Expr) -> bool:
    """Return whether a SELECT does nothing but select, project and join."""
    if any(select.args.get(clause) is not None for clause in _OTHER_CLAUSES):
        return False
    parts = [*select.expressions, *filter(None, [select.args.get("where")])]
    nodes = (node for part in parts for node in part.walk(prune=is_query))
    return not any(is_query(node) or is_aggregate(node) for node in nodes)


def stream_of_view(view: ViewDefinition, parsed: ParsedView, named: Named) -> StreamSchema | None:
    """Return the stream whose rows, selected and projected, a view shows, without a window or
    REFRESH of its own; None if the view is anything else."""
    query = parsed(view)
    if not isinstance(query, exp.Select) or not is_flat(query):
        return None
    if any(query.args.get(part) for part in ("frame", "ctes", "joins")):
        return None
    source = query.args.get("from_")
    table = None if source is None else source.this
    if not isinstance(table, exp.Table) or table.args.get("frame") or table.args.get("version"):
        return None
    source = named(table)
    if isinstance(source, ViewDefinition):
        return stream_of_view(source, parsed, named)
    return source if isinstance(source, StreamSchema) else None


def bounds_time(frame: exp.Expr, schema: StreamSchema) -> bool:
    """Return whether a window chooses rows by their ts alone, so that it is the same before and
    after a condition. SLIDE changes at which instant the rows of a keyed stream are current."""
    texts = [token.text.upper() for token in frame.args["tokens"]]
    counts = texts[:1] in (["ROWS"], ["PARTITION BY"]) or texts[:2] == ["BEGIN", "ROW"]
    if texts[:2] == ["ROWS", "UNBOUNDED"]:
        counts = False
    return not counts and not (schema.key and "SLIDE" in texts)
