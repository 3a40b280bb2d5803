"""Comments, blanks and new lines may stand between any two tokens, and change nothing."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from querystem.language import CreateStream, QueryError, bind_window, parse_statement
from tests.docs.test_language import statements
from tests.querystem.language.support import TRADES, bind, where
from tests.querystem.language.test_golden import GOLDEN, texts_of
from tests.support.docs.markdown import blocks, read

# A scanner of its own: texts and names in quotes, numbers, words, parameters, signs.
TOKEN = re.compile(
    r"""'(?:[^']|'')*' | "(?:[^"]|"")*" | (?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)? |
        :?[A-Za-z_]\w* | <> | != | <= | >= | \S""",
    re.VERBOSE | re.ASCII,
)
COMMENT = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)
BETWEEN = st.sampled_from(
    [" ", "\n", "\t ", "/**/", " /* GROUP BY */ ", "/*+ x */", " -- it's\n", "\r\n", "/* a\n;*/"]
)


def _pages() -> list[str]:
    texts = []
    for page in ("docs/reference/language.md", "README.md"):
        for block in blocks(read(page), "sql"):
            texts += [] if block.words else statements(block.text)
    return texts


def _corpus() -> list[tuple[Callable[[str], object], str]]:
    corpus: list[tuple[Callable[[str], object], str]] = [
        (_definition, text) for text in _pages() if not re.match(r"\s*(SELECT|WITH)\b", text)
    ]
    for name in ("queries.txt", "refreshes.txt", "trees.txt"):
        corpus += [(bind, text) for text in texts_of(GOLDEN / name)]
    corpus += [(where, text) for text in texts_of(GOLDEN / "normal_forms.txt")]
    corpus += [(_window, text) for text in texts_of(GOLDEN / "windows.txt")]
    return corpus


def _definition(text: str) -> object:
    statement = parse_statement(text)
    return statement.schema if isinstance(statement, CreateStream) else statement.name


def _window(text: str) -> object:
    return bind_window(text, TRADES)


CORPUS = _corpus()


def tokens_of(text: str) -> list[str]:
    return TOKEN.findall(COMMENT.sub(" ", text))


@settings(max_examples=400)
@given(st.data(), st.sampled_from(CORPUS))
def test_between_all_tokens(data: st.DataObject, one: tuple[Callable[[str], object], str]) -> None:
    meaning, text = one
    tokens = tokens_of(text)
    gaps = data.draw(st.lists(BETWEEN, min_size=len(tokens), max_size=len(tokens)))
    spread = "".join(token + gap for token, gap in zip(tokens, gaps, strict=True))
    assert meaning(spread) == meaning(text), spread


@pytest.mark.parametrize("gap", ["/* x */", " -- x\n", "\n\t"])
def test_every_text_of_the_corpus(gap: str) -> None:
    for meaning, text in CORPUS:
        spread = gap.join(tokens_of(text))
        assert meaning(spread) == meaning(text), spread


@pytest.mark.parametrize(
    "text",
    [
        "SELECT count(*) AS n FROM trades GROUP /* x */ BY symbol",
        "SELECT symbol FROM trades ORDER -- x\n BY price",
        "SELECT symbol FROM trades ROWS 1 PARTITION /* a */ /* b */ BY symbol",
        "SELECT CAST(price AS DECIMAL /* p */ (10, /* s */ 2)) AS p FROM trades",
        "SELECT symbol FROM trades WHERE symbol IS /* x */ NOT /* y */ NULL",
        "SELECT symbol FROM trades WHERE symbol IS NOT /**/ DISTINCT /**/ FROM 'a'",
        "SELECT symbol FROM trades REFRESH /* x */ EVERY /* y */ 5 /* z */ MINUTES",
    ],
)
def test_keywords_of_several_words(text: str) -> None:
    assert bind(text) == bind(COMMENT.sub(" ", text))


def test_a_word_in_quotes_is_no_half_of_a_keyword() -> None:
    with pytest.raises(QueryError):
        bind('SELECT count(*) AS n FROM trades "group" BY symbol')
    assert bind('SELECT symbol AS "group" FROM trades ORDER BY "group"').order_by
