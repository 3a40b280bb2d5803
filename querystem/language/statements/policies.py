"""CREATE POLICY, bound: a condition over the rows of a stream, in which `claim('name')` stands for
a value of the caller.

A claim is a parameter whose type follows from its use. So a policy is bound once, when it is
created, and claims are filled in like parameters. This never fails: a claim that is missing, or
does not fit its type, is NULL.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Context, Decimal

from sqlglot import exp

from datastem.instants import from_micros
from datastem.schema import StreamSchema
from datastem.types import Kind, Type
from querystem.expressions import Call, Expression, Literal, Parameter, Scalar, uses_now
from querystem.language.errors import (
    BindProblem,
    NotYet,
    QueryError,
    Span,
    UnknownParameter,
    UnknownStream,
    located,
)
from querystem.language.expressions.bind import Binder
from querystem.language.expressions.coerce import untyped_claim
from querystem.language.expressions.scope import Scope, stream_item
from querystem.language.expressions.user_calls import UserCalls
from querystem.language.normal_form.normal import FALSE
from querystem.language.queries.clauses import bind_condition
from querystem.language.queries.references import Lookup, Names, function_lookup
from querystem.language.statements.definitions import CreatePolicy
from querystem.language.syntax.parse import parse_query
from querystem.language.syntax.tree import consume, node_span
from querystem.language.templates.filling import expression_filler
from querystem.language.templates.moments import apart
from querystem.language.tokens.literals import MAX_BIGINT, MIN_BIGINT, UNTYPED, convert
from querystem.language.tokens.names import nearest, write_name
from querystem.language.tokens.scan import MAX_TEXT
from querystem.views import ViewDefinition
from querystem.visibility import visibility_of

# Python's own context has 28 digits, and a DECIMAL up to 38.
_WIDE = Context(prec=64)

ClaimValue = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class PolicyCondition:
    """A condition with parameters in the place of claims, and the names of those."""

    where: Expression
    claims: tuple[str, ...]


def bind_policy(
    sql: str,
    statement: CreatePolicy,
    lookup: Lookup,
    *,
    max_text: int = MAX_TEXT,
    names: Names | None = None,
) -> PolicyCondition:
    """Return the condition of the policy that a statement, whose text is `sql`, makes; raise
    QueryError if it is refused."""
    with located(sql):
        schema = _stream(statement, lookup, names)
        node = _parsed(statement, max_text)
        claims: dict[str, Span] = {}
        scope, functions = Scope((stream_item(schema.name, schema),)), function_lookup(lookup)
        calls = UserCalls(functions)
        binder = Binder(scope, {}, claims=claims, functions=calls, has_now=True)
        where = _condition(node, binder)
        _check_now(where, node_span(node.args["where"].this))
        for parameter in _parameters(where):
            if parameter.name.startswith(UNTYPED):
                name = parameter.name.removeprefix(UNTYPED)
                raise untyped_claim(name, claims[name])
    return PolicyCondition(where, tuple(sorted(claims)))


def _stream(statement: CreatePolicy, lookup: Lookup, names: Names | None) -> StreamSchema:
    name, source = statement.stream, lookup(statement.stream)
    if isinstance(source, StreamSchema):
        return source
    if source is not None:
        kind = "view" if isinstance(source, ViewDefinition) else "function"
        raise BindProblem(
            f"{name} is a {kind}; policies stand on streams",
            statement.span,
            hint="create it on the streams of the view: it holds whichever way their rows are read",
            reason="NOT_A_STREAM",
        )
    near = nearest(name, names()) if names else None
    hint = "create it with CREATE STREAM, or look at the list of streams"
    raise UnknownStream(
        f"there is no stream {name}",
        statement.span,
        hint=f"did you mean {near}?" if near else hint,
    )


def _parsed(statement: CreatePolicy, max_text: int) -> exp.Expr:
    """Return a query that has the condition at the same place as the statement, so that errors
    point to it."""
    before = f"SELECT 0 FROM {write_name(statement.stream)} WHERE (".ljust(statement.begin)
    node = parse_query(f"{before}{statement.text})", max(max_text, len(before)))
    consume(node, "expressions", "from_", "where")
    return node


def _condition(node: exp.Expr, binder: Binder) -> Expression:
    try:
        return bind_condition(node.args.get("where"), "USING", binder)
    except UnknownParameter as problem:
        problem.hint = "a policy has no parameters: write claim('name') for a value of the caller"
        raise
    except NotYet as problem:
        problem.hint = "a policy decides for each row by itself whether it is shown"
        raise


def _check_now(where: Expression, span: Span) -> None:
    """Raise NotYet unless the condition says of NOW only when a row is visible."""
    when = apart(where)[1]
    is_interval = visibility_of(when) is not None and not any(_parameters(when))
    if uses_now(when) and not is_interval:
        raise NotYet(
            "NOW in USING, but as a limit of a column",
            span,
            hint="compare one column with NOW, plus or minus a constant, joined to the rest by AND",
        )


def _parameters(expression: Expression) -> Iterator[Parameter]:
    match expression:
        case Parameter():
            yield expression
        case Call(_, args, _):
            for arg in args:
                yield from _parameters(arg)


# ---- claims filled in


def filled_policy(where: Expression, claims: Mapping[str, ClaimValue]) -> Expression:
    """Return the condition with the values of a caller's claims, in normal form."""
    literals = {
        claim.name: _literal(claims.get(claim.name.removeprefix(f"{claim.type} ")), claim.type)
        for claim in _parameters(where)
    }
    return _filled(where, literals)


