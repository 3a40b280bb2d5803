"""Names: their form, and the words that are not free to be one."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from itertools import islice

from querystem.language.errors import BindProblem, Span

MAX_NAME = 64
_MOST_COMPARED = 2000


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# A name spelled like one of these must be written in double quotes.
RESERVED = words(
    """
    all and any as between by case cast cross distinct div else end escape except exists false from
    full group having ilike in inner intersect interval is join left like limit not null offset on
    or order outer over right select then true union using when where with
    begin now range refresh rows slide unbounded window
    """
)

_NAME = re.compile(r"[a-z][a-z0-9_]*")


def read_name(text: str, span: Span, quoted: bool) -> str:
    """The name as it is known: lower case. Raises BindProblem where it can't be one."""
    name = text if quoted else text.lower()
    if not quoted and name in RESERVED:
        raise BindProblem(
            f"{text} is a word of the language, not a name",
            span,
            hint=f'to use it as a name, write "{name}" in double quotes',
        )
    if not _NAME.fullmatch(name):
        raise BindProblem(
            f"{text!r} is not a name",
            span,
            hint="a name begins with a letter a-z, then letters, digits and _; all lower case",
        )
    if len(name) > MAX_NAME:
        raise BindProblem(
            f"the name has {len(name)} characters", span, hint=f"names have at most {MAX_NAME}"
        )
    return name


def write_name(name: str) -> str:
    return f'"{name}"' if name in RESERVED else name


def nearest(name: str, known: Iterable[str], likeness: float = 0.6) -> str | None:
    """The known name that this one may have been meant for; of very many, not all are compared."""
    if len(name) > MAX_NAME:
        return None
    some = sorted(islice(known, _MOST_COMPARED))
    return next(iter(difflib.get_close_matches(name, some, 1, likeness)), None)


def suggest(name: str, known: Iterable[str]) -> str:
    """A hint: the nearest known name, or all of them where they are few."""
    names = sorted(known)
    if near := nearest(name, names):
        return f"did you mean {near}?"
    return "known are " + ", ".join(names[:20]) + (", …" if len(names) > 20 else "")
