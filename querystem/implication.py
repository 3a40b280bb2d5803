"""Implication between predicates: whether every row that matches one matches another too.

A new predicate that implies one whose matches are known need only be looked for among those. The
test is sound, not complete: it compares conjunctions, factor by factor, and takes the intersection
of all that a predicate says of one operand. What it can't compare it takes for not implied.

Only rows for which a predicate is *true* count, so that NULL satisfies no factor but IS NULL.
"""

from __future__ import annotations

import math
import time
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

import pyarrow as pa

from datastem.types import Kind
from querystem.expressions import Call, Expression, Literal, Op
from querystem.index.formula import (
    NEVER,
    Condition,
    Every,
    Formula,
    Interval,
    Member,
    Some,
    cut_order,
    formula_of,
)
from querystem.kernel.compare import COMPARISONS, END, START, cuts_of
from querystem.kernel.text import like
from querystem.kernel.vector import of_text

# Longer lists of IN are compared as wholes.
_LONGEST_LIST = 1024

# Values of an ordered operand from one cut to before another, both as `cut_order` has them.
Span = tuple[Any, Any]
_EVERYTHING: tuple[Span, ...] = ((cut_order(START), cut_order(END)),)


# ---- what is said of one operand


def _merged(spans: Iterable[Span]) -> tuple[Span, ...]:
    """Return the union of spans, disjoint and in order."""
    found: list[Span] = []
    for begin, end in sorted(span for span in spans if span[0] < span[1]):
        if found and begin <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((begin, end))
    return tuple(found)


def _common(left: tuple[Span, ...], right: tuple[Span, ...]) -> tuple[Span, ...]:
    return _merged((max(a, c), min(b, d)) for a, b in left for c, d in right)


def _inside(inner: tuple[Span, ...], outer: tuple[Span, ...]) -> bool:
    """Return whether every value of some spans lies in others, which are merged."""
    return all(any(a <= begin and end <= b for a, b in outer) for begin, end in inner)


@dataclass(frozen=True, slots=True)
class Spans:
    """An ordered operand has a value in one of the spans; where they are everything, it is not
    NULL."""

    operand: Expression
    spans: tuple[Span, ...]

    def met(self, other: Spans) -> Spans:
        return Spans(self.operand, _common(self.spans, other.spans))

    def within(self, other: Spans) -> bool:
        return _inside(self.spans, other.spans)


@dataclass(frozen=True, slots=True)
class Texts:
    """A TEXT operand is one of some texts."""

    operand: Expression
    texts: frozenset[str]

    def met(self, other: Texts) -> Texts:
        return Texts(self.operand, self.texts & other.texts)

    def within(self, other: Texts) -> bool:
        return self.texts <= other.texts


Values = Spans | Texts


def _values_of(formula: Formula) -> Values | None:
    """Return the values that a formula allows its one operand; None if it says something else."""
    match formula:
        case Interval(operand, begin, end):
            return Spans(operand, _merged([(cut_order(begin), cut_order(end))]))
        case Member(operand, value):
            return Texts(operand, frozenset([value]))
        case Some(parts) if parts:
            return _union([_values_of(part) for part in parts])
        case Condition(Call(Op.IN, (operand, *constants), _), True):
            return _listed(operand, constants)
    return None


def _union(found: list[Values | None]) -> Values | None:
    first = found[0]
    if isinstance(first, Spans):
        spans = [one for one in found if isinstance(one, Spans) and one.operand == first.operand]
        if len(spans) == len(found):
            return Spans(first.operand, _merged(chain.from_iterable(one.spans for one in spans)))
    elif isinstance(first, Texts):
        texts = [one for one in found if isinstance(one, Texts) and one.operand == first.operand]
        if len(texts) == len(found):
            return Texts(first.operand, frozenset().union(*(one.texts for one in texts)))
    return None


def _listed(operand: Expression, constants: list[Expression]) -> Values | None:
    """Return the values of a list of IN; NULL among them equals nothing."""
    literals = [one for one in constants if isinstance(one, Literal) and one.value is not None]
    if len(constants) > _LONGEST_LIST or operand.type.kind is Kind.BOOLEAN:
        return None
    if operand.type.kind is Kind.TEXT:
        return Texts(operand, frozenset(str(one.value) for one in literals))
    cuts = [cuts_of(one, operand.type) for one in literals]
    spans = [(cut_order(cut.at_least), cut_order(cut.above)) for cut in cuts]
    return Spans(operand, _merged(spans))


