"""Families of queries on texts for the kernel's benchmark: LIKE, equal expressions, lists, OR.

Opponents are those of `kernel_families`: each returns the rows of each query.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.kernel_families import ROWS, Opponent, Pairs, by_query, duckdb_join
from datastem.types import BIGINT, BOOLEAN, DOUBLE, TEXT
from querystem.expressions import Call, ColumnRef, Expression, Literal, Op
from querystem.language.normal_form.normal import normal, sort_key

NAME, CODE, OTHER = ColumnRef("name", TEXT), ColumnRef("code", TEXT), ColumnRef("other", TEXT)
PRICE = ColumnRef("price", DOUBLE)
_LETTERS = np.array(list("abcdefghijklmnopqrstuvwxyz"))
_NAME_LETTERS = 20
_CODES = 20_000
# What stands for constant number i in a template: no other text or number contains it.
_MARK = "mark{}", 777.25


@dataclass(frozen=True)
class TextQueries:
    """Queries of one template as they are stored, rows, and opponents by their name."""

    stored: pa.Array
    batch: pa.RecordBatch
    compared: Mapping[str, Opponent]

    def texts(self) -> pa.Array:
        return self.stored

    def rows(self) -> pa.RecordBatch:
        return self.batch

    def opponents(self) -> Mapping[str, Opponent]:
        return self.compared


def call(op: Op, *args: Expression) -> Call:
    return Call(op, args, BOOLEAN)


def _mark(number: int) -> Literal:
    return Literal(_MARK[0].format(number), TEXT)


def _stored(where: Call, *columns: Sequence[Any]) -> pa.Array:
    """Return the texts of a template with these constants; the price's comes last."""
    form = sort_key(normal(where)).replace("{", "{{").replace("}", "}}")
    for number in range(len(columns)):
        form = form.replace(_MARK[0].format(number), f"{{{number}}}")
    form = form.replace(str(_MARK[1]), f"{{{len(columns) - 1}}}")
    return pa.array([form.format(*row) for row in zip(*columns, strict=True)])


def _words(random: np.random.Generator, count: int, letters: int) -> list[str]:
    drawn = _LETTERS[random.integers(0, len(_LETTERS), (count, letters))]
    return ["".join(word) for word in drawn.tolist()]


def random_rows() -> pa.RecordBatch:
    """Names of 20 letters, two codes of 20,000, and a price below 100."""
    random = np.random.default_rng(1)
    codes, second_codes = random.integers(0, _CODES, (2, ROWS)).tolist()
    return pa.record_batch(
        {
            "name": pa.array(_words(random, ROWS, _NAME_LETTERS)),
            "code": pa.array([f"c{code:05}" for code in codes]),
            "other": pa.array([f"c{code:05}" for code in second_codes]),
            "price": np.round(random.uniform(0, 100, ROWS), 2),
        }
    )


# ---- opponents


class _Lookup:
    """Values with the queries that ask for each: what a dict, or Arrow's `index_in`, finds."""

    def __init__(self, values: Sequence[str], ids: npt.NDArray[Any]) -> None:
        coded = pa.array(values).dictionary_encode()
        codes = coded.indices.to_numpy()
        self._values, order = coded.dictionary, np.argsort(codes, kind="stable")
        self._ids = ids[order]
        self._begins = np.append(0, np.cumsum(np.bincount(codes)))

    def find(self, texts: pa.Array) -> Pairs:
        """The queries and rows, row by row."""
        places = pc.index_in(texts, value_set=self._values)
        rows = np.flatnonzero(places.is_valid())
        chosen = places.drop_null().to_numpy()
        counts = self._begins[chosen + 1] - self._begins[chosen]
        shift = np.repeat(self._begins[chosen] - np.cumsum(counts) + counts, counts)
        return self._ids[shift + np.arange(len(shift))], np.repeat(rows, counts)


def _equal(values: Sequence[str], texts_of: Callable[[pa.RecordBatch], pa.Array]) -> Opponent:
    lookup = _Lookup(values, np.arange(len(values)))
    return lambda rows: by_query(*lookup.find(texts_of(rows)))


def _united(parts: Sequence[Opponent]) -> Opponent:
    """Pairs of any of the parts, each once."""

    def search(rows: pa.RecordBatch) -> Pairs:
        parts_pairs = [part(rows) for part in parts]
        ids, matched = (np.concatenate(columns) for columns in zip(*parts_pairs, strict=True))
        packed = np.unique(ids.astype(np.int64) << 32 | matched)
        return packed >> 32, packed & 0xFFFFFFFF

    return search


def _dict_of_slices(pieces: Sequence[str], only_first: bool) -> Opponent:
    """Row by row in Python: the slices of a name that are as long as pieces, in a dict."""
    queries: dict[str, list[int]] = {}
    for id_, piece in enumerate(pieces):
        queries.setdefault(piece, []).append(id_)
    lengths = sorted({len(piece) for piece in pieces})

    def search(rows: pa.RecordBatch) -> Pairs:
        ids: list[int] = []
        counts = []
        for name in rows["name"].to_pylist():
            before = len(ids)
            slices = {
                name[begin : begin + length]
                for length in lengths
                for begin in range(1 if only_first else len(name) - length + 1)
            }
            for piece in slices:
                ids += queries.get(piece, ())
            counts.append(len(ids) - before)
        return by_query(np.array(ids, np.int64), np.repeat(np.arange(len(counts)), counts))

    return search


