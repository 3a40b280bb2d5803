"""Masked numbers: as the reference of SipHash-2-4 has them."""

from __future__ import annotations

import numpy as np

from results.masking import masked


def test_it_is_siphash() -> None:
    # Vectors of the reference implementation: key 00…0f, message 00…07.
    number = np.frombuffer(bytes(range(8)), "<i8")
    assert masked(number, bytes(range(16))).tolist() == [0x93F5F5799A932462 >> 1]


def test_equal_numbers_stay_equal_and_another_key_gives_others() -> None:
    numbers = np.array([5, -1, 5, 0])
    first, second = masked(numbers, b"a" * 16), masked(numbers, b"b" * 16)
    assert first[0] == first[2] and len(set(first.tolist())) == 3 and (first >= 0).all()
    assert not set(first.tolist()) & set(second.tolist())
    assert masked(numbers, b"") is numbers
    assert masked(numbers[:0], b"a" * 16).tolist() == []
