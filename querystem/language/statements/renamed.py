"""Texts of policies and views after columns were renamed: people read them with today's labels.

A text is stored as it was written. What it means is fixed when it is bound, and stays.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache

from sqlglot.tokenizer_core import TokenType

from datastem.schema import StreamSchema
from querystem.expressions import columns_of, from_json, predicate_key
from querystem.labels import labelled
from querystem.language.errors import QueryError
from querystem.language.normal_form.texts import expression_text
from querystem.language.statements.definitions import CreatePolicy, parse_statement, policy_sql
from querystem.language.statements.policies import bind_policy
from querystem.language.tokens.names import write_name
from querystem.language.tokens.scan import scan
from querystem.views import ViewDefinition

_MAX_TEXTS = 1024


@lru_cache(maxsize=_MAX_TEXTS)
def policy_text(text: str, form: str, schema: StreamSchema) -> str:
    """Return the condition of a policy with the present labels of its columns. `form` is what the
    `text` was bound to."""
    where = from_json(json.loads(form))
    labels = {
        old.label: column.label
        for column in schema.columns
        if column.name in columns_of(where)
        for old in column.former
    }
    if not labels:
        return text
    for candidate in (text, _relabelled(text, labels)):
        if _form_of(candidate, schema) == form:
            return candidate
    # A name stands for different things in the text, or the text calls functions.
    return expression_text(labelled(where, schema))


def _form_of(text: str, schema: StreamSchema) -> str:
    """Return what a condition means with the present labels; empty if it is refused."""
    sql = policy_sql("p", schema.name, text)
    try:
        statement = parse_statement(sql)
        assert isinstance(statement, CreatePolicy)
        bound = bind_policy(sql, statement, lambda name: schema if name == schema.name else None)
    except QueryError:
        return ""
    return predicate_key(bound.where)


def _relabelled(text: str, labels: Mapping[str, str]) -> str:
    """Return a text with other names in the place of some names."""
    written, end = "", 0
    for token in scan(text):
        if token.token_type != TokenType.STRING and token.text.lower() in labels:
            written += text[end : token.start] + write_name(labels[token.text.lower()])
            end = token.end + 1
    return written + text[end:]


def view_renames(view: ViewDefinition, schemas: Iterable[StreamSchema]) -> list[str]:
    """Return which columns that the text of a view may name have other labels now. `schemas` are
    those of its streams."""
    words = {word.lower() for word in _WORD.findall(view.text)}
    return [
        f"{schema.name}.{label} is {column.label}"
        for schema in schemas
        if schema.name in words
        for column in schema.columns
        if (label := column.label_at(view.bound_at)) != column.label and label in words
    ]


_WORD = re.compile(r"\w+")