def _prefix_lookups(prefixes: Sequence[str]) -> Opponent:
    """`index_in` for each length of prefixes."""
    lengths = np.array([len(prefix) for prefix in prefixes])
    lookups = {}
    for length in np.unique(lengths).tolist():
        ids = np.flatnonzero(lengths == length)
        lookups[length] = _Lookup([prefixes[id_] for id_ in ids.tolist()], ids)

    def search(rows: pa.RecordBatch) -> Pairs:
        names = rows["name"]
        parts_pairs = [
            lookup.find(pc.utf8_slice_codeunits(names, 0, length))
            for length, lookup in lookups.items()
        ]
        ids, matched = (np.concatenate(columns) for columns in zip(*parts_pairs, strict=True))
        order = np.argsort(matched, kind="stable")
        return by_query(ids[order], matched[order])

    return search


def _filtered(opponent: Opponent, most: npt.NDArray[np.float64]) -> Opponent:
    """The pairs whose price is below that of the query."""

    def search(rows: pa.RecordBatch) -> Pairs:
        ids, matched = opponent(rows)
        holds = rows["price"].to_numpy()[matched] < most[ids]
        return ids[holds], matched[holds]

    return search


def _masks(masks: Callable[[pa.RecordBatch], Sequence[npt.NDArray[np.bool_]]]) -> Opponent:
    def search(rows: pa.RecordBatch) -> Pairs:
        lists = [np.flatnonzero(mask) for mask in masks(rows)]
        counts = [len(matched) for matched in lists]
        return np.repeat(np.arange(len(lists)), counts), np.concatenate(lists)

    return search


# ---- families


def like_prefixes(count: int = 20_000) -> TextQueries:
    """`name LIKE 'abc%'`, for 3 to 5 letters."""
    prefixes = _prefixes(count)
    table = pa.table({"id": np.arange(count), "prefix": prefixes})
    joins = [
        f"SELECT id, row FROM rows JOIN queries ON left(name, {n}) = prefix" for n in (3, 4, 5)
    ]
    return TextQueries(
        _stored(call(Op.LIKE, NAME, _mark(0)), [f"{prefix}%" for prefix in prefixes]),
        random_rows(),
        {
            "dict of prefixes": _dict_of_slices(prefixes, only_first=True),
            "index_in by length": _prefix_lookups(prefixes),
            "DuckDB": duckdb_join(table, " UNION ALL ".join(joins)),
        },
    )


def _prefixes(count: int) -> list[str]:
    random = np.random.default_rng(count)
    lengths = random.integers(3, 6, count).tolist()
    return [word[:length] for word, length in zip(_words(random, count, 5), lengths, strict=True)]


def like_pieces(count: int = 10_000) -> TextQueries:
    """`name LIKE '%abcd%'`, for 4 to 7 letters."""
    random = np.random.default_rng(count)
    lengths = random.integers(4, 8, count).tolist()
    words = _words(random, count, 7)
    pieces = [word[:length] for word, length in zip(words, lengths, strict=True)]
    table = pa.table({"id": np.arange(count), "piece": pieces})
    sql = "SELECT id, row FROM rows JOIN queries ON contains(name, piece)"
    return TextQueries(
        _stored(call(Op.LIKE, NAME, _mark(0)), [f"%{piece}%" for piece in pieces]),
        random_rows(),
        {
            "dict of pieces": _dict_of_slices(pieces, only_first=False),
            "DuckDB": duckdb_join(table, sql),
        },
    )


def prefixes_and_prices(count: int = 20_000) -> TextQueries:
    """`name LIKE 'abc%' AND price < ?`."""
    prefixes = _prefixes(count)
    most = np.round(np.random.default_rng(count).uniform(0, 100, count), 3)
    where = call(
        Op.AND,
        call(Op.LIKE, NAME, _mark(0)),
        call(Op.LT, PRICE, Literal(_MARK[1], DOUBLE)),
    )
    return TextQueries(
        _stored(where, [f"{prefix}%" for prefix in prefixes], most.tolist()),
        random_rows(),
        {
            "dict of prefixes": _filtered(_dict_of_slices(prefixes, only_first=True), most),
            "index_in by length": _filtered(_prefix_lookups(prefixes), most),
        },
    )


