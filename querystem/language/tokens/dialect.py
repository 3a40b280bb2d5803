"""Our dialect of SQL for sqlglot: few keywords, functions left to the binder, nothing optional.

sqlglot reads many dialects leniently. It would skip what is missing (THEN, the AND of BETWEEN, a
list item, a closing parenthesis); the productions here refuse that. Every node gets a position.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, NoReturn, TypeVar

from sqlglot import exp, parser, tokens
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ParseError
from sqlglot.tokenizer_core import Token, TokenType
from sqlglot.trie import new_trie

from querystem.language.tokens.names import is_unit_like, words
from querystem.pace import spending

_KEYWORDS = {
    "<=": TokenType.LTE,
    ">=": TokenType.GTE,
    "<>": TokenType.NEQ,
    "!=": TokenType.NEQ,
    "||": TokenType.DPIPE,
    "::": TokenType.DCOLON,
    "AS": TokenType.ALIAS,
} | {
    word: TokenType[word]
    for word in words(
        "ALL AND ANY BETWEEN CASE CROSS DISTINCT DIV ELSE END ESCAPE EXCEPT EXISTS FALSE "
        "FROM FULL HAVING ILIKE IN INNER INTERSECT INTERVAL IS JOIN LEFT LIKE LIMIT NOT "
        "NULL OFFSET ON OR OUTER OVER RIGHT SELECT THEN TRUE UNION USING WHEN WHERE WITH"
    )
}

# Keywords of two words. The scanner joins them, since the tokenizer would let only blanks, not
# comments, stand between the two.
PAIRS = {
    ("GROUP", "BY"): TokenType.GROUP_BY,
    ("ORDER", "BY"): TokenType.ORDER_BY,
    ("PARTITION", "BY"): TokenType.PARTITION_BY,
}

_Node = TypeVar("_Node", bound=exp.Expr)
_TYPED_LITERALS = ("DATE", "TIMESTAMP")


class Refused(ParseError):
    """A syntax error, and the token it was found at."""

    def __init__(self, message: str, token: Token) -> None:
        super().__init__(message)
        self.message = message
        self.token = token


def uncommented(text: str, tokens: Sequence[Token]) -> str:
    """Return the part of `text` that `tokens` come from, without comments between them."""
    written, end = "", tokens[0].start if tokens else 0
    for token in tokens:
        gap = text[end : token.start]
        written += (" " if gap.strip() else gap) + text[token.start : token.end + 1]
        end = token.end + 1
    return written


# Units (`querystem.pace`) of a node that is parsed.
_NODE_UNITS = 40_000


class PSoupTokenizer(tokens.Tokenizer):
    KEYWORDS = _KEYWORDS
    COMMANDS: ClassVar[set[TokenType]] = set()
    COMMENTS = ["--", ("/*", "*/")]


# sqlglot adds Jinja comments and N'national' strings to every dialect; we have neither.
PSoupTokenizer._COMMENTS = {"--": None, "/*": "*/"}
PSoupTokenizer._FORMAT_STRINGS = {}
PSoupTokenizer._KEYWORD_TRIE = new_trie(
    key for key in (*_KEYWORDS, "--", "/*", "'") if not key.isalpha()
)


class ExpressionParser(parser.Parser):
    """The parser of expressions, over sqlglot's grammar of them; `grammar` has that of queries."""

    FUNCTIONS: ClassVar[dict[str, Any]] = {}
    NO_PAREN_FUNCTIONS: ClassVar[dict[Any, Any]] = {}
    NO_PAREN_FUNCTION_PARSERS: ClassVar = {"CASE": lambda self: self._parse_case()}
    FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
        "CAST": lambda self: self._closed(self._cast()),
        "EXTRACT": lambda self: self._closed(self._extract()),
        "SUBSTRING": lambda self: self._closed(self._substring()),
    }
    RANGE_PARSERS: ClassVar = {
        kind: parser.Parser.RANGE_PARSERS[kind]
        for kind in (
            TokenType.BETWEEN,
            TokenType.IN,
            TokenType.IS,
            TokenType.LIKE,
            TokenType.ILIKE,
        )
    }
    COLUMN_OPERATORS: ClassVar = {TokenType.DOT: None}
    COLON_PLACEHOLDER_TOKENS: ClassVar = {TokenType.IDENTIFIER}
    UNARY_PARSERS: ClassVar = {
        TokenType.NOT: parser.Parser.UNARY_PARSERS[TokenType.NOT],
        TokenType.DASH: parser.Parser.UNARY_PARSERS[TokenType.DASH],
        TokenType.PLUS: lambda self: self.expression(
            exp.Anonymous(this="+", expressions=[self._needed(self._parse_unary())])
        ),
    }

    def raise_error(self, message: str, token: Token | None = None) -> NoReturn:
        raise Refused(message, token or self._curr or self._prev)

    def expression(
        self, instance: _Node, token: Token | None = None, comments: Any = None
    ) -> _Node:
        spending()(_NODE_UNITS)
        instance = super().expression(instance, token, comments)
        if "start" not in instance.meta:
            instance.update_positions(self._prev)
        return instance

    def _needed(self, node: exp.Expr | None) -> exp.Expr:
        if node is None:
            self.raise_error("an expression is missing")
        return node

    def _expect(self, kind: TokenType, what: str) -> None:
        if not self._match(kind):
            self.raise_error(f"expected {what}")

    def _closed(self, node: exp.Expr) -> exp.Expr:
        if self._curr.token_type != TokenType.R_PAREN:
            self.raise_error("expected )")
        return node

    def _parse_function_call(self, *args: Any, **kwargs: Any) -> exp.Expr | None:
        first = self._curr
        return self._spread(first, super()._parse_function_call(*args, **kwargs))

    def _parse_function_args(self, alias: bool = False) -> list[exp.Expr]:
        query = self._parse_select()
        if query is not None:
            return [self.expression(exp.Subquery(this=query))]
        if not self._match(TokenType.DISTINCT):
            return self._parse_csv(self._parse_disjunction)
        word = self._prev
        args = self._listed(self._parse_disjunction)
        return [self.expression(exp.Distinct(expressions=args), word)]

    def _parse_window(self, this: exp.Expr | None, alias: bool = False) -> exp.Expr | None:
        """Parse nothing: no FILTER, IGNORE NULLS or OVER follows the parentheses of a call."""
        return this

    def _parse_paren(self) -> exp.Expr | None:
        first = self._curr
        if not self._match(TokenType.L_PAREN):
            return None
        query = self._parse_select()
        if query is not None:
            return self._spread(first, self._subquery(query))
        inner = self._needed(self._parse_disjunction())
        if self._curr.token_type == TokenType.COMMA:
            self.raise_error("rows of values can't be compared; compare one value at a time")
        self._expect(TokenType.R_PAREN, ")")
        return self._spread(first, self.expression(exp.Paren(this=inner)))

    def _subquery(self, query: exp.Expr) -> exp.Expr:
        """Return a query in parentheses; only the closing one is not read yet."""
        self._expect(TokenType.R_PAREN, ")")
        return self.expression(exp.Subquery(this=query))

    def _parse_at_time_zone(self, this: exp.Expr | None) -> exp.Expr | None:
        while this is not None and self._match_text_seq("AT", "TIME", "ZONE"):
            zone = self._needed(self._parse_unary())
            this = self.expression(exp.AtTimeZone(this=this, zone=zone))
        return this

    def _spread(self, first: Token, node: exp.Expr | None) -> exp.Expr | None:
        """Set the position of the node: from its first token to the one just read."""
        if node is None:
            return None
        return node.update_positions(
            line=first.line, col=first.col, start=first.start, end=self._prev.end
        )

    def _parse_csv(self, parse_method: Any, sep: TokenType = TokenType.COMMA) -> list[Any]:
        first = parse_method()
        if first is None and self._curr.token_type != sep:
            return []
        items = [self._needed(first)]
        while self._match(sep):
            items.append(self._needed(parse_method()))
        return items

    def _listed(self, parse_method: Any) -> list[Any]:
        return self._parse_csv(lambda: self._needed(parse_method()))

    def _parse_is(self, this: exp.Expr | None) -> exp.Expr | None:
        if self._tokens[self._index - 2].token_type == TokenType.NOT:
            self.raise_error("the order is IS NOT", self._prev)
        return super()._parse_is(this)

    def _parse_between(self, this: exp.Expr | None) -> exp.Between:
        low = self._needed(self._parse_bitwise())
        self._expect(TokenType.AND, "the AND of BETWEEN")
        high = self._needed(self._parse_bitwise())
        return self.expression(exp.Between(this=this, low=low, high=high))

    def _parse_in(self, this: exp.Expr | None, alias: bool = False) -> exp.In:
        self._expect(TokenType.L_PAREN, "( after IN")
        query = self._parse_select()
        if query is not None:
            return self.expression(exp.In(this=this, query=self._subquery(query)))
        values = self._parse_csv(self._parse_disjunction)
        self._expect(TokenType.R_PAREN, ")")
        return self.expression(exp.In(this=this, expressions=values))

    def _parse_case(self) -> exp.Expr:
        subject = None
        if self._curr.token_type != TokenType.WHEN:
            subject = self._needed(self._parse_disjunction())
        branches = []
        while self._match(TokenType.WHEN):
            condition = self._needed(self._parse_disjunction())
            self._expect(TokenType.THEN, "THEN")
            value = self._needed(self._parse_disjunction())
            branches.append(self.expression(exp.If(this=condition, true=value)))
        if not branches:
            self.raise_error("expected WHEN")
        default = None
        if self._match(TokenType.ELSE):
            default = self._needed(self._parse_disjunction())
        self._expect(TokenType.END, "the END of CASE")
        return self.expression(exp.Case(this=subject, ifs=branches, default=default))

    def _parse_type(
        self, parse_interval: bool = True, fallback_to_identifier: bool = False
    ) -> exp.Expr | None:
        token = self._curr
        if token.token_type == TokenType.INTERVAL:
            return self._interval()
        if (
            token.token_type == TokenType.VAR
            and token.text.upper() in _TYPED_LITERALS
            and self._next.token_type == TokenType.STRING
        ):
            self._advance()
            to = self.expression(exp.Var(this=token.text.upper()), token)
            return self.expression(exp.Cast(this=self._parse_string(), to=to), token)
        return self._parse_column()

    def _interval(self) -> exp.Expr:
        """Return INTERVAL with a number and perhaps a unit, as written; the binder reads both."""
        first = self._curr
        self._advance()
        if not self._match_set((TokenType.STRING, TokenType.NUMBER)):
            self.raise_error("expected a number after INTERVAL")
        amount = self.expression(exp.Literal(this=self._prev.text, is_string=True), self._prev)
        interval = self.expression(exp.Interval(this=amount), first)
        if self._curr.token_type == TokenType.VAR and is_unit_like(self._curr.text):
            self._advance()
            # The constructor of Interval would replace the unit by one without a place.
            interval.set("unit", self.expression(exp.Var(this=self._prev.text), self._prev))
        self._spread(first, interval)
        return interval

    def _cast(self) -> exp.Expr:
        """Return a CAST whose `to` is a Var with the type as written; the binder reads it."""
        name = self._tokens[self._index - 2]
        this = self._needed(self._parse_disjunction())
        self._expect(TokenType.ALIAS, "AS and a type")
        first, start, depth = self._curr, self._index, 0
        while self._curr and (depth or self._curr.token_type != TokenType.R_PAREN):
            depth += {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}.get(self._curr.token_type, 0)
            self._advance()
        if self._prev.token_type == TokenType.ALIAS:
            self.raise_error("expected a type")
        written = uncommented(self.sql, self._tokens[start : self._index])
        to = exp.Var(this=written).update_positions(
            line=first.line, col=first.col, start=first.start, end=self._prev.end
        )
        return self.expression(exp.Cast(this=this, to=to), name)

    def _extract(self) -> exp.Expr:
        name = self._tokens[self._index - 2]
        if not self._match_set((TokenType.VAR, TokenType.STRING)):
            self.raise_error("expected a unit such as HOUR")
        unit = self.expression(exp.Literal(this=self._prev.text, is_string=True), self._prev)
        if not self._match(TokenType.FROM):
            self._expect(TokenType.COMMA, "FROM")
        moment = self._needed(self._parse_disjunction())
        return self.expression(exp.Anonymous(this="extract", expressions=[unit, moment]), name)

    def _substring(self) -> exp.Expr:
        name = self._tokens[self._index - 2]
        args = self._parse_csv(self._parse_disjunction)
        if len(args) == 1 and self._match(TokenType.FROM):
            args.append(self._needed(self._parse_disjunction()))
            if self._match_text_seq("FOR"):
                args.append(self._needed(self._parse_disjunction()))
        return self.expression(exp.Anonymous(this="substring", expressions=args), name)


class PSoup(Dialect):
    Tokenizer = PSoupTokenizer
    Parser = ExpressionParser