# ---- predicates


class Conjunction:
    """A predicate as the parts that must all hold, and what they say together of each operand.

    Predicates that are not `comparable` imply nothing and are implied by nothing.
    """

    def __init__(self, where: Expression) -> None:
        self.comparable = not _has_negative_zero(where)
        formula = formula_of(where)
        self.parts: tuple[Formula, ...] = (
            formula.parts if isinstance(formula, Every) else (formula,)
        )
        self._values: dict[Expression, Values] = {}
        for part in self.parts:
            found = _values_of(part)
            if found is not None:
                self._meet(found)

    def _meet(self, found: Values) -> None:
        known = self._values.get(found.operand)
        match known, found:
            case Spans(), Spans():
                self._values[found.operand] = known.met(found)
            case Texts(), Texts():
                self._values[found.operand] = known.met(found)
            case _:
                self._values[found.operand] = found

    @cached_property
    def matches_nothing(self) -> bool:
        """True if no row can match: what is said of some operand contradicts itself."""
        values = self._values.values()
        empty = any(not (one.spans if isinstance(one, Spans) else one.texts) for one in values)
        return empty or NEVER in self._wholes

    @cached_property
    def _wholes(self) -> frozenset[Formula]:
        return frozenset(self.parts)

    @cached_property
    def _likes(self) -> dict[Expression, list[str]]:
        """The patterns that an operand must match, by the operand."""
        found: dict[Expression, list[str]] = {}
        for part in self.parts:
            if (liked := _liked(part)) is not None:
                found.setdefault(liked[0], []).append(liked[1])
        return found

    @cached_property
    def _there(self) -> frozenset[Expression]:
        """The operands that can't be NULL."""
        return frozenset(chain.from_iterable(map(_operands_there, self.parts)))

    @property
    def keys(self) -> Iterator[Hashable]:
        """All by which `ImplicationIndex` may have put a predicate that this one implies."""
        yield from self._values
        yield from self._likes
        yield from self._there
        yield from self.parts

    @property
    def key(self) -> Hashable:
        """The one of its keys by which it is put into an index: an operand, if there is one."""
        for part in self.parts:
            if (values := _values_of(part)) is not None:
                return values.operand
            if (liked := _liked(part)) is not None:
                return liked[0]
            if (there := _not_null(part)) is not None:
                return there
        return self.parts[0]

    def implies(self, other: Conjunction) -> bool:
        """Return whether every row that matches this predicate matches the other; False if that
        can't be said."""
        if not (self.comparable and other.comparable):
            return False
        return self.matches_nothing or all(self._implies(part) for part in other.parts)

    def _implies(self, part: Formula) -> bool:
        if part in self._wholes:
            return True
        values = _values_of(part)
        if values is not None and self._allows_only(values):
            return True
        if (liked := _liked(part)) is not None:
            return self._matches(*liked)
        if (there := _not_null(part)) is not None:
            return there in self._there
        match part:
            case Some(parts):
                return any(self._implies(one) for one in parts)
            case Every(parts):
                return all(self._implies(one) for one in parts)
        return False

    def _allows_only(self, values: Values) -> bool:
        known = self._values.get(values.operand)
        match known, values:
            case Spans(), Spans():
                return known.within(values)
            case Texts(), Texts():
                return known.within(values)
            case None, Spans(operand, spans):
                return spans == _EVERYTHING and operand in self._there
        return False

    def _matches(self, operand: Expression, pattern: str) -> bool:
        """Return whether an operand must match a pattern: it is one of texts that do, or begins
        with more than the pattern asks for."""
        known = self._values.get(operand)
        if isinstance(known, Texts):
            texts = sorted(known.texts)
            return bool(like(of_text(pa.array(texts, pa.string())), pattern).values.all())
        wanted = _prefix(pattern)
        if wanted is None:
            return pattern in self._likes.get(operand, ())
        begins = (_literal_prefix(one) for one in self._likes.get(operand, ()))
        return any(begin.startswith(wanted) for begin in begins)


