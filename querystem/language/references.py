"""References to streams: the names, the windows and the places that a text gives them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp
from sqlglot.tokenizer_core import Token

from datastem.schema import StreamSchema
from datastem.types import Type
from querystem.expressions import TRUE
from querystem.language.bind import Binder, identifier
from querystem.language.drafts import DraftWindow
from querystem.language.errors import (
    BindProblem,
    NotYet,
    Span,
    SyntaxProblem,
    UnknownStream,
    WindowProblem,
)
from querystem.language.frames import refresh_start
from querystem.language.grammar import WindowNode
from querystem.language.lookups import bind_lookup
from querystem.language.names import nearest
from querystem.language.parse import parse_refresh
from querystem.language.scan import span_of
from querystem.language.scope import Scope
from querystem.language.tails import WindowText
from querystem.language.tree import consume, node_span
from querystem.query import Leg

MAX_REFERENCES = 8

Lookup = Callable[[str], StreamSchema | None]
Names = Callable[[], Iterable[str]]


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a block in a text: the window that reaches it, whether that is its `own`, the
    queries that WITH names there, and, in an expression, the binder of the query `outer` to it."""

    frame: exp.Expr | None = None
    own: bool = False
    named: Mapping[str, NamedQuery] = field(default_factory=dict)
    outer: Binder | None = None

    def within(self, node: exp.Expr) -> Place:
        """The place inside a query, which may have a window, and names by WITH, of its own."""
        named = dict(self.named)
        here: set[str] = set()
        for cte in node.args.get("ctes") or ():
            name = identifier(cte.args["alias"])
            if name in here:
                raise BindProblem(
                    f"WITH names two queries {name}", node_span(cte), reason="DUPLICATE_NAME"
                )
            here.add(name)
            named[name] = NamedQuery(cte, Place(None, True, dict(named)))
        frame = node.args.get("frame")
        if frame is None:
            return replace(self, named=named)
        return Place(frame, True, named, self.outer)


@dataclass(frozen=True, slots=True)
class NamedQuery:
    """A query that WITH names, and the place it stands at."""

    node: exp.Expr
    place: Place


@dataclass
class TextBinding:
    """All that the parts of one text share: the streams, the parameters and where they are `used`,
    the texts of windows by their numbers, how many `references` to streams there are, the ids of
    the nodes of windows and of queries of WITH that were `reached`, and the stream of REFRESH ON
    (`trigger`)."""

    lookup: Lookup
    names: Names | None
    parameters: Mapping[str, Type | None]
    used: dict[str, Span] = field(default_factory=dict)
    windows: list[WindowText] = field(default_factory=list)
    references: int = 0
    reached: set[int] = field(default_factory=set)
    trigger: StreamSchema | None = None

    def binder(self, scope: Scope) -> Binder:
        return Binder(scope, self.parameters, used=self.used)

    def window(self, text: WindowText) -> DraftWindow:
        """The window that a text will be read as."""
        self.windows.append(text)
        return DraftWindow(number=len(self.windows) - 1)

    def stream(self, table: exp.Expr) -> StreamSchema:
        """The stream that a reference names; raises UnknownStream."""
        name = identifier(table.this)
        schema = self.lookup(name)
        if schema is not None:
            return schema
        near = nearest(name, self.names()) if self.names else None
        hint = "create it with CREATE STREAM, or look at the list of streams"
        raise UnknownStream(
            f"there is no stream {name}",
            node_span(table.this),
            hint=f"did you mean {near}?" if near else hint,
        )

    def leg(self, table: exp.Expr, place: Place) -> tuple[Leg, StreamSchema]:
        """The leg of a reference to a stream; its window is read when parameters have values."""
        consume(table, "this", "alias", "frame")
        schema = self._counted(table)
        own = table.args.get("frame")
        frame = own if own is not None else place.frame
        self.reached.add(id(frame))
        window = self.window(window_text(frame, schema, node_span(table.this)))
        return Leg(schema.name, TRUE, window, place.own or own is not None), schema

    def looked_up(self, table: exp.Expr, before: Scope) -> tuple[Leg, StreamSchema]:
        """The leg of a reference whose rows are looked up for items before it in FROM."""
        consume(table, "this", "alias", "frame", "version")
        schema = self._counted(table)
        as_of, beside = bind_lookup(table, schema, before)
        text = WindowText(schema, (), node_span(table.this), beside=beside)
        return Leg(schema.name, TRUE, self.window(text), True, as_of), schema

    def _counted(self, table: exp.Expr) -> StreamSchema:
        """The stream of a reference, of which there are not too many."""
        schema = self.stream(table)
        self.references += 1
        if self.references > MAX_REFERENCES:
            raise BindProblem(
                f"a query has at most {MAX_REFERENCES} references to streams",
                node_span(table),
                hint="register parts of it on their own",
                reason="TOO_MANY_REFERENCES",
            )
        return schema

    def check_reached(self, node: exp.Expr) -> None:
        """Refuses the window of a query that no stream takes, and a name of WITH that is not
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
    """The window of a reference at `place`, where it has one."""
    if frame is None:
        return WindowText(schema, (), place)
    assert isinstance(frame, WindowNode)
    tokens = frame.args["tokens"]
    if not frame.args["of_item"]:
        return WindowText(schema, tokens, place)
    end, turn = node_span(frame).end, refresh_start(tokens, 0, len(tokens))
    refresh = parse_refresh(tokens[turn:], end, _refuse_rows)
    period = refresh.period if refresh else ()
    return WindowText(schema, tokens[:turn], place, end, period=period)


def _refuse_rows(tokens: Sequence[Token]) -> exp.Expr:
    raise NotYet(
        "REFRESH ON inside WINDOW()",
        span_of(tokens[0]).to(span_of(tokens[-1])),
        hint="write it after the query, or REFRESH EVERY duration inside WINDOW()",
    )


def references(select: exp.Expr) -> list[tuple[exp.Expr, exp.Expr | None]]:
    """The items of a FROM, each after the first with its join; raises SyntaxProblem without any."""
    source = select.args.get("from_")
    if source is None:
        raise SyntaxProblem("FROM is missing", node_span(select), hint="write SELECT … FROM stream")
    consume(source, "this")
    joins = select.args.get("joins") or []
    return [(source.this, None), *((join.this, join) for join in joins)]


def item_name(node: exp.Expr) -> str:
    """The name of an item of FROM in expressions."""
    alias = node.args.get("alias")
    if alias is not None:
        return identifier(alias)
    if isinstance(node, exp.Table):
        return identifier(node.this)
    raise SyntaxProblem(
        "a query in FROM needs a name", node_span(node), hint="write (SELECT …) AS name"
    )
