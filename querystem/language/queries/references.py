"""References to streams: the names, the windows and the places that a text gives them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from sqlglot import exp

from datastem.schema import StreamSchema
from datastem.types import Type
from querystem.expressions import TRUE
from querystem.language.errors import (
    BindProblem,
    NotYet,
    QueryError,
    Span,
    SyntaxProblem,
    UnknownStream,
    WindowProblem,
    located,
)
from querystem.language.expressions.bind import Binder, identifier
from querystem.language.expressions.scope import Scope
from querystem.language.expressions.user_calls import UserCalls
from querystem.language.queries.drafts import DraftEvery, DraftOn, DraftWindow
from querystem.language.queries.inlining import stream_of_view
from querystem.language.queries.lookups import bind_lookup
from querystem.language.queries.tails import RefreshText, WindowText
from querystem.language.syntax.grammar import WindowNode
from querystem.language.syntax.parse import parse_query
from querystem.language.syntax.refreshes import ParsedPoints, ParsedRefresh
from querystem.language.syntax.tree import consume, node_span
from querystem.language.tokens.names import nearest
from querystem.legs import Leg
from querystem.refresh import Refresh, RefreshAny, RefreshEvery, RefreshOn
from querystem.user_functions import FunctionDefinition
from querystem.views import MAX_VIEWS_DEEP, ViewDefinition

MAX_REFERENCES = 64

Named = StreamSchema | ViewDefinition | FunctionDefinition
Lookup = Callable[[str], Named | None]
Names = Callable[[], Iterable[str]]


def inside_views(lookup: Lookup) -> Lookup:
    """Return the lookup of the names in the texts of views: the `inside_views` of a lookup that has
    one. A caller who may name a view need not be allowed to name the streams it reads."""
    inner: Lookup = getattr(lookup, "inside_views", lookup)
    return inner


def function_lookup(lookup: Lookup) -> Callable[[str, bool], FunctionDefinition | None]:
    """Return the lookup of functions; its second argument says whether the name stands in the text
    of a view or of another function."""

    def find(name: str, inside: bool) -> FunctionDefinition | None:
        source = (inside_views(lookup) if inside else lookup)(name)
        return source if isinstance(source, FunctionDefinition) else None

    return find


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a block in a text.

    `frame` is the window that reaches it, and `has_own_window` whether that is its own. `named` are
    the queries that WITH names there. In an expression, `outer` binds the query around it; in a
    query of FROM or WITH inside an expression, `beyond` does. `view` is the view that is inlined
    there.
    """

    frame: exp.Expr | None = None
    has_own_window: bool = False
    named: Mapping[str, NamedQuery] = field(default_factory=dict)
    outer: Binder | None = None
    view: str = ""
    beyond: Binder | None = None

    def inner(self) -> Place:
        """Return the place of a query of FROM or WITH, which no window reaches, and no columns of
        the queries around."""
        return Place(None, True, dict(self.named), beyond=self.outer or self.beyond)

    def within(self, node: exp.Expr) -> Place:
        """Return the place inside a query, which may have a window, and names by WITH, of its
        own."""
        named = dict(self.named)
        new_names: set[str] = set()
        for cte in node.args.get("ctes") or ():
            name = identifier(cte.args["alias"])
            if name in new_names:
                raise BindProblem(
                    f"WITH names two queries {name}", node_span(cte), reason="DUPLICATE_NAME"
                )
            new_names.add(name)
            named[name] = NamedQuery(cte, replace(self.inner(), named=dict(named)))
        frame = node.args.get("frame")
        if frame is None:
            return replace(self, named=named)
        return Place(frame, True, named, self.outer, beyond=self.beyond)


@dataclass(frozen=True, slots=True)
class NamedQuery:
    """A query that WITH names, and the place it stands at."""

    node: exp.Expr
    place: Place


