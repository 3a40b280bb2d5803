"""The grammar of queries: SELECT and its clauses, FROM with joins, set operations, WITH.

Windows are set apart before anything is parsed (`frames`); here each is one token.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from querystem.language.syntax.frames import (
    REFRESH_AT_END,
    WINDOW_AT_END,
    WINDOW_OF_ITEM,
    refresh_start,
)
from querystem.language.syntax.refreshes import ParsedRefresh, parse_refresh
from querystem.language.tokens.dialect import ExpressionParser

_SET_OPERATORS: dict[TokenType, tuple[int, type[exp.SetOperation]]] = {
    TokenType.UNION: (1, exp.Union),
    TokenType.EXCEPT: (1, exp.Except),
    TokenType.INTERSECT: (2, exp.Intersect),
}
_JOINS = (TokenType.INNER, TokenType.LEFT, TokenType.RIGHT, TokenType.FULL, TokenType.CROSS)
_OUTER = (TokenType.LEFT, TokenType.RIGHT, TokenType.FULL)
_QUERY = (TokenType.SELECT, TokenType.WITH)


class WindowNode(exp.Expression):
    """A window as its tokens: `of_item` if it is written WINDOW(…), with the REFRESH inside."""

    arg_types: ClassVar[dict[str, bool]] = {"tokens": False, "of_item": False, "refresh": False}


class QueryParser(ExpressionParser):
    """The parser of whole queries; `runs` has the tokens of each window and REFRESH, by its place,
    and `parse_rows` parses the rows of REFRESH ON."""

    runs: Mapping[int, Sequence[Token]] = {}
    parse_rows: Callable[[list[Token]], exp.Expr]

    def _parse_statement(self) -> exp.Expr | None:
        return self._query()

    def _parse_select(self, *args: Any, **kwargs: Any) -> exp.Expr | None:
        """Return the query that begins here; None if something else does."""
        return self._query() if self._curr.token_type in _QUERY else None

    # ---- queries and blocks

    def _query(self) -> exp.Expr:
        first, ctes = self._curr, self._with()
        query = self._set_operation()
        for name, part in self._whole().items():
            if part is not None:
                query.set(name, part)
        if self._curr.token_type in _SET_OPERATORS:
            self.raise_error(
                "before a set operation ORDER BY and LIMIT need parentheses around the query"
            )
        if ctes:
            query.set("ctes", ctes)
        self._spread(first, query)
        return query

    def _whole(self) -> dict[str, Any]:
        """Return the clauses that belong to a whole query: of one block, or of a set operation."""
        return {
            "order": self._clause(TokenType.ORDER_BY, self._order),
            "limit": self._clause(TokenType.LIMIT, self._limit),
            "offset": self._clause(TokenType.OFFSET, self._offset),
            "frame": self._frame(WINDOW_AT_END),
            "refresh": self._refresh(),
        }

    def _with(self) -> list[exp.Expr]:
        if not self._match(TokenType.WITH):
            return []
        if self._curr.text.upper() == "RECURSIVE" and self._next.token_type != TokenType.ALIAS:
            self.raise_error("queries can't be recursive")
        return self._listed(self._named_query)

    def _named_query(self) -> exp.Expr:
        first, name = self._curr, self._parse_id_var(any_token=False)
        if name is None:
            self.raise_error("expected a name after WITH")
        if self._curr.token_type == TokenType.L_PAREN:
            self.raise_error("no list of columns follows the name; name the outputs with AS")
        self._expect(TokenType.ALIAS, "AS")
        self._expect(TokenType.L_PAREN, "( after AS")
        query = self._query()
        self._expect(TokenType.R_PAREN, ")")
        cte = self.expression(exp.CTE(this=query, alias=name))
        self._spread(first, cte)
        return cte

    def _set_operation(self, least: int = 1) -> exp.Expr:
        """Return the blocks from here on, with the set operators that bind at least as strongly."""
        first, query = self._curr, self._block()
        while (operator := _SET_OPERATORS.get(self._curr.token_type)) and operator[0] >= least:
            binding, kind = operator
            self._advance()
            distinct = not self._match(TokenType.ALL)
            if distinct:
                self._match(TokenType.DISTINCT)
            branch = self._set_operation(binding + 1)
            query = self.expression(kind(this=query, expression=branch, distinct=distinct))
            self._spread(first, query)
        return query

    def _block(self) -> exp.Expr:
        """Return a SELECT without what belongs to a whole query, or a query in parentheses. A
        window that stands before a set operator is the block's own."""
        first = self._curr
        bracketed = self._match(TokenType.L_PAREN)
        block = self._subquery(self._query()) if bracketed else self._select()
        if self._next.token_type in _SET_OPERATORS:
            block.set("frame", self._frame(WINDOW_AT_END))
        self._spread(first, block)
        return block

    def _select(self) -> exp.Expr:
        self._expect(TokenType.SELECT, "SELECT")
        distinct = self._distinct()
        outputs = self._parse_csv(self._output)
        from_ = self._parse_from()
        select = exp.Select(
            expressions=outputs,
            distinct=distinct,
            from_=from_,
            joins=self._joins() if from_ else None,
            where=self._parse_where(),
            group=self._clause(TokenType.GROUP_BY, self._group),
            having=self._clause(TokenType.HAVING, self._having),
        )
        return self.expression(select)

    def _frame(self, kind: TokenType) -> exp.Expr | None:
        if not self._match(kind):
            return None
        tokens = self.runs[self._prev.start]
        if kind is WINDOW_AT_END:
            return self.expression(WindowNode(tokens=list(tokens), of_item=False))
        turn, end = refresh_start(tokens, 0, len(tokens)), self._prev.end + 1
        refresh = parse_refresh(tokens[turn:], end, self.parse_rows) if tokens[turn:] else None
        node = WindowNode(tokens=list(tokens[:turn]), of_item=True, refresh=refresh)
        return self.expression(node)

    def _refresh(self) -> ParsedRefresh | None:
        if not self._match(REFRESH_AT_END):
            return None
        tokens, after = self.runs[self._prev.start], self._curr
        end = after.end + 1 if after.token_type == TokenType.R_PAREN else len(self.sql)
        return parse_refresh(tokens, end, self.parse_rows)

    def _clause(self, word: TokenType, parse: Callable[[], exp.Expr]) -> exp.Expr | None:
        return parse() if self._match(word) else None

    # ---- FROM

    def _parse_from(self, *args: Any, **kwargs: Any) -> exp.From | None:
        if not self._match(TokenType.FROM):
            return None
        return self.expression(exp.From(this=self._item()))

    def _item(self) -> exp.Expr:
        """Return a stream or a query in parentheses, with its name here and its window in either
        order."""
        first = self._curr
        item = self._inner_query() if self._match(TokenType.L_PAREN) else self._stream()
        frame = self._frame(WINDOW_OF_ITEM)
        item.set("alias", self._item_alias())
        if frame is not None and self._curr.token_type == WINDOW_OF_ITEM:
            self.raise_error("a stream has one window here, not two")
        item.set("frame", frame or self._frame(WINDOW_OF_ITEM))
        self._spread(first, item)
        return item

    def _inner_query(self) -> exp.Expr:
        if self._curr.token_type not in (*_QUERY, TokenType.L_PAREN):
            self.raise_error("expected SELECT: parentheses in FROM hold a query")
        return self._subquery(self._query())

    def _stream(self) -> exp.Expr:
        name = self._parse_id_var(any_token=False)
        if name is None:
            self.raise_error("expected the name of a stream")
        if self._match(TokenType.DOT):
            self.raise_error("a stream has one name, without a point", self._prev)
        table = self.expression(exp.Table(this=name))
        table.set("version", self._version())
        return table

    def _version(self) -> exp.Expr | None:
        """Return the row in AS OF row.ts, or in AS KNOWN AT row."""
        words = [token.text.upper() for token in self._tokens[self._index : self._index + 4]]
        if words[:2] == ["AS", "OF"] and words[3:] == ["."]:
            self._advance(2)
            return self._row(2, "expected row.ts, with a row that stands before it in FROM")
        if words[:3] == ["AS", "KNOWN", "AT"]:
            self._advance(3)
            return self._row(1, "expected the name of a row that stands before it in FROM")
        return None

    def _row(self, names: int, message: str) -> exp.Expr:
        """Return a column that is written with this number of names, else fail."""
        row = self._parse_column()
        if not isinstance(row, exp.Column) or len(row.parts) != names:
            self.raise_error(message, self._prev)
        return row

    def _item_alias(self) -> exp.Expr | None:
        if self._curr.text.upper() == "NATURAL" and self._next.token_type == TokenType.JOIN:
            self.raise_error("the columns of a join are named")
        return self._alias()

    def _joins(self) -> list[exp.Expr]:
        joins = []
        while self._curr.token_type in (TokenType.COMMA, TokenType.JOIN, *_JOINS):
            joins.append(self._join())
        return joins

    def _join(self) -> exp.Expr:
        """Return an item after the first, with the way it is joined."""
        first, kind = self._curr, ""
        if self._match(TokenType.COMMA):
            join = self.expression(exp.Join(this=self._item()))
        else:
            if self._match_set(_JOINS):
                kind = self._prev.text.upper()
                if self._prev.token_type in _OUTER:
                    self._match(TokenType.OUTER)
            self._expect(TokenType.JOIN, "JOIN")
            join = self.expression(exp.Join(this=self._item(), kind=kind or "INNER"))
            self._conditions(join, kind)
        self._spread(first, join)
        return join

    def _conditions(self, join: exp.Expr, kind: str) -> None:
        if kind == "CROSS":
            if self._curr.token_type in (TokenType.ON, TokenType.USING):
                self.raise_error("no condition follows CROSS JOIN; write JOIN")
            return
        if self._match(TokenType.ON):
            join.set("on", self._needed(self._parse_disjunction()))
        elif self._match(TokenType.USING):
            self._expect(TokenType.L_PAREN, "( after USING")
            join.set("using", self._listed(lambda: self._parse_id_var(any_token=False)))
            self._expect(TokenType.R_PAREN, ")")
        else:
            self.raise_error("expected ON or USING: only CROSS JOIN has no condition")

    # ---- the other clauses

    def _distinct(self) -> exp.Expr | None:
        if self._match(TokenType.DISTINCT):
            distinct = self.expression(exp.Distinct(), self._prev)
            if self._curr.token_type == TokenType.ON:
                self.raise_error("all outputs are compared by DISTINCT, not some of them")
            return distinct
        self._match(TokenType.ALL)
        return None

    def _group(self) -> exp.Expr:
        return self.expression(exp.Group(expressions=self._listed(self._parse_disjunction)))

    def _having(self) -> exp.Expr:
        return self.expression(exp.Having(this=self._needed(self._parse_disjunction())))

    def _order(self) -> exp.Expr:
        return self.expression(exp.Order(expressions=self._listed(self._sort_key)))

    def _sort_key(self) -> exp.Expr | None:
        """Return a key of ORDER BY. NULLs are placed as in PostgreSQL: last, or first with DESC."""
        value = self._parse_disjunction()
        if value is None:
            return None
        descending = bool(self._match_text_seq("DESC"))
        if not descending:
            self._match_text_seq("ASC")
        nulls_first = descending
        if self._match_text_seq("NULLS"):
            nulls_first = bool(self._match_text_seq("FIRST"))
            if not nulls_first and not self._match_text_seq("LAST"):
                self.raise_error("expected FIRST or LAST after NULLS")
        return self.expression(exp.Ordered(this=value, desc=descending, nulls_first=nulls_first))

    def _limit(self) -> exp.Expr:
        if self._curr.token_type == TokenType.ALL:
            self.raise_error("expected a number; without LIMIT all rows are answered")
        return self.expression(exp.Limit(expression=self._needed(self._parse_disjunction())))

    def _offset(self) -> exp.Expr:
        return self.expression(exp.Offset(expression=self._needed(self._parse_disjunction())))

    def _output(self) -> exp.Expr | None:
        value = self._parse_disjunction()
        alias = self._alias() if value is not None else None
        return value if alias is None else self.expression(exp.Alias(this=value, alias=alias))

    def _parse_where(self, skip_where_token: bool = False) -> exp.Where | None:
        if not self._match(TokenType.WHERE):
            return None
        return self.expression(exp.Where(this=self._needed(self._parse_disjunction())))

    def _alias(self) -> exp.Expr | None:
        """Return the alias in `AS name`, or in a name alone; None without one."""
        if self._match(TokenType.ALIAS):
            alias = self._parse_id_var(any_token=False)
            if alias is None:
                self.raise_error("expected a name after AS")
            return alias
        if self._curr.token_type in (TokenType.VAR, TokenType.IDENTIFIER):
            return self._parse_id_var(any_token=False)
        return None
