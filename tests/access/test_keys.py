"""Static keys: their texts, their digests, their claims."""

from __future__ import annotations

import pytest

from psoup.access.keys import id_of, is_text_of, new_key, plain_claims, read_claims
from psoup.errors import BadRequest


def test_a_key_is_shown_by_its_text_and_by_nothing_else() -> None:
    key, text = new_key("acme", "bob", ["reader"], '{"region": "north"}', 1)
    second_key, another = new_key("acme", "bob", ["reader"], "", 1)
    assert id_of(text) == key.id and text.startswith(f"psk_{key.id}_")
    assert is_text_of(key, text)
    assert (
        not is_text_of(key, another)
        and not is_text_of(second_key, text)
        and not is_text_of(None, text)
    )
    swapped = another.replace(second_key.id, key.id)
    assert id_of(swapped) == key.id and not is_text_of(key, swapped)
    assert read_claims(key.claims) == {"region": "north"}


def test_nothing_of_a_secret_is_kept() -> None:
    key, text = new_key("acme", "bob", [], "", 1)
    secret = text.removeprefix(f"psk_{key.id}_")
    assert len(secret) == 43
    assert secret not in repr(key) and len(key.digest) == 64


@pytest.mark.parametrize(
    "text", ["", "psk_", "psk_0123456789abcdef_", "Bearer x", "psk_1_2", "a.b.c"]
)
def test_what_is_no_key(text: str) -> None:
    assert id_of(text) is None


@pytest.mark.parametrize(
    "claims",
    [
        "{",
        "[1]",
        '{"a": [1]}',
        '{"a": {}}',
        '{"a": NaN}',
        '{"a": 1e999}',
        "[" * 5000,
        '{"a": 9223372036854775808}',
        '{"a": "' + "x" * 5000 + '"}',
    ],
)
def test_what_are_no_claims(claims: str) -> None:
    with pytest.raises(BadRequest, match="claims"):
        new_key("acme", "bob", [], claims, 1)


def test_names_have_bounds() -> None:
    for tenant, owner, roles in [
        ("", "bob", []),
        ("acme", "", []),
        ("acme", "b" * 257, []),
        ("acme", "bob", [""]),
        ("acme", "bob", ["r"] * 65),
        ("ac\nme", "bob", []),
        ("acme", "b\x1bob", []),
        ("acme", "\ud800", []),
        ("acme", "bob", ["\udfff"]),
    ]:
        with pytest.raises(BadRequest):
            new_key(tenant, owner, roles, "", 1)
    with pytest.raises(BadRequest, match="would expire before"):
        new_key("acme", "bob", [], "", 5, 5)


def test_a_claim_that_cannot_be_encoded_is_null() -> None:
    key, _ = new_key("acme", "bob", [], r'{"region": "\ud800", "\udfff": 1, "tab": "a\tb"}', 1)
    assert read_claims(key.claims) == {"region": None, "tab": "a\tb"}
    assert plain_claims({"region": "\ud800", "\udfff": 1}, []) == {"region": None}


def test_only_plain_claims_are_taken() -> None:
    claims = {"sub": "bob", "region": "north", "n": 3, "x": 1.5, "b": True, "no": None, "l": [1]}
    assert plain_claims(claims, ["sub"]) == {
        "region": "north",
        "n": 3,
        "x": 1.5,
        "b": True,
        "no": None,
    }
