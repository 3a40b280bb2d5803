"""Functions of texts: sizes are bounded, patterns may differ from row to row."""

from __future__ import annotations

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from datastem.errors import TooMuchText
from datastem.schema import Column, StreamSchema
from datastem.types import BIGINT, TEXT
from querystem.index.batch import ProbeBatch
from querystem.index.formula import Condition
from querystem.kernel import evaluate, evaluation, matches, text_functions
from querystem.language import bind_query
from querystem.query import Query

_LOOKUP = {"s": StreamSchema("s", (Column("a", TEXT), Column("b", TEXT), Column("n", BIGINT)))}.get
MIB = 1 << 20


def bound(text: str) -> Query:
    return bind_query(text, _LOOKUP)


def values(expression: str, batch: pa.RecordBatch) -> list[object]:
    query = bound(f"SELECT {expression} AS x FROM s")
    got: list[object] = evaluate(query.outputs[0].expression, batch).to_pylist()
    return got


def batch(a: list[str | None], b: list[str | None], n: list[int] | None = None) -> pa.RecordBatch:
    arrays = [pa.array(a, pa.string()), pa.array(b, pa.string())]
    return pa.record_batch([*arrays, pa.array(n or [0] * len(a))], names=["a", "b", "n"])


@pytest.mark.parametrize("expression", ["a || b", "concat(a, b)", "replace(a || 'x', 'x', b)"])
def test_a_text_past_the_limit_is_null(expression: str) -> None:
    half = "é" * (MIB // 4)
    rows = batch([half, half, "a"], [half, half + "y", "b"])
    exact, longer, short = values(expression, rows)
    assert exact == half + half
    assert longer is None
    assert short == "ab"


def test_replace_counts_before_it_makes_the_text() -> None:
    rows = batch(["a" * 1000, "a"], ["b" * 2000, "c"])
    assert values("replace(a, 'a', b)", rows) == [None, "c"]
    # Nested replacements grow by the length of the text each time.
    nested = "a"
    for _ in range(20):
        nested = f"replace({nested}, 'a', 'aaaaaaaaaaaaaaaa')"
    assert values(nested, rows) == [None, None]


def test_much_text_is_evaluated_in_smaller_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_functions, "MAX_BATCH_BYTES", 100)
    a: list[str | None] = [chr(97 + place % 26) * (place % 40) for place in range(200)]
    rows = batch(a, ["x"] * 200)
    assert values("a || b", rows) == [f"{text}x" for text in a]
    where = bound("SELECT n FROM s WHERE length(a || b) > 20").leg.where
    assert matches(where, rows).tolist() == [len(text or "") > 19 for text in a]
    probe = ProbeBatch(rows).mask(Condition(where, True))
    assert probe.tolist() == matches(where, rows).tolist()


def test_a_column_of_texts_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_functions, "MAX_BATCH_BYTES", 1000)
    monkeypatch.setattr(evaluation, "MAX_COLUMN_BYTES", 5000)
    rows = batch(["a" * 10] * 1000, ["b"] * 1000)
    with pytest.raises(TooMuchText):
        values("a || b", rows)
    assert values("length(a || b)", rows) == [11] * 1000


_PATTERNS = ["", "a", "b", "é", "日本", "ab", "𝄞", None]


@pytest.mark.parametrize(
    "expression",
    [
        "replace(a, b, 'zz')",
        "replace(a, b, b)",
        "strpos(a, b)",
        "starts_with(a, b)",
        "left(a, n)",
        "right(a, n)",
        "greatest(a, b)",
        "least(a, b, 'b')",
        "concat(a, b, 'x')",
        "a || b || a",
        "split_part(a, 'a', n)",
        "mod(n, 3)",
        "sign(n)",
    ],
)
def test_differential_texts(expression: str) -> None:
    random = np.random.default_rng(5)
    letters = np.array(["a", "b", "é", "日", "本", "𝄞", " "])
    a = ["".join(random.choice(letters, random.integers(0, 9))) for _ in range(500)]
    rows = batch(
        [None if random.integers(9) == 0 else text for text in a],
        [_PATTERNS[place] for place in random.integers(0, len(_PATTERNS), 500)],
        random.integers(-6, 7, 500).tolist(),
    )
    with duckdb.connect(":memory:", config={"threads": 1}) as duck:
        duck.register("s", pa.Table.from_batches([rows]))
        expected = [row[0] for row in duck.execute(f"SELECT {expression} FROM s").fetchall()]
    assert values(expression, rows) == expected
