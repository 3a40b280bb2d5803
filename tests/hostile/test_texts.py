"""Texts of the language, mutated: each is bound or refused as a QueryError, never otherwise."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from querystem.language import QueryError, bind_window, parse_statement
from tests.hostile.mutating import mutated_text
from tests.querystem.language.support import TRADES, bind

GOLDEN = Path(__file__).parents[1] / "querystem" / "language" / "golden"


def texts() -> list[str]:
    """The texts of all golden files, good and bad."""
    blocks = [
        block.partition("-" * 20)[0].strip()
        for file in sorted(GOLDEN.glob("*.txt"))
        for block in file.read_text().split("=" * 20)
    ]
    return [block for block in blocks if block]


@pytest.mark.parametrize("cases", [1500, pytest.param(300_000, marks=pytest.mark.soak)])
@pytest.mark.timeout(3600)
def test_a_mutated_text_is_bound_or_refused(cases: int) -> None:
    statements = texts()
    assert len(statements) > 500
    refused = 0
    for number in range(cases):
        draw = random.Random(number)
        text = mutated_text(draw, draw.choice(statements), statements)
        read = draw.choice((bind, bind, parse_statement, lambda text: bind_window(text, TRADES)))
        try:
            read(text)
        except QueryError as error:
            refused += 1
            assert error.message and len(error.hint + error.excerpt) < 2000, (number, text)
        except Exception as error:
            raise AssertionError(f"case {number}: {text!r}") from error
    assert 0 < refused < cases, "some are good and some are not"
