"""The table of functions: the binder, the page and the tests read it."""

from __future__ import annotations

from querystem.language.errors import Span, SyntaxProblem, UnknownFunction
from querystem.language.expressions.clocks import is_clock
from querystem.language.functions.aggregates import AGGREGATES
from querystem.language.functions.numbers import NUMBERS
from querystem.language.functions.others import CHOICE, TIME
from querystem.language.functions.signature import Args, Signature
from querystem.language.functions.texts import TEXTS
from querystem.language.tokens.literals import Typed
from querystem.language.tokens.names import suggest

GROUPS = (NUMBERS, TEXTS, CHOICE, TIME)
FUNCTIONS: dict[str, Signature] = {
    signature.name: signature for group in GROUPS for signature in group.signatures
}

_INSTEAD = {
    "substr": "substring",
    "len": "length",
    "char_length": "length",
    "ceiling": "ceil",
    "ifnull": "coalesce",
    "nvl": "coalesce",
    "isnull": "coalesce",
    "lcase": "lower",
    "ucase": "upper",
    "date_part": "extract",
    "pow": "power",
    "log": "ln or log10",
    "log2": "ln(x) / ln(2)",
    "instr": "strpos",
    "position": "strpos",
    "prefix": "starts_with",
    "startswith": "starts_with",
    "concat_ws": "concat, or ||",
    "mean": "avg",
    "average": "avg",
    "total": "sum",
    "stdev": "stddev",
    "any_value": "first",
    "arbitrary": "first",
    "first_value": "first",
    "last_value": "last",
    "approx_count_distinct": "count(DISTINCT …)",
    "quantile": "percentile",
    "quantile_cont": "percentile",
    "percentile_cont": "percentile(x, 0.95)",
    "variance_pop": "var_pop",
    "if": "CASE WHEN … THEN … ELSE … END",
    "iif": "CASE WHEN … THEN … ELSE … END",
    "try_cast": "CAST, which gives NULL for what can't be converted",
}

# Functions that people look for and that the language has no substitute for.
_LISTS = "texts of several rows can't be joined; select the rows, and join them in the client"
_MODE = "count the values by GROUP BY, with ORDER BY count(*) DESC LIMIT 1"
_ABSENT = dict.fromkeys(("string_agg", "group_concat", "listagg"), _LISTS) | {"mode": _MODE}


def check_function(name: str, span: Span) -> None:
    """Raise UnknownFunction if no function has this name, which is in lower case."""
    if name not in FUNCTIONS:
        raise _unknown(name, span)


def bind_function(name: str, args: Args, span: Span) -> Typed:
    """Return the call of a function whose name, in lower case, `check_function` accepts; raise
    SyntaxProblem, TypeProblem."""
    function = FUNCTIONS[name]
    if not function.least <= len(args) <= function.most:
        raise SyntaxProblem(f"{name} takes {_counted(function)}, not {len(args)}", span)
    return function.bind(args, span)


def _unknown(name: str, span: Span) -> SyntaxProblem | UnknownFunction:
    if is_clock(name):
        return SyntaxProblem(
            f"{name[:60]} is not a function", span, hint="write NOW", reason="NOT_SUPPORTED"
        )
    candidates = [*FUNCTIONS, *AGGREGATES, "cast"]
    if name in _INSTEAD:
        hint = f"write {_INSTEAD[name]}"
    else:
        hint = _ABSENT.get(name) or suggest(name, candidates)
    return UnknownFunction(f"there is no function {name[:60]}", span, hint=hint)


def _counted(function: Signature) -> str:
    least, most = function.least, function.most
    if least == most:
        return f"{least} argument{'s' if least > 1 else ''}"
    return f"{least} to {most} arguments"
