"""Nothing is accepted and ignored; nothing but QueryError comes out, whatever goes in."""

from __future__ import annotations

import duckdb
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sqlglot import exp

from querystem.language import (
    NotYet,
    QueryError,
    SyntaxProblem,
    bind_query,
    bind_window,
    parse_statement,
    window_text,
)
from querystem.language.expressions.bind import _HANDLERS
from querystem.language.syntax import parse, tree
from querystem.language.syntax.parse import parse_query
from querystem.language.syntax.tree import consume
from querystem.language.tokens.dialect import PAIRS, PSoupTokenizer
from querystem.language.tokens.names import RESERVED
from querystem.query_json import query_form, read_form
from tests.querystem.language.support import TRADES, TRADES_SQL, bind, schema_of
from tests.querystem.language.test_golden import GOLDEN, texts_of

QUERIES = [
    "SELECT symbol, price FROM trades WHERE symbol = 'IBM' AND (price > 184.5 OR size >= 10000)",
    "SELECT t.price * 2 AS twice, - t.size FROM trades AS t WHERE NOT t.size BETWEEN 1 AND 5",
    "SELECT CASE size WHEN 1 THEN 'a' WHEN 2 THEN 'b' ELSE 'c' END AS x FROM trades",
    "SELECT CASE WHEN ok THEN 1 END AS x, * FROM trades WHERE symbol NOT LIKE 'a!%' ESCAPE '!'",
    "SELECT size FROM trades WHERE size NOT IN ( 1 , 2 , NULL ) OR ok IS NOT TRUE",
    "SELECT size FROM trades WHERE size IS NOT NULL AND price IS NOT DISTINCT FROM 5.5",
    "SELECT CAST ( size AS DECIMAL ( 10 , 2 ) ) AS x FROM trades WHERE day < DATE '2026-01-01'",
    "SELECT extract ( hour FROM ts ) AS h FROM trades WHERE coalesce ( size , 0 ) % 3 = 1",
    "SELECT substring ( symbol FROM 1 FOR 2 ) AS x FROM trades WHERE round ( price , 1 ) / 2 > 1",
    "SELECT symbol , avg ( price ) AS mean FROM trades GROUP BY symbol HAVING count ( * ) > 3",
    "SELECT count ( DISTINCT symbol ) , sum ( size ) / count ( * ) AS x FROM trades WHERE ok",
    "SELECT size % 3 AS k , first ( price ) FROM trades GROUP BY k , venue ORDER BY k DESC LIMIT 5",
    "SELECT DISTINCT symbol , price FROM trades ORDER BY price NULLS FIRST , 1 LIMIT 10 OFFSET 2",
    "SELECT * FROM trades ORDER BY price * size DESC NULLS LAST , row_id ASC OFFSET 3",
    "SELECT size IS DISTINCT FROM 1 AS a , max ( price ) FROM trades GROUP BY 1 ORDER BY 2",
    "SELECT t.price , u.* FROM trades AS t , trades u WHERE t.size = u.size AND t.ok",
    "SELECT t.price FROM trades t JOIN trades AS u ON t.size = u.size CROSS JOIN trades AS v",
    "SELECT symbol FROM trades INNER JOIN trades AS u USING ( symbol , venue ) WHERE u.ok",
    "SELECT x.s FROM ( SELECT symbol AS s , price FROM trades WHERE ok ) AS x WHERE x.price > 3",
    "SELECT size FROM trades UNION ALL ( SELECT size FROM trades ) ORDER BY 1 LIMIT 3",
    "WITH x AS ( SELECT size AS s FROM trades ) , y AS ( SELECT s FROM x ) SELECT s FROM y",
]
WINDOWS = [
    "RANGE 10 MINUTES",
    "BEGIN NOW - 1 HOUR END NOW",
    "BEGIN '2026-01-01' END NOW - 5",
    "BEGIN ROW 10 END ROW LAST",
    "BEGIN ROW LAST - 9 END ROW LAST - 2",
    "RANGE 10 MINUTES SLIDE 1 MINUTE",
    "ROWS 100 SLIDE 10",
    "ROWS 5 PARTITION BY symbol , venue",
]
WORDS = sorted({word for query in QUERIES for word in query.split()})
PIECES = [
    *WORDS,
    *sorted({word for window in WINDOWS for word in window.split()}),
    "INTERVAL", "SLIDE", "ROWS", "JOIN", "GROUP", "BY", ":p", ";", ".", "::", "||", "[", "]", "{",
    "}", "#", "@", "!", "~", "\\", '"', "'", "--", "/*", "*/", "\x00",
    "é", "1e5", ".5", "1.", "0x1F", "OVER", "WITH", "ALL", "ANY", "EXISTS", "UNION", "VALUES",
]  # fmt: skip
TREES = texts_of(GOLDEN / "trees.txt")
TREE_PIECES = sorted({word for text in TREES for word in text.split()})


