"""Implication between predicates: whether every row that matches one matches another too.

A new predicate that implies one whose matches are known need only be looked for among those. The
test is sound, not complete: it compares conjunctions, factor by factor, and takes the intersection
of all that a predicate says of one operand. If it can't compare two, it answers "not implied".

Only rows for which a predicate is *true* count, so NULL satisfies no factor but IS NULL.
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

# Longer lists of IN are not split into values, but compared as a whole.
_MAX_LIST_VALUES = 1024

# Values of an ordered operand from one cut to before another, both as `cut_order` has them.
Span = tuple[Any, Any]
_EVERYTHING: tuple[Span, ...] = ((cut_order(START), cut_order(END)),)


# ---- what is said of one operand


def _merged(spans: Iterable[Span]) -> tuple[Span, ...]:
    """Return the union of spans, disjoint and in order."""
    merged: list[Span] = []
    # Spans that touch are joined. `_inside` relies on that: a span within the union then lies in
    # one of its spans.
    for begin, end in sorted(span for span in spans if span[0] < span[1]):
        if merged and begin <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], end)
        else:
            merged.append((begin, end))
    return tuple(merged)


def _common(first: tuple[Span, ...], second: tuple[Span, ...]) -> tuple[Span, ...]:
    return _merged((max(a, c), min(b, d)) for a, b in first for c, d in second)


def _inside(inner: tuple[Span, ...], outer: tuple[Span, ...]) -> bool:
    """Return whether every value of some spans lies in others, which are merged."""
    return all(any(a <= begin and end <= b for a, b in outer) for begin, end in inner)


@dataclass(frozen=True, slots=True)
class Spans:
    """The values of an ordered operand that lie in one of the spans; if the spans are everything,
    all but NULL."""

    operand: Expression
    spans: tuple[Span, ...]

    def intersection(self, values: Spans) -> Spans:
        return Spans(self.operand, _common(self.spans, values.spans))

    def within(self, values: Spans) -> bool:
        return _inside(self.spans, values.spans)


@dataclass(frozen=True, slots=True)
class Texts:
    """The values of a TEXT operand: some texts."""

    operand: Expression
    texts: frozenset[str]

    def intersection(self, values: Texts) -> Texts:
        return Texts(self.operand, self.texts & values.texts)

    def within(self, values: Texts) -> bool:
        return self.texts <= values.texts


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


def _union(allowed: list[Values | None]) -> Values | None:
    first = allowed[0]
    if isinstance(first, Spans):
        spans = [
            values
            for values in allowed
            if isinstance(values, Spans) and values.operand == first.operand
        ]
        if len(spans) == len(allowed):
            return Spans(
                first.operand, _merged(chain.from_iterable(values.spans for values in spans))
            )
    elif isinstance(first, Texts):
        texts = [
            values
            for values in allowed
            if isinstance(values, Texts) and values.operand == first.operand
        ]
        if len(texts) == len(allowed):
            return Texts(first.operand, frozenset().union(*(values.texts for values in texts)))
    return None


def _listed(operand: Expression, constants: list[Expression]) -> Values | None:
    """Return the values of a list of IN; NULL among them equals nothing."""
    literals = [
        literal
        for literal in constants
        if isinstance(literal, Literal) and literal.value is not None
    ]
    if len(constants) > _MAX_LIST_VALUES or operand.type.kind is Kind.BOOLEAN:
        return None
    if operand.type.kind is Kind.TEXT:
        return Texts(operand, frozenset(str(literal.value) for literal in literals))
    cuts = [cuts_of(literal, operand.type) for literal in literals]
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
            values = _values_of(part)
            if values is not None:
                self._meet(values)

    def _meet(self, values: Values) -> None:
        previous = self._values.get(values.operand)
        match previous, values:
            case Spans(), Spans():
                self._values[values.operand] = previous.intersection(values)
            case Texts(), Texts():
                self._values[values.operand] = previous.intersection(values)
            # Of facts that can't be intersected the later replaces the earlier. Forgetting one is
            # sound: the predicate then implies less.
            case _:
                self._values[values.operand] = values

    @cached_property
    def matches_nothing(self) -> bool:
        """Whether no row can match, because the parts contradict each other."""
        values = self._values.values()
        empty = any(
            not (allowed.spans if isinstance(allowed, Spans) else allowed.texts)
            for allowed in values
        )
        return empty or NEVER in self._wholes

    @cached_property
    def _wholes(self) -> frozenset[Formula]:
        return frozenset(self.parts)

    @cached_property
    def _likes(self) -> dict[Expression, list[str]]:
        """The patterns that an operand must match, by the operand."""
        patterns: dict[Expression, list[str]] = {}
        for part in self.parts:
            if (liked := _liked(part)) is not None:
                patterns.setdefault(liked[0], []).append(liked[1])
        return patterns

    @cached_property
    def _not_null(self) -> frozenset[Expression]:
        """The operands that can't be NULL."""
        return frozenset(chain.from_iterable(map(_not_null_operands, self.parts)))

    @property
    def keys(self) -> Iterator[Hashable]:
        """The keys of `ImplicationIndex` under which a predicate that this one implies may be."""
        yield from self._values
        yield from self._likes
        yield from self._not_null
        yield from self.parts

    @property
    def key(self) -> Hashable:
        """The key under which an index has it: an operand, if possible."""
        for part in self.parts:
            if (values := _values_of(part)) is not None:
                return values.operand
            if (liked := _liked(part)) is not None:
                return liked[0]
            if (operand := _null_checked(part)) is not None:
                return operand
        return self.parts[0]

    def implies(self, predicate: Conjunction) -> bool:
        """Return whether every row that matches this predicate matches the other. False may also
        mean that they can't be compared."""
        if not (self.comparable and predicate.comparable):
            return False
        # A predicate without matches implies everything.
        return self.matches_nothing or all(self._implies(part) for part in predicate.parts)

    def _implies(self, part: Formula) -> bool:
        if part in self._wholes:
            return True
        values = _values_of(part)
        if values is not None and self._allows_only(values):
            return True
        if (liked := _liked(part)) is not None:
            return self._matches(*liked)
        if (operand := _null_checked(part)) is not None:
            return operand in self._not_null
        match part:
            case Some(parts):
                # It is enough that one alternative is implied, though others may be implied only
                # together.
                return any(self._implies(inner) for inner in parts)
            case Every(parts):
                return all(self._implies(inner) for inner in parts)
        return False

    def _allows_only(self, values: Values) -> bool:
        allowed = self._values.get(values.operand)
        match allowed, values:
            case Spans(), Spans():
                return allowed.within(values)
            case Texts(), Texts():
                return allowed.within(values)
            case None, Spans(operand, spans):
                return spans == _EVERYTHING and operand in self._not_null
        return False

    def _matches(self, operand: Expression, pattern: str) -> bool:
        """Return whether an operand must match a pattern: it is one of texts that do, or has a
        longer prefix than the pattern asks for."""
        allowed = self._values.get(operand)
        # An operand that is one of a few texts: the pattern is tried on each.
        if isinstance(allowed, Texts):
            texts = sorted(allowed.texts)
            return bool(like(of_text(pa.array(texts, pa.string())), pattern).values.all())
        prefix = _prefix(pattern)
        if prefix is None:
            return pattern in self._likes.get(operand, ())
        # Text that begins with a longer literal prefix also begins with this one, whatever follows.
        begins = (_literal_prefix(required) for required in self._likes.get(operand, ()))
        return any(begin.startswith(prefix) for begin in begins)


