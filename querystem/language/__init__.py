"""The query language: a text becomes a bound query, a window or a definition.

The folders are the pipeline; each imports only those above it.

    errors         what is wrong with a text, and at which place
    tokens         scan (dialect), names and types, literals, durations
    syntax         parse: frames (windows set apart), grammar, refreshes; windows; refusals
    normal_form    normal, rewrite (other columns), texts (what a person reads)
    expressions    bind: scope, coerce, functions, conditions, time_arithmetic, clocks, user_calls
    queries        select ─> blocks                 SELECT, and what stands inside
                             ├─> sources            FROM: references, lookups, inlining (views)
                             ├─> clauses, groups    the other clauses
                             ├─> sets, subqueries   UNION …; queries in expressions
                             └─> tails (drafts)     windows and REFRESH, read last
    templates      template: filling, push          values filled in, conditions pushed down
                   rows, predicate_texts            one text with many rows of values
                   cache                            a text like earlier ones is not parsed
    statements     definitions (CREATE, DROP), alterations, views, functions, policies, grants,
                   erasures

Everything here raises `QueryError` and nothing else for a text that it refuses.
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
from querystem.language.normal_form.texts import (
    expression_text,
    leg_window_text,
    refresh_text,
    window_text,
)
from querystem.language.queries.references import Lookup, Named, Names
from querystem.language.statements.alterations import (
    AddColumn,
    Alteration,
    AlterStream,
    DropColumn,
    RenameColumn,
    SetAhead,
    SetLead,
    SetRetain,
    SetSlack,
)
from querystem.language.statements.definitions import (
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
from querystem.language.statements.erasures import ErasedRows, EraseRows, bind_erase
from querystem.language.statements.functions import (
    CreateFunction,
    DropFunction,
    bind_function_definition,
    function_body,
    function_sql,
)
from querystem.language.statements.grants import GrantActions
from querystem.language.statements.policies import (
    PolicyCondition,
    bind_policy,
    filled_policy,
    sample_policy,
)
from querystem.language.statements.renamed import policy_text, view_renames
from querystem.language.statements.views import bind_view
from querystem.language.syntax.window_checks import reaches_past
from querystem.language.syntax.windows import bind_window, bring_window
from querystem.language.templates.cache import TemplateCache
from querystem.language.templates.moments import apart, timeless
from querystem.language.templates.rows import BoundRows, bind_rows
from querystem.language.templates.template import Template, bind_query, prepare
from querystem.language.tokens.names import write_name

__all__ = [
    "AddColumn",
    "Alteration",
    "DropColumn",
    "RenameColumn",
    "AlterStream",
    "BindProblem",
    "BoundRows",
    "CreateFunction",
    "CreatePolicy",
    "CreateStream",
    "CreateView",
    "DropFunction",
    "DropPolicy",
    "DropStream",
    "DropView",
    "EraseRows",
    "ErasedRows",
    "GrantActions",
    "Lookup",
    "Named",
    "Names",
    "NotYet",
    "PolicyCondition",
    "QueryError",
    "RefreshProblem",
    "SetAhead",
    "SetLead",
    "SetRetain",
    "SetSlack",
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
    "apart",
    "bind_erase",
    "bind_function_definition",
    "bind_policy",
    "bind_query",
    "bind_rows",
    "bind_view",
    "bind_window",
    "bring_window",
    "expression_text",
    "filled_policy",
    "function_body",
    "function_sql",
    "leg_window_text",
    "parse_statement",
    "policy_sql",
    "policy_text",
    "prepare",
    "reaches_past",
    "refresh_text",
    "sample_policy",
    "stream_sql",
    "timeless",
    "view_renames",
    "view_sql",
    "window_text",
    "write_name",
]
