"""The description of one function: how it is written, what it means, how a call is bound."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from datastem.types import Kind, Type
from querystem.expressions import Op
from querystem.language.errors import Span
from querystem.language.expressions.coerce import cast, need, need_number
from querystem.language.normal_form.normal import call
from querystem.language.tokens.literals import Typed

Args = Sequence[Typed]
Bind = Callable[[Args, Span], Typed]

# No function takes more arguments.
MAX_ARGUMENTS = 1000


@dataclass(frozen=True, slots=True)
class Signature:
    """A function. `written` is how it is called, `example` an expression and `value` its value, as
    the page shows them."""

    name: str
    least: int
    most: int
    bind: Bind
    written: str
    meaning: str
    example: str
    value: str


@dataclass(frozen=True, slots=True)
class FunctionGroup:
    """Functions that stand together on the page."""

    title: str
    signatures: tuple[Signature, ...]
    notes: str = ""


def of_texts(op: Op, result: Type) -> Bind:
    """Return the binding of a function of texts alone."""

    def bind(args: Args, span: Span) -> Typed:
        nodes = tuple(need(arg, Kind.TEXT, op.value).node for arg in args)
        return Typed(call(op, nodes, result), span)

    return bind


def of_doubles(op: Op, result: Type) -> Bind:
    """Return the binding of a function of numbers, which are converted to DOUBLE."""

    def bind(args: Args, span: Span) -> Typed:
        nodes = tuple(cast(need_number(arg, op.value), result).node for arg in args)
        return Typed(call(op, nodes, result), span)

    return bind