@dataclass
class TextBinding:
    """What the parts of one text share: the streams, the parameters and the places they are `used`
    at, the texts of windows and of REFRESH by their numbers, the number of `references` to streams,
    and the ids of the nodes of windows and of queries of WITH that were `reached`.

    Names are looked up once (`looked_up_names`, by name and whether it stands in a view), and the
    queries of `views` are parsed once. While a view is bound, `view` is the place of the reference
    to the outermost view, `depth` is how many views are nested, and `bound_at` is that of the
    innermost one: columns that its streams got later do not exist for it. `bind_rows` binds the
    rows of REFRESH ON, and returns their stream, too.
    """

    lookup: Lookup
    names: Names | None
    parameters: Mapping[str, Type | None]
    used: dict[str, Span] = field(default_factory=dict)
    windows: list[WindowText] = field(default_factory=list)
    refreshes: list[RefreshText] = field(default_factory=list)
    references: int = 0
    reached: set[int] = field(default_factory=set)
    view: Span | None = None
    depth: int = 0
    bound_at: int | None = None
    looked_up_names: dict[tuple[str, bool], Named | None] = field(default_factory=dict)
    views: dict[str, exp.Expr] = field(default_factory=dict)
    bind_rows: Callable[[exp.Expr], tuple[RefreshOn, StreamSchema]] | None = None

    def __post_init__(self) -> None:
        find = function_lookup(self.lookup)
        self._calls = UserCalls(lambda name, inside: find(name, inside or self.view is not None))

    def binder(self, scope: Scope) -> Binder:
        return Binder(scope, self.parameters, used=self.used, functions=self._calls, has_now=True)

    def window(self, text: WindowText) -> DraftWindow:
        """Return the window that a text will be read as."""
        self.windows.append(replace(text, place=self.view or text.place, view=self.view))
        return DraftWindow(number=len(self.windows) - 1)

    def refresh(self, parsed: ParsedRefresh) -> Refresh:
        """Return the REFRESH of a query or of a reference, whose period is read when parameters
        have values; raise QueryError."""
        parts = [self._points(part, self.view or parsed.span) for part in parsed.parts]
        return parts[0] if len(parts) == 1 else RefreshAny(tuple(parts))

    def _points(self, parsed: ParsedPoints, span: Span) -> RefreshEvery | RefreshOn:
        text = RefreshText(span, parsed.end, parsed.period)
        if parsed.rows is None:
            self.refreshes.append(text)
            return DraftEvery(0, number=len(self.refreshes) - 1)
        assert self.bind_rows is not None, "QueryBinder sets it"
        refresh, trigger = self.bind_rows(parsed.rows)
        self.refreshes.append(replace(text, trigger=trigger))
        return DraftOn(refresh.stream, refresh.where, len(self.refreshes) - 1)

    # ---- views

    def view_of(self, table: exp.Expr) -> ViewDefinition | None:
        """Return the view that a reference names; None if it names no view."""
        source = self._named(table)
        return source if isinstance(source, ViewDefinition) else None

    def stream_of(self, view: ViewDefinition) -> StreamSchema | None:
        """Return the stream that a view shows rows of, as `stream_of_view` does."""
        return stream_of_view(view, self.parsed, self._named_inside)

    def parsed(self, view: ViewDefinition) -> exp.Expr:
        """Return the query of a view."""
        if view.name not in self.views:
            with located(view.text):
                self.views[view.name] = parse_query(view.text)
        return self.views[view.name]

    def _named(self, table: exp.Expr) -> Named | None:
        if self.view is not None:
            return self._named_inside(table)
        return self._look_up(identifier(table.this), self.lookup, False)

    def _named_inside(self, table: exp.Expr) -> Named | None:
        """Return the stream or view that a reference in the text of a view names."""
        source = self._look_up(identifier(table.this), inside_views(self.lookup), True)
        if self.bound_at is None or not isinstance(source, StreamSchema):
            return source
        return source.at(self.bound_at)

    def _look_up(self, name: str, lookup: Lookup, inside: bool) -> Named | None:
        if (name, inside) not in self.looked_up_names:
            self.looked_up_names[name, inside] = lookup(name)
        return self.looked_up_names[name, inside]

    @contextmanager
    def within_view(self, view: ViewDefinition, span: Span) -> Iterator[None]:
        """Bind the query of a view in the `with` block. Errors point to the reference at `span`,
        because the text of the view is not part of the query's."""
        outside, bound_at = self.view, self.bound_at
        self.view, self.depth = outside or span, self.depth + 1
        self.bound_at = view.bound_at
        try:
            if self.depth > MAX_VIEWS_DEEP:
                raise BindProblem(
                    f"views stand more than {MAX_VIEWS_DEEP} deep inside each other",
                    self.view,
                    hint="write the query of one of them instead of its name",
                    reason="NESTED_TOO_DEEP",
                )
            yield
        except QueryError as problem:
            if problem.span != self.view:
                problem.message = f"in view {view.name}: {problem.message}"
                problem.span = self.view
            raise
        finally:
            self.view, self.depth = outside, self.depth - 1
            self.bound_at = bound_at

    def stream(self, table: exp.Expr) -> StreamSchema:
        """Return the stream that a reference names; raise UnknownStream."""
        name, schema = identifier(table.this), self._named(table)
        if isinstance(schema, StreamSchema):
            return schema
        if schema is not None:
            kind = "view" if isinstance(schema, ViewDefinition) else "function"
            raise BindProblem(
                f"{name} is a {kind}, and a stream is needed here",
                node_span(table.this),
                hint="name the stream",
                reason="NOT_A_STREAM",
            )
        near = nearest(name, self.names()) if self.names else None
        hint = "create it with CREATE STREAM, or look at the list of streams"
        raise UnknownStream(
            f"there is no stream {name}",
            node_span(table.this),
            hint=f"did you mean {near}?" if near else hint,
        )

    def leg(self, table: exp.Expr, place: Place) -> tuple[Leg, StreamSchema]:
        """Return the leg of a reference to a stream; its window is read when parameters have
        values."""
        consume(table, "this", "alias", "frame")
        schema = self._counted(table)
        item_frame = table.args.get("frame")
        frame = item_frame if item_frame is not None else place.frame
        self.reached.add(id(frame))
        window = self.window(window_text(frame, schema, node_span(table.this)))
        has_own_window = place.has_own_window or item_frame is not None
        leg = Leg(schema.name, TRUE, window, has_own_window, view=place.view)
        parsed = None if item_frame is None else item_frame.args.get("refresh")
        if parsed is not None and schema.validity is not None:
            assert item_frame is not None
            raise NotYet(
                f"REFRESH in WINDOW(…) over {schema.name}, whose rows have a validity",
                node_span(item_frame),
                hint="write the REFRESH at the end of the query",
            )
        return leg if parsed is None else replace(leg, refresh=self.refresh(parsed)), schema

    def looked_up(self, table: exp.Expr, before: Scope) -> tuple[Leg, StreamSchema]:
        """Return the leg of a reference whose rows are looked up for items before it in FROM."""
        consume(table, "this", "alias", "frame", "version")
        schema = self._counted(table)
        as_of, beside = bind_lookup(table, schema, before)
        text = WindowText(schema, (), node_span(table.this), beside=beside)
        return Leg(schema.name, TRUE, self.window(text), True, as_of), schema

    def _counted(self, table: exp.Expr) -> StreamSchema:
        """Return the stream of a reference; raise BindProblem if there are too many references."""
        schema = self.stream(table)
        self.count_references(1, node_span(table))
        return schema

    def count_references(self, count: int, span: Span) -> None:
        """Count further references; raise BindProblem if there are too many."""
        self.references += count
        if self.references > MAX_REFERENCES:
            raise BindProblem(
                f"a query has at most {MAX_REFERENCES} references to streams",
                span,
                hint="register parts of it on their own",
                reason="TOO_MANY_REFERENCES",
            )

    def check_reached(self, node: exp.Expr) -> None:
        """Refuse the window of a query that no stream takes, and a name of WITH that is not
        used."""
        for cte in node.args.get("ctes") or ():
            if id(cte) not in self.reached:
                name = cte.args["alias"]
                raise BindProblem(
                    f"{name.name} is not used",
                    node_span(name),
                    hint="leave it out of WITH, or name it in FROM",
                    reason="UNUSED_NAME",
                )
        frame = node.args.get("frame")
        if frame is not None and id(frame) not in self.reached:
            raise WindowProblem(
                "the window reaches no stream",
                node_span(frame),
                hint="streams with a WINDOW(…), and those of queries in FROM, keep their own;"
                " leave it out, or write it there",
            )


def window_text(frame: exp.Expr | None, schema: StreamSchema, place: Span) -> WindowText:
    """Return the window, if any, of a reference at `place`."""
    if frame is None:
        return WindowText(schema, (), place)
    assert isinstance(frame, WindowNode)
    end = node_span(frame).end if frame.args["of_item"] else None
    return WindowText(schema, frame.args["tokens"], place, end)


def references(select: exp.Expr) -> list[tuple[exp.Expr, exp.Expr | None]]:
    """Return the items of a FROM, each after the first with its join; none without a FROM."""
    source = select.args.get("from_")
    if source is None:
        return []
    consume(source, "this")
    joins = select.args.get("joins") or []
    return [(source.this, None), *((join.this, join) for join in joins)]


def item_name(node: exp.Expr) -> str:
    """Return the name of an item of FROM in expressions."""
    alias = node.args.get("alias")
    if alias is not None:
        return identifier(alias)
    if isinstance(node, exp.Table):
        return identifier(node.this)
    raise SyntaxProblem(
        "a query in FROM needs a name", node_span(node), hint="write (SELECT …) AS name"
    )