def lowered(count: int = 50_000) -> TextQueries:
    """`lower(code) = ?`."""
    values = [f"c{n:05}" for n in np.random.default_rng(count).integers(0, _CODES, count).tolist()]
    table = pa.table({"id": np.arange(count), "value": values})
    sql = "SELECT id, row FROM rows JOIN queries ON lower(code) = value"
    return TextQueries(
        _stored(call(Op.EQ, Call(Op.LOWER, (CODE,), TEXT), _mark(0)), values),
        random_rows(),
        {
            "index_in": _equal(values, lambda rows: pc.utf8_lower(rows["code"])),
            "DuckDB": duckdb_join(table, sql),
        },
    )


def substrings(count: int = 20_000) -> TextQueries:
    """`substring(name, 2, 3) = ?`."""
    values = _words(np.random.default_rng(count), count, 3)
    part = Call(Op.SUBSTRING, (NAME, Literal(2, BIGINT), Literal(3, BIGINT)), TEXT)
    table = pa.table({"id": np.arange(count), "value": values})
    sql = "SELECT id, row FROM rows JOIN queries ON substring(name, 2, 3) = value"
    return TextQueries(
        _stored(call(Op.EQ, part, _mark(0)), values),
        random_rows(),
        {
            "index_in": _equal(values, lambda rows: pc.utf8_slice_codeunits(rows["name"], 1, 4)),
            "DuckDB": duckdb_join(table, sql),
        },
    )


def in_lists(count: int = 20_000, length: int = 5) -> TextQueries:
    """`code IN (?, ?, ?, ?, ?)`."""
    random = np.random.default_rng(count)
    numbers = np.sort(random.integers(0, _CODES // length, (count, length)) * length)
    values = [[f"c{n:05}" for n in column] for column in (numbers + np.arange(length)).T.tolist()]
    flat = [value for column in values for value in column]
    ids = np.tile(np.arange(count), length)
    lookup = _Lookup(flat, ids)
    where = call(Op.IN, CODE, *[_mark(number) for number in range(length)])
    sql = "SELECT id, row FROM rows JOIN queries ON code = value"
    return TextQueries(
        _stored(where, *values),
        random_rows(),
        {
            "index_in": lambda rows: by_query(*lookup.find(rows["code"])),
            "DuckDB": duckdb_join(pa.table({"id": ids, "value": flat}), sql),
        },
    )


def either(count: int = 20_000) -> TextQueries:
    """`code = ? OR other = ?`."""
    drawn = np.random.default_rng(count).integers(0, _CODES, (2, count)).tolist()
    values = [[f"c{n:05}" for n in column] for column in drawn]
    where = call(Op.OR, call(Op.EQ, CODE, _mark(0)), call(Op.EQ, OTHER, _mark(1)))
    table = pa.table({"id": np.arange(count), "value": values[0], "second": values[1]})
    sql = (
        "SELECT id, row FROM rows JOIN queries ON code = value UNION "
        "SELECT id, row FROM rows JOIN queries ON other = second"
    )
    parts = [
        _equal(values[0], lambda rows: rows["code"]),
        _equal(values[1], lambda rows: rows["other"]),
    ]
    opponents = {"index_in, united": _united(parts), "DuckDB": duckdb_join(table, sql)}
    return TextQueries(_stored(where, *values), random_rows(), opponents)


def unlike_of_code(count: int = 20_000) -> TextQueries:
    """`code = ? AND name NOT LIKE '%ab%'`."""
    random = np.random.default_rng(count)
    values = [f"c{n:05}" for n in random.integers(0, _CODES, count).tolist()]
    pieces = _words(random, count, 2)
    where = call(
        Op.AND,
        call(Op.EQ, CODE, _mark(0)),
        call(Op.NOT, call(Op.LIKE, NAME, _mark(1))),
    )
    table = pa.table({"id": np.arange(count), "value": values, "piece": pieces})
    sql = "SELECT id, row FROM rows JOIN queries ON code = value WHERE NOT contains(name, piece)"
    lookup = _equal(values, lambda rows: rows["code"])

    def search(rows: pa.RecordBatch) -> Pairs:
        ids, matched = lookup(rows)
        names = rows["name"].take(pa.array(matched)).to_pylist()
        pairs = zip(names, ids.tolist(), strict=True)
        holds = np.array([pieces[id_] not in name for name, id_ in pairs], np.bool_)
        return ids[holds], matched[holds]

    return TextQueries(
        _stored(where, values, [f"%{piece}%" for piece in pieces]),
        random_rows(),
        {"index_in, then Python": search, "DuckDB": duckdb_join(table, sql)},
    )


def unlike(count: int = 1000) -> TextQueries:
    """`name NOT LIKE 'ab%'`, which nearly every row satisfies."""
    prefixes = [prefix[:2] for prefix in _prefixes(count)]
    where = call(Op.NOT, call(Op.LIKE, NAME, _mark(0)))

    def masks(rows: pa.RecordBatch) -> list[npt.NDArray[np.bool_]]:
        names = rows["name"]
        return [
            ~pc.starts_with(names, prefix).to_numpy(zero_copy_only=False) for prefix in prefixes
        ]

    return TextQueries(
        _stored(where, [f"{prefix}%" for prefix in prefixes]),
        random_rows(),
        {"starts_with, query by query": _masks(masks)},
    )
