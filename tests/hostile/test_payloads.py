"""Arrow payloads and tokens of Sync, mutated: refused, and nothing else happens."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from psoup.answers.difference import Claim, Cursor, LegMark, Mark
from psoup.server.wire.copies import KEY_BYTES, CopySubject, Tokens, Unusable
from psoup.store import Position
from tests.hostile.metered import bounded_here
from tests.hostile.mutating import mutated_bytes

ROOT = Path(__file__).parents[2]
_AT_ONCE = 20_000


@pytest.mark.parametrize("cases", [3000, pytest.param(300_000, marks=pytest.mark.soak)])
@pytest.mark.timeout(3600)
def test_a_mutated_batch_is_accepted_or_refused(cases: int) -> None:
    for first in range(0, cases, _AT_ONCE):
        count = min(_AT_ONCE, cases - first)
        command = [sys.executable, "-m", "tests.hostile.payloads", str(first), str(count)]
        ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, (first, ended.stderr[-2000:])
        assert ended.stdout.startswith("accepted "), ended.stdout


def tokens() -> tuple[Tokens, CopySubject, list[bytes]]:
    writer = Tokens(b"store 01", bytes(range(KEY_BYTES)))
    subject = CopySubject(b"h" * 16, Position(7, 1), "window")
    mark = Mark(Position(9, 0), (LegMark(10),), 5, None)
    legs = Mark(Position(9, 0), (LegMark(10, 4), LegMark(3, None, 1)), 5, 9, rows=2, salt=1)
    claims = (
        Claim(mark),
        Claim(mark, mark, Cursor(3)),
        Claim(legs, legs, Cursor(2, (1, 2))),
    )
    return writer, subject, [writer.write(subject, claim) for claim in claims]


@pytest.mark.parametrize("cases", [5000, pytest.param(300_000, marks=pytest.mark.soak)])
@pytest.mark.timeout(3600)
def test_a_mutated_token_is_no_token(cases: int) -> None:
    writer, subject, known = tokens()
    for number in range(cases):
        draw = random.Random(number)
        token = mutated_bytes(draw, draw.choice(known), known)
        if token in known:
            continue
        try:
            with bounded_here(number):
                writer.read(token).about(subject)
        except Unusable:
            continue
        except Exception as error:
            raise AssertionError(f"case {number}: {token.hex()}") from error
        raise AssertionError(f"case {number} was believed: {token.hex()}")
