"""Checksums and digests equal the definitions and examples of docs/reference/protocol.md."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from datastem.types import BIGINT, DOUBLE, TEXT, decimal_type
from results.checksum import Digest, key_ids, row_checksums
from tests.oracle import checksums as plain
from tests.oracle.strategies import rows, schemas, to_batch

INTEGERS = st.integers(-(2**63), 2**63 - 1)


@given(st.data())
def test_row_checksums_are_the_plain_ones(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    values = data.draw(rows(schema))
    names = [column.name for column in schema.columns]
    kinds = [column.type for column in schema.columns]
    batch = to_batch(schema, values).select(names)
    skip = data.draw(st.integers(0, len(values)))
    batch, values = batch.slice(skip), values[skip:]
    ids = [row["row_id"] for row in values]
    begins = data.draw(st.lists(INTEGERS, min_size=len(ids), max_size=len(ids)))
    ends = data.draw(st.lists(INTEGERS, min_size=len(ids), max_size=len(ids)))
    keys = data.draw(st.lists(st.binary(max_size=9), min_size=len(ids), max_size=len(ids)))
    expected = [
        plain.checksum(row["row_id"], begin, end, key, [row[name] for name in names], kinds)
        for row, begin, end, key in zip(values, begins, ends, keys, strict=True)
    ]
    checksums = row_checksums(
        np.array(ids, np.int64),
        np.array(begins, np.int64),
        np.array(ends, np.int64),
        pa.array(keys, pa.binary()),
        batch,
    )
    assert checksums.tolist() == expected


@given(st.lists(st.integers(0, 2**64 - 1)))
def test_a_digest_does_not_depend_on_the_order(numbers: list[int]) -> None:
    at_once, one_by_one = Digest(), Digest()
    at_once.add(np.array(numbers, np.uint64))
    for number in numbers[::-1]:
        one_by_one.add(np.array([number], np.uint64))
    assert at_once.content == one_by_one.content == plain.digest(numbers)


def test_the_examples_of_the_page() -> None:
    kinds = [TEXT, DOUBLE, decimal_type(10, 2), BIGINT]
    values = ["IBM", 184.5, Decimal("-12.50"), None]
    assert plain.checksum(7, 1_000_000, None, b"", values, kinds) == 0x69E3A7265E71E899
    assert plain.digest([7]).hex() == "dda1a1b5cb045ff70d21b083019afbfb"
    assert plain.digest([7, 8]).hex() == "13d836a57c56b5951ddb4013bbc0e5f7"


def test_key_ids_tell_keys_apart() -> None:
    numbers = pa.array([*range(1000), None])
    texts = pa.array([*map(str, range(999)), "", None])
    ids = key_ids([numbers, texts], 1001)
    assert len(set(ids.tolist())) == 1001 and ids.min() >= 0
    assert key_ids([numbers.slice(7), texts.slice(7)], 994).tolist() == ids[7:].tolist()
    assert len(set(key_ids([], 3).tolist())) == 1