def refused_or_done(action, text: str) -> bool:
    try:
        action(text)
    except QueryError as problem:
        assert str(problem) and problem.reason.isupper()
        assert "sqlglot" not in str(problem) and "<class" not in str(problem)
        assert problem.span is None or 0 <= problem.span.start < problem.span.end
        assert problem.line <= text.count("\n") + 1
        return False
    return True


def everything(text: str) -> None:
    refused_or_done(bind, text)
    refused_or_done(parse_statement, text)
    refused_or_done(lambda window: bind_window(window, TRADES), text)


@given(st.text(max_size=60))
@example("SELECT " + "(" * 40)
@example("\ud800")
def test_garbage_is_refused(text: str) -> None:
    everything(text)
    refused_or_done(bind, f"SELECT {text} FROM trades")
    refused_or_done(bind, f"SELECT * FROM trades WHERE {text}")
    refused_or_done(bind, f"SELECT * FROM trades {text}")


@given(st.lists(st.sampled_from(PIECES), max_size=14))
def test_word_salad_is_refused_or_bound(words: list[str]) -> None:
    text = " ".join(words)
    everything(text)
    refused_or_done(bind, f"SELECT * FROM trades WHERE {text}")


@st.composite
def mutated(draw: st.DrawFn, texts: list[str], pieces: list[str] = PIECES) -> str:
    words = draw(st.sampled_from(texts)).split(" ")
    for _ in range(draw(st.integers(1, 2))):
        at = draw(st.integers(0, len(words) - 1))
        match draw(st.sampled_from(["drop", "double", "swap", "insert"])):
            case "drop":
                del words[at]
            case "double":
                words.insert(at, words[at])
            case "swap":
                swapped = draw(st.integers(0, len(words) - 1))
                words[at], words[swapped] = words[swapped], words[at]
            case "insert":
                words.insert(at, draw(st.sampled_from(pieces)))
        if not words:
            break
    return " ".join(words)


@given(mutated([TRADES_SQL, "DROP STREAM trades"]))
def test_a_mutated_definition_is_refused_or_means_what_it_says(text: str) -> None:
    refused_or_done(parse_statement, text)


@given(mutated(WINDOWS))
def test_a_mutated_window_is_refused_or_means_what_it_says(text: str) -> None:
    if refused_or_done(lambda window: bind_window(window, TRADES), text):
        window = bind_window(text, TRADES)
        assert bind_window(window_text(window), TRADES) == window


@given(mutated(TREES, TREE_PIECES))
def test_a_mutated_tree_is_refused_or_read_back(text: str) -> None:
    if refused_or_done(bind, text):
        query = bind(text)
        assert read_form(query_form(query), query.predicate_keys) == query


@given(mutated(QUERIES, WORDS))
def test_differential_what_we_accept_is_sql(text: str) -> None:
    """Our parser is never more lenient than DuckDB's."""
    if refused_or_done(bind, text):
        (answer,) = duckdb.execute("SELECT json_serialize_sql(?)", [text]).fetchone() or ("",)
        assert '"error":false' in answer, text


