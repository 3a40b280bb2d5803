"""The page of functions, docs/reference/functions.md, made from the table.

`python -m querystem.language.functions.page` prints it; a test compares.
"""

from __future__ import annotations

from collections.abc import Iterator

from querystem.language.functions.aggregates import AGGREGATES, SAMPLE
from querystem.language.functions.signature import FunctionGroup
from querystem.language.functions.table import GROUPS

_HEAD = """# Functions

What each function of [the query language](language.md) means. This page is printed from the table
that the binder reads (`python -m querystem.language.functions.page`); tests compute every example.

If an argument is NULL, so is the value, unless the table says otherwise. No function fails for a
row: what can't be computed is [NULL](language.md#what-cant-be-computed). Names may be in any case.
"""

_AGGREGATES = """NULLs are left out. Over nothing `count` is 0 and the others are NULL. With
DISTINCT before x every value counts once.
[Groups and aggregates](language.md#groups-and-aggregates) has the rules.
Sums, variances and deviations are exact and rounded once, whatever the order of rows.
"""

_TAIL = """## Unlike DuckDB

| here | DuckDB |
|---|---|
| `sqrt(-1)`, `ln(0)`, `log10(-1)`, `power(0, -1)` and `power(-8, 0.5)` are NULL | NaN or infinite |
| `mod(x, 0)` is NULL | an error, or NaN |
| `concat` and `\\|\\|` take texts only | other types are written as texts |
| an empty separator of `split_part` does not split | it splits into letters |
| `left`, `right`, `substring` and `split_part` take BIGINT alone | any integer type |
| a text past 1 MiB is NULL | no limit |
| `median` and `percentile` of a DECIMAL are DOUBLE; times are refused | DECIMAL; TIMESTAMP |
| `percentile(x, p)` | `quantile_cont(x, p)` |
| `date_trunc('day', t, 'zone')` | `date_trunc('day', t AT TIME ZONE 'zone') AT TIME ZONE 'zone'` |
| a day that had begun when the clock is set back across midnight goes on | it begins again |
"""


def page() -> str:
    """Return the text of the page."""
    groups = [part for group in GROUPS for part in _group(group)]
    return "\n".join([_HEAD, *groups, *_aggregates(), _TAIL])


def _aggregates() -> Iterator[str]:
    yield "## Aggregates\n"
    yield "| aggregate | value | type | example | is |\n|---|---|---|---|---|"
    for rule in AGGREGATES.values():
        example = f"`{rule.example or f'{rule.name}(x)'}` | `{rule.value}`"
        yield f"| `{rule.written}` | {rule.meaning} | {rule.type_text} | {example} |"
    values = ", ".join("NULL" if value is None else str(value) for value in SAMPLE)
    yield f"\nIn the examples x is {values}, in the order of ts."
    yield f"{_AGGREGATES}"


def _group(group: FunctionGroup) -> Iterator[str]:
    yield f"## {group.title}\n"
    yield "| function | value | example | is |\n|---|---|---|---|"
    for signature in group.signatures:
        cells = f"`{signature.written}`", signature.meaning
        yield f"| {' | '.join(cells)} | `{signature.example}` | `{signature.value}` |"
    yield f"\n{group.notes}\n"


if __name__ == "__main__":
    print(page(), end="")