def sample_policy(where: Expression) -> Expression:
    """Return the condition with a value of the right type in the place of each claim, to try it
    with."""
    literals = {
        claim.name: Literal(_SAMPLES[claim.type.kind], claim.type) for claim in _parameters(where)
    }
    return _filled(where, literals)


def _filled(where: Expression, literals: Mapping[str, Literal]) -> Expression:
    try:
        return expression_filler(where)(literals)
    except QueryError:
        # For example a text of the caller that is no pattern: no row is shown, and no error raised.
        return FALSE


_SAMPLES: Mapping[Kind, Scalar] = {
    Kind.BOOLEAN: True,
    Kind.BIGINT: 1,
    Kind.DOUBLE: 1.0,
    Kind.DECIMAL: Decimal(0),
    Kind.TEXT: "a",
    Kind.TIMESTAMP: from_micros(0),
    Kind.DATE: date(1970, 1, 1),
}


def _literal(value: ClaimValue, type_: Type) -> Literal:
    """Return the value as a type; NULL if it does not fit."""
    return Literal(None if value is None else _fitting(value, type_), type_)


def _fitting(value: str | int | float | bool, type_: Type) -> Scalar:
    match type_.kind, value:
        case (Kind.BOOLEAN, bool()) | (Kind.TEXT, str()):
            return value
        case (_, bool()):
            return None
        case (Kind.BIGINT, int()):
            return value if MIN_BIGINT <= value <= MAX_BIGINT else None
        case (Kind.DOUBLE, int() | float()):
            return _double(value)
        case (Kind.DECIMAL, int() | float()):
            return _decimal(value, type_)
        case (Kind.TIMESTAMP | Kind.DATE, str()):
            return _of_time(value, type_)
    return None


def _double(value: int | float) -> float | None:
    try:
        # Zero has one sign, as everywhere in the language.
        return float(value) + 0.0 if math.isfinite(value) else None
    except OverflowError:
        return None


def _decimal(value: int | float, type_: Type) -> Decimal | None:
    if not math.isfinite(value):
        return None
    exact = Decimal(str(value))
    sign, digits, exponent = exact.normalize().as_tuple()
    assert isinstance(exponent, int)
    whole = len(digits) + exponent
    if -exponent > type_.scale or whole > type_.precision - type_.scale:
        return None
    return exact.quantize(Decimal(1).scaleb(-type_.scale), context=_WIDE)


def _of_time(value: str, type_: Type) -> Scalar:
    try:
        literal = convert(Literal(value, Type(Kind.TEXT)), type_, None)
    except QueryError:
        return None
    return None if literal is None else literal.value
