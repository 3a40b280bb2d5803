"""Names and texts from outside: what is taken, and what is refused before it is stored."""

from __future__ import annotations

import pytest

from psoup.texts import is_encodable, is_name


@pytest.mark.parametrize("name", ["a", "Zoë", "名前", "a b", "a/b:c", "👩‍🚀", "x" * 256])
def test_names(name: str) -> None:
    assert is_name(name)


@pytest.mark.parametrize(
    "name",
    ["", "x" * 257, "é" * 129, "\ud800", "a\udfff", "a\nb", "\x1b[2J", "\x00", "\x7f", "\x9b"],
)
def test_no_names(name: str) -> None:
    assert not is_name(name)


@pytest.mark.parametrize("value", [None, 5, ["a"], b"a"])
def test_only_texts_are_names(value: object) -> None:
    assert not is_name(value)


def test_values_may_have_control_characters_but_must_be_encodable() -> None:
    assert is_encodable("a\tb\nc\x00")
    assert not is_encodable("a\ud800")