def _has_negative_zero(expression: Expression) -> bool:
    """Return whether an expression has the constant −0.0. It equals 0.0, although an expression
    may distinguish them; in a comparison −0.0 is written 0.0."""
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


def _null_checked(part: Formula) -> Expression | None:
    """Return the operand of an IS NOT NULL; None for anything else."""
    match part:
        case Condition(Call(Op.IS_NULL, (operand,), _), False):
            return operand
    return None


def _not_null_operands(part: Formula) -> Iterator[Expression]:
    """Yield the operands that are not NULL if a part holds."""
    values = _values_of(part)
    if values is not None:
        yield values.operand
        return
    match part:
        case Condition(Call(Op.IS_NULL, (operand,), _), False):
            yield operand
        # LIKE and IN are neither true nor false for NULL, so their negation excludes it as well.
        case Condition(Call(Op.LIKE | Op.IN, (operand, *_), _), _):
            yield operand
        case Condition(Call(op, args, _), _) if op in COMPARISONS:
            yield from args


def _prefix(pattern: str) -> str | None:
    """Return the prefix that a pattern asks for; None if it asks for more than a prefix."""
    begin = _literal_prefix(pattern)
    # Patterns are in normal form, so the prefix was escaped in exactly this way.
    remainder = pattern[len(_escaped(begin)) :]
    return begin if remainder and not remainder.strip("%") else None


def _literal_prefix(pattern: str) -> str:
    """Return the characters before the first wildcard of a pattern in normal form."""
    literal: list[str] = []
    characters = iter(pattern)
    for character in characters:
        if character in "%_":
            break
        literal.append(next(characters, "") if character == "\\" else character)
    return "".join(literal)


def _escaped(text: str) -> str:
    return "".join(f"\\{character}" if character in "%_\\" else character for character in text)


# ---- many predicates


class ImplicationIndex:
    """Predicates by one of their operands, to find those that another predicate implies.

    Predicates that match every row, or none, are left out: they would narrow nothing. A search
    takes time in proportion to the predicates that share an operand with the new one.
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
        """Insert a predicate; raise ValueError if the index has the id."""
        if predicate_id in self._keys:
            raise ValueError(f"predicate {predicate_id} is already in the index")
        predicate = Conjunction(where)
        # A predicate that is not indexed is kept with None, so that it can be removed like the
        # others.
        self._keys[predicate_id] = key = predicate.key if _is_indexable(predicate) else None
        if key is not None:
            self._by_key.setdefault(key, {})[predicate_id] = predicate

    def remove(self, predicate_id: int) -> None:
        """Remove a predicate; raise KeyError if the index does not have the id."""
        key = self._keys.pop(predicate_id)
        if key is not None:
            del self._by_key[key][predicate_id]
            if not self._by_key[key]:
                del self._by_key[key]

    def implied(self, where: Expression, seconds: float = 0.001) -> Iterator[int]:
        """Yield the ids of predicates that a predicate implies, each once, the newest first; stop
        after about `seconds`."""
        predicate, until = Conjunction(where), time.monotonic() + seconds
        # A predicate is under one key only, so distinct keys yield each id once.
        for key in dict.fromkeys(predicate.keys):
            for id_, candidate in reversed(self._by_key.get(key, {}).items()):
                if time.monotonic() > until:
                    return
                if predicate.implies(candidate):
                    yield id_

    def _check(self) -> None:
        indexed = {id_: key for key, predicates in self._by_key.items() for id_ in predicates}
        assert indexed == {id_: key for id_, key in self._keys.items() if key is not None}


def _is_indexable(predicate: Conjunction) -> bool:
    return predicate.comparable and bool(predicate.parts) and not predicate.matches_nothing