@pytest.mark.parametrize("query", QUERIES)
def test_every_part_of_every_node_is_consumed(query: str) -> None:
    """A part sqlglot would add to any node of ours is refused, not dropped."""
    for node in parse_query(query, 10_000).walk():
        if type(node) in _HANDLERS:
            present = {name for name, part in node.args.items() if part}
            node.set("surprise", exp.Null())
            with pytest.raises(SyntaxProblem, match="SURPRISE"):
                consume(node, *present)
            node.set("surprise", None)


@pytest.mark.parametrize(
    "clause",
    [
        "INTO x", "TABLESAMPLE (5)", "FOR UPDATE", "QUALIFY true", "CLUSTER BY a", "PREWHERE ok",
        "LATERAL VIEW x", "PIVOT (a)", "FINAL", "CONNECT BY ok", "FETCH FIRST 3 ROWS ONLY", "ONLY",
        "FORMAT JSON", "AS OF '2026-01-01'", "t u", "AS t WITH (nolock)", "USING (a)", "NATURAL x",
    ],
)  # fmt: skip
def test_clauses_of_other_dialects_are_refused(clause: str) -> None:
    if clause == "FINAL" or clause == "ONLY":  # an alias, as any other word
        assert bind(f"SELECT price FROM trades {clause}").leg.stream == "trades"
        return
    with pytest.raises(QueryError):
        bind(f"SELECT price FROM trades {clause}")


@pytest.mark.parametrize("head", ["TOP 5", "STRAIGHT_JOIN", "AS STRUCT", "DISTINCT ON (a)"])
def test_words_before_the_outputs_are_refused(head: str) -> None:
    with pytest.raises(QueryError):
        bind(f"SELECT {head} price FROM trades")


def test_select_all_is_select() -> None:
    assert bind("SELECT ALL size FROM trades") == bind("SELECT size FROM trades")


def test_stars_take_no_exceptions() -> None:
    for star in ("* EXCEPT (price)", "* EXCLUDE price", "* REPLACE (1 AS price)", "t.* RENAME a"):
        with pytest.raises(QueryError):
            bind(f"SELECT {star} FROM trades t")


def test_every_keyword_is_reserved() -> None:
    words = {word.lower() for word in PSoupTokenizer.KEYWORDS}
    words |= {word.lower() for pair in PAIRS for word in pair}
    assert {word for word in words if word.isalpha()} - RESERVED == {"partition"}


@pytest.mark.parametrize(
    "name",
    """date timestamp time text key row index comment format value values type user first last desc
    asc set show table column columns schema view function interval_ current_date at zone day hour
    minute second year month week count sum min max stream create drop insert update delete merge
    replace temp temporary partition natural semi anti asof lateral pivot unpivot sample tablesample
    qualify cluster sort final only unique primary references check default array map struct json
    string int integer float double decimal bigint boolean varchar nullable unknown percent use
    describe pragma cache load copy fetch execute prepare grant revoke commit rollback start
    language if ignore respect nulls recursive ordinality unnest lock for rlike glob regexp similar
    overlaps collate escape_ retain ahead ordered length lower abs x'""".replace("'", "").split(),
)
def test_ordinary_words_are_names(name: str) -> None:
    schema = schema_of(f"CREATE STREAM s ({name} BIGINT)")
    text = f"SELECT {name}, s.{name} + {name} AS b FROM s WHERE {name} > 1 AND NOT {name} IN (2, 3)"
    assert [column.name for column in bind_query(text, lambda _: schema).columns] == [name, "b"]
    text = f"SELECT {name}, max({name}) AS b FROM s GROUP BY {name} ORDER BY {name} DESC, b"
    assert len(bind_query(f"{text} ROWS 3 PARTITION BY {name}", lambda _: schema).order_by) == 2


