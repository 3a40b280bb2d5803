"""The query language: a text becomes a bound query, a window or a definition.

    scan ─> statements, views, policies, grants                   CREATE, DROP; GRANT, REVOKE
    scan ─> parse ─> select ─> templates                          queries, bound and filled in
            │        ├─> blocks                                   SELECT, and what stands inside
            │        │   ├─> sources (references, scope)          FROM, joins, inner queries, WITH
            │        │   │   └─> inlining                         views
            │        │   ├─> clauses (bind)                       the other clauses, expressions
            │        │   ├─> sets, subqueries                     UNION …; queries in expressions
            │        │   └─> lookups                              AS OF, AS KNOWN AT
            │        └─> tails ─> windows                         BEGIN … END …, RANGE, ROWS, …
            └─> frames, grammar (dialect)                         tokens become a tree
    push ─> templates                                             conditions go down to streams
    template_rows ─> templates                                    one text with many rows of values
    template_cache ─> templates                                   a text like earlier ones

Everything here raises `QueryError` and nothing else for a text it refuses.
"""

from querystem.language.errors import (
    BindProblem,
    NotYet,
    QueryError,
    RefreshProblem,
    Span,
    SyntaxProblem,
    TypeProblem,
    UnknownColumn,
    UnknownFunction,
    UnknownParameter,
    UnknownStream,
    WindowProblem,
)
from querystem.language.grants import GrantActions
from querystem.language.policies import (
    PolicyCondition,
    bind_policy,
    filled_policy,
    sample_policy,
)
from querystem.language.references import Lookup, Names
from querystem.language.statements import (
    CreatePolicy,
    CreateStream,
    CreateView,
    DropPolicy,
    DropStream,
    DropView,
    Statement,
    parse_statement,
    policy_sql,
    stream_sql,
    view_sql,
)
from querystem.language.template_cache import TemplateCache
from querystem.language.template_rows import BoundRows, bind_rows
from querystem.language.templates import Template, bind_query, prepare
from querystem.language.texts import (
    expression_text,
    leg_window_text,
    refresh_text,
    window_text,
)
from querystem.language.views import bind_view
from querystem.language.windows import bind_window, bring_window

__all__ = [
    "BindProblem",
    "BoundRows",
    "CreatePolicy",
    "CreateStream",
    "CreateView",
    "DropPolicy",
    "DropStream",
    "DropView",
    "GrantActions",
    "Lookup",
    "Names",
    "NotYet",
    "PolicyCondition",
    "QueryError",
    "RefreshProblem",
    "Span",
    "Statement",
    "SyntaxProblem",
    "Template",
    "TemplateCache",
    "TypeProblem",
    "UnknownColumn",
    "UnknownFunction",
    "UnknownParameter",
    "UnknownStream",
    "WindowProblem",
    "bind_policy",
    "bind_query",
    "bind_rows",
    "bind_view",
    "bind_window",
    "bring_window",
    "expression_text",
    "filled_policy",
    "leg_window_text",
    "parse_statement",
    "policy_sql",
    "prepare",
    "refresh_text",
    "sample_policy",
    "stream_sql",
    "view_sql",
    "window_text",
]