def _has_negative_zero(expression: Expression) -> bool:
    """Return whether an expression has the constant −0.0, which equals 0.0 although an expression
    may tell them apart; the one of a comparison is written 0.0."""
    match expression:
        case Literal(float() as value, _):
            return value == 0 and math.copysign(1.0, value) < 0
        case Call(_, args, _):
            return any(map(_has_negative_zero, args))
    return False


def _liked(part: Formula) -> tuple[Expression, str] | None:
    """Return the operand and the pattern of a LIKE; None for anything else."""
    match part:
        case Condition(Call(Op.LIKE, (operand, Literal(str() as pattern, _)), _), True):
            return operand, pattern
    return None


def _not_null(part: Formula) -> Expression | None:
    """Return the operand of an IS NOT NULL; None for anything else."""
    match part:
        case Condition(Call(Op.IS_NULL, (operand,), _), False):
            return operand
    return None


def _operands_there(part: Formula) -> Iterator[Expression]:
    """Yield the operands that are not NULL if a part holds."""
    values = _values_of(part)
    if values is not None:
        yield values.operand
        return
    match part:
        case Condition(Call(Op.IS_NULL, (operand,), _), False):
            yield operand
        case Condition(Call(Op.LIKE | Op.IN, (operand, *_), _), _):
            yield operand
        case Condition(Call(op, args, _), _) if op in COMPARISONS:
            yield from args


def _prefix(pattern: str) -> str | None:
    """Return the text that a pattern wants a text to begin with, where it wants nothing else; else
    None."""
    begin = _literal_prefix(pattern)
    rest = pattern[len(_escaped(begin)) :]
    return begin if rest and not rest.strip("%") else None


def _literal_prefix(pattern: str) -> str:
    """Return the characters before the first wildcard of a pattern in normal form."""
    found: list[str] = []
    characters = iter(pattern)
    for character in characters:
        if character in "%_":
            break
        found.append(next(characters, "") if character == "\\" else character)
    return "".join(found)


def _escaped(text: str) -> str:
    return "".join(f"\\{one}" if one in "%_\\" else one for one in text)


# ---- many predicates


class ImplicationIndex:
    """Predicates by one of their operands, to find those that another predicate implies.

    Predicates that match every row, or none, are not kept: they tell nothing. The time that is
    spent follows from the predicates that share an operand with the one that is asked about.
    """

    def __init__(self) -> None:
        self._by_key: dict[Hashable, dict[int, Conjunction]] = {}
        self._keys: dict[int, Hashable] = {}

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, predicate_id: int) -> bool:
        return predicate_id in self._keys

    def __iter__(self) -> Iterator[int]:
        return iter(self._keys)

    def insert(self, predicate_id: int, where: Expression) -> None:
        """Insert a predicate; raise ValueError if the id is here already."""
        if predicate_id in self._keys:
            raise ValueError(f"predicate {predicate_id} is already in the index")
        found = Conjunction(where)
        self._keys[predicate_id] = key = found.key if _tells(found) else None
        if key is not None:
            self._by_key.setdefault(key, {})[predicate_id] = found

    def remove(self, predicate_id: int) -> None:
        """Remove a predicate; raise KeyError if the id is not here."""
        key = self._keys.pop(predicate_id)
        if key is not None:
            del self._by_key[key][predicate_id]
            if not self._by_key[key]:
                del self._by_key[key]

    def implied(self, where: Expression, seconds: float = 0.001) -> Iterator[int]:
        """Yield the ids of predicates that a predicate implies, each once, for about so long; ids
        of the newest are tried first."""
        asked, until = Conjunction(where), time.monotonic() + seconds
        for key in dict.fromkeys(asked.keys):
            for id_, other in reversed(self._by_key.get(key, {}).items()):
                if time.monotonic() > until:
                    return
                if asked.implies(other):
                    yield id_

    def _check(self) -> None:
        kept = {id_: key for key, some in self._by_key.items() for id_ in some}
        assert kept == {id_: key for id_, key in self._keys.items() if key is not None}


def _tells(found: Conjunction) -> bool:
    return found.comparable and bool(found.parts) and not found.matches_nothing