@pytest.mark.parametrize("name", sorted(RESERVED))
def test_reserved_words_are_names_in_quotes(name: str) -> None:
    schema = schema_of(f'CREATE STREAM "{name}" ("{name}" BIGINT)')
    text = f'SELECT "{name}" FROM "{name}" WHERE "{name}"."{name}" > :{name} RANGE 1 HOUR'
    assert bind_query(text, lambda _: schema, {name: 5}).columns[0].name == name
    if name in ("true", "false", "null"):
        return
    with pytest.raises(QueryError):
        bind_query(f'SELECT {name} FROM "{name}"', lambda _: schema)
    with pytest.raises(QueryError):
        bind_query(f'SELECT * FROM "{name}" WHERE {name} > 5', lambda _: schema)


@pytest.mark.parametrize(
    "condition",
    [
        "((" * 2000 + "ok" + "))" * 2000,
        "NOT " * 5000 + "ok",
        "- " * 5000 + "size > 1",
        "size" + " + size" * 5000 + " > 1",
        "CASE WHEN ok THEN " * 500 + "ok" + " END" * 500,
        "abs(" * 30 + "size" + ")" * 30 + " IN (" + "(" * 40 + "1" + ")" * 41,
    ],
)
def test_deep_nesting_is_refused(condition: str) -> None:
    with pytest.raises(SyntaxProblem) as caught:
        bind(f"SELECT * FROM trades WHERE {condition}")
    assert caught.value.reason == "NESTED_TOO_DEEP"


def test_long_lists_are_not_deep() -> None:
    terms = [f"size = {i}" for i in range(3000)]
    assert len(bind(f"SELECT * FROM trades WHERE {' OR '.join(terms)}").leg.where.args) == 3000  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("SELECT size" + ",size" * 30_000 + " FROM trades", "TEXT_TOO_LONG"),
        ("SELECT * FROM trades WHERE size IN (1" + ",1" * 10_000 + ")", "TEXT_TOO_LONG"),
        ("SELECT * FROM trades WHERE ok" + " OR ok" * 5_000, "TOO_MANY_TERMS"),
        ("SELECT * FROM trades WHERE " + "NOT " * 6_000 + "ok", "NESTED_TOO_DEEP"),
    ],
)
def test_much_is_counted_before_it_is_parsed(
    text: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parse, "_parse", lambda *_: pytest.fail("it is parsed"))
    with pytest.raises(SyntaxProblem) as caught:
        bind_query(text, lambda _: TRADES, max_text=1 << 20)
    assert caught.value.reason == reason
    assert caught.value.span is not None


def test_nodes_are_located_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of 80 nodes inside each other asks for its place, and none looks at all below it."""
    looks: list[int] = []
    parts = tree._parts

    def counted(node: exp.Expr) -> list[exp.Expr]:
        looks.append(1)
        return parts(node)

    monkeypatch.setattr(tree, "_parts", counted)
    bind("SELECT * FROM trades WHERE size" + " + size" * 80 + " > 1")
    assert len(looks) < 1500


def test_a_window_alone_has_a_small_limit() -> None:
    with pytest.raises(SyntaxProblem) as caught:
        bind_window("ROWS 5 PARTITION BY " + "symbol, " * 200 + "symbol", TRADES)
    assert caught.value.reason == "TEXT_TOO_LONG"


def test_text_has_a_limit() -> None:
    with pytest.raises(SyntaxProblem) as caught:
        bind("SELECT '" + "é" * 40_000 + "' AS x FROM trades")
    assert caught.value.reason == "TEXT_TOO_LONG"


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM trades REFRESH ON quotes, alarms",
        "SELECT sum(price) OVER (PARTITION BY symbol ORDER BY at) FROM trades",
    ],
)
def test_what_comes_later_says_so(text: str) -> None:
    with pytest.raises(NotYet, match="not yet supported"):
        bind(text)
