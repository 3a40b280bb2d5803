"""What a copy has to learn before it shows own edits: its query, and whether they can be shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from client_sdk._exceptions import ConnectionFailed, NotComputable, PsoupError, Timeout
from client_sdk._grpc.effects import Flow
from client_sdk._session import Session
from client_sdk._wire.models import Stream
from client_sdk._wire.values import Scalar
from client_sdk.copies._file import catalog, sqlite, tables
from client_sdk.copies._file.file import CopyFile
from client_sdk.copies._file.records import Declaration, unseal
from client_sdk.copies._overlay import confirmed, own_rows
from client_sdk.copies._query.base_rows import (
    ask_query,
    content_of,
    is_learnt,
    keep_query,
    query_in,
    require,
)


@dataclass(frozen=True, slots=True)
class Learnt:
    """The result of learning. `refusal` says why own edits can't be shown, and `error` why the
    store could not be asked.
    """

    error: PsoupError | None = None
    refusal: PsoupError | None = None


def learn_edits(file: CopyFile, session: Session, declaration: Declaration) -> Flow[Learnt]:
    """Learn the query of a copy that is to show own edits, and evaluate what is queued.

    If they can't be shown, the copy is kept without them. Raises ConnectionFailed or Timeout.
    """
    if not declaration.edits or not declaration.handle:
        return Learnt()
    with file.reading() as connection:
        learnt = is_learnt(connection, declaration)
        content = content_of(connection, declaration) if learnt else None
        has_table = tables.exists(connection, tables.overlay_table(declaration.copy_id))
    if content is not None and has_table:
        return Learnt()
    try:
        if content is None:
            registration, streams = yield from ask_query(file, session, declaration)
            query = registration.sql, registration.parameters, streams, declaration.window
            _check(query, declaration.base_rows)
            keep_query(file, declaration, registration, streams)
        else:
            _check(query_in(content), declaration.base_rows)
    except (ConnectionFailed, Timeout):
        raise
    except NotComputable as refusal:
        with file.writing(durable=True) as connection:
            catalog.amend(connection, declaration.copy_id, edits=False)
            hide(connection, declaration.copy_id)
        return Learnt(refusal=refusal)
    except PsoupError as error:
        return Learnt(error=error)
    with file.writing() as connection:
        own_rows.rebuild(connection, declaration)
    return Learnt()


def _check(query: tuple[str, Mapping[str, Scalar], Sequence[Stream], str], base_rows: bool) -> None:
    """Raise NotComputable if own edits can't be shown in the answer of a query."""
    require()
    # Imported here, because the rest of the SDK works without numpy and sqlglot.
    from client_sdk.copies._overlay.evaluate import own_query

    own_query(*query, base_rows)


def hide(connection: sqlite.Connection, copy_id: int) -> None:
    """Show no own edits in a copy any more."""
    own_rows.drop(connection, copy_id)
    confirmed.sweep(connection)


def needs_keys(connection: sqlite.Connection, declaration: Declaration) -> bool:
    """Return whether rows are to come with their stream keys, so that own rows can replace them."""
    content = unseal(content_of(connection, declaration)) if declaration.edits else None
    return content is not None and bool(content["stream"]["key"])
