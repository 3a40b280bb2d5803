"""Functions of texts."""

from __future__ import annotations

from datastem.types import BIGINT, BOOLEAN, TEXT, Kind
from querystem.expressions import Literal, Op
from querystem.language.errors import Span, TypeProblem
from querystem.language.expressions.coerce import need
from querystem.language.functions.signature import (
    MAX_ARGUMENTS,
    Args,
    Bind,
    FunctionGroup,
    Signature,
    of_texts,
)
from querystem.language.normal_form.normal import call
from querystem.language.tokens.literals import Typed

_EMPTY = Literal("", TEXT)


def concatenation(lhs: Typed, rhs: Typed, span: Span) -> Typed:
    """Return `lhs || rhs`; raise TypeProblem unless both are texts."""
    return Typed(call(Op.CONCAT, (_text(lhs, "||").node, _text(rhs, "||").node), TEXT), span)


def _concat(args: Args, span: Span) -> Typed:
    nodes = [_text(arg, "concat").node for arg in args]
    # A NULL among the arguments counts as an empty text.
    filled = [
        node if isinstance(node, Literal) and node.value is not None
        else call(Op.COALESCE, (node, _EMPTY), TEXT)
        for node in nodes
    ]  # fmt: skip
    return Typed(filled[0] if len(filled) == 1 else call(Op.CONCAT, tuple(filled), TEXT), span)


def _text(value: Typed, what: str) -> Typed:
    if not value.open and value.type.kind not in (Kind.TEXT, Kind.DURATION):
        raise TypeProblem(
            f"{what} needs TEXT, not {value.type}", value.span, hint="write CAST(… AS TEXT)"
        )
    return need(value, Kind.TEXT, what)


def _with_numbers(op: Op, texts: int) -> Bind:
    """Return the binding of a function whose first arguments are texts and the others BIGINT."""

    def bind(args: Args, span: Span) -> Typed:
        words = [need(arg, Kind.TEXT, op.value) for arg in args[:texts]]
        numbers = [need(arg, Kind.BIGINT, op.value) for arg in args[texts:]]
        nodes = tuple(value.node for value in (*words, *numbers))
        return Typed(call(op, nodes, TEXT), span)

    return bind


TEXTS = FunctionGroup(
    "Texts",
    (
        Signature(
            "concat",
            1,
            MAX_ARGUMENTS,
            _concat,
            "concat(t, …)",
            "the texts one after the other; a NULL counts as an empty text",
            "concat('a', NULL, 'b')",
            "'ab'",
        ),
        Signature(
            "left",
            2,
            2,
            _with_numbers(Op.LEFT, 1),
            "left(t, n)",
            "the first n code points; if n is negative, all but the last −n",
            "left('naïve', 3)",
            "'naï'",
        ),
        Signature(
            "length",
            1,
            1,
            of_texts(Op.LENGTH, BIGINT),
            "length(t)",
            "the number of code points",
            "length('naïve')",
            "5",
        ),
        Signature(
            "lower",
            1,
            1,
            of_texts(Op.LOWER, TEXT),
            "lower(t)",
            "in lower case, one code point to one",
            "lower('Éa')",
            "'éa'",
        ),
        Signature(
            "replace",
            3,
            3,
            of_texts(Op.REPLACE, TEXT),
            "replace(t, old, new)",
            "with every old, found from the left, replaced by new; an empty old is found nowhere",
            "replace('banana', 'an', 'o')",
            "'booa'",
        ),
        Signature(
            "right",
            2,
            2,
            _with_numbers(Op.RIGHT, 1),
            "right(t, n)",
            "the last n code points; if n is negative, all but the first −n",
            "right('stream', -2)",
            "'ream'",
        ),
        Signature(
            "split_part",
            3,
            3,
            _with_numbers(Op.SPLIT_PART, 2),
            "split_part(t, separator, n)",
            "the n-th part between separators, from the end if n is negative; an empty text if "
            "there is none. An empty separator does not split",
            "split_part('a-b-c', '-', 2)",
            "'b'",
        ),
        Signature(
            "starts_with",
            2,
            2,
            of_texts(Op.STARTS_WITH, BOOLEAN),
            "starts_with(t, prefix)",
            "whether t begins with prefix; with a constant it is LIKE, which the index looks up",
            "starts_with('IBM', 'IB')",
            "true",
        ),
        Signature(
            "strpos",
            2,
            2,
            of_texts(Op.STRPOS, BIGINT),
            "strpos(t, part)",
            "the first position of part in t, counted from 1; 0 without one",
            "strpos('naïve', 'v')",
            "4",
        ),
        Signature(
            "substring",
            2,
            3,
            _with_numbers(Op.SUBSTRING, 1),
            "substring(t, start[, count])",
            "the code points at positions from start up to, not including, start + count; also "
            "substring(t FROM start FOR count)",
            "substring('stream', 3, 2)",
            "'re'",
        ),
        Signature(
            "trim",
            1,
            1,
            of_texts(Op.TRIM, TEXT),
            "trim(t)",
            "without blanks (U+0020) at both ends",
            "trim('  x ')",
            "'x'",
        ),
        Signature(
            "upper",
            1,
            1,
            of_texts(Op.UPPER, TEXT),
            "upper(t)",
            "in upper case, one code point to one",
            "upper('ibm')",
            "'IBM'",
        ),
    ),
    "`a || b` is both texts, one after the other; NULL if one of them is. Positions and lengths\n"
    "count code points. A text of more than 1 MiB that `||`, `concat` or `replace` would make is\n"
    "NULL. If such texts of one answer exceed 256 MiB, the call is refused with `TOO_MUCH_WORK`.",
)
