"""GRANT and REVOKE: which actions a role or an owner may do, on which streams."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot.tokenizer_core import TokenType

from querystem.language.errors import BindProblem, Span
from querystem.language.tokens.names import suggest
from querystem.language.tokens.scan import TokenReader

ACTIONS = ("define", "publish", "register", "read", "administer")

_GRANT = "write GRANT read, register ON stream TO ROLE name, or … ON ALL TO OWNER name"
_REVOKE = "write REVOKE read ON stream FROM ROLE name, or … ON ALL FROM OWNER name"


@dataclass(frozen=True, slots=True)
class GrantActions:
    """Actions that are given to a role or an owner, or taken away if `revoked`.

    `name` is that of a stream or view, at `span`; None stands for all. `to` is "role" or "owner",
    and `grantee` its name.
    """

    actions: tuple[str, ...]
    name: str | None
    span: Span
    to: str
    grantee: str
    revoked: bool = False


def parse_grant(reader: TokenReader, revoked: bool) -> GrantActions:
    """Read what follows GRANT or REVOKE; raise QueryError."""
    hint = _REVOKE if revoked else _GRANT
    actions = [_action(reader)]
    while reader.take(","):
        actions.append(_action(reader))
    reader.need("ON", hint=hint)
    everything = reader.take("ALL")
    name, span = (None, everything) if everything else reader.need_name("a stream, a view or ALL")
    reader.need("FROM" if revoked else "TO", hint=hint)
    to = next((word for word in ("ROLE", "OWNER") if reader.take(word)), None)
    if to is None:
        reader.fail("expected ROLE or OWNER", hint=hint)
    grantee = read_grantee(reader, to.lower())
    reader.finish(hint=hint)
    return GrantActions(tuple(dict.fromkeys(actions)), name, span, to.lower(), grantee, revoked)


def _action(reader: TokenReader) -> str:
    span = reader.span
    if reader.token is None:
        reader.fail("expected an action", hint=f"an action is one of {', '.join(ACTIONS)}")
    word = reader.skip().text.lower()
    if word not in ACTIONS:
        raise BindProblem(
            f"{word[:60]} is not an action",
            span,
            hint=suggest(word, ACTIONS) or f"an action is one of {', '.join(ACTIONS)}",
            reason="UNKNOWN_ACTION",
        )
    return word


def read_grantee(reader: TokenReader, what: str) -> str:
    """Return a name or a text: roles and owners may have names that SQL does not allow."""
    span = reader.span
    quoted = reader.take_kind(TokenType.STRING)
    name = reader.need_name(f"the name of the {what}")[0] if quoted is None else quoted.text
    if not name:
        raise BindProblem(f"the name of the {what} is empty", span, reason="BAD_OPTION")
    return name
