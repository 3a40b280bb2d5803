"""Objects that end when a stream, a view or a function is dropped: the views and functions over it,
the grants on them, and a stream's row policies."""

from __future__ import annotations

from dataclasses import dataclass

from psoup.errors import AdministrationDenied, NamedByViews
from psoup.store import Registration, State, StreamState, ViewEnded, ViewState, views_over
from psoup.store.state.access import Grant, Policy
from psoup.write.draft import CommitDraft
from psoup.write.grants import end_grants

_MAX_LISTED_VIEWS = 10


@dataclass(frozen=True, slots=True)
class Ended:
    """The objects that ended with a stream, view or function, or with the change of a stream.
    `views` are views and functions. Of a drop, `registrations` is None: they end as soon as they
    are used."""

    views: tuple[ViewState, ...]
    policies: tuple[Policy, ...]
    grants: tuple[Grant, ...]
    registrations: tuple[Registration, ...] | None = None


def check_policies(state: State, stream: StreamState, administers: bool) -> None:
    """Raise AdministrationDenied if a stream has row policies and the caller does not administer.

    A stream of the same name that is created next would show all rows.
    """
    if stream.id in state.access.by_stream and not administers:
        raise AdministrationDenied(
            f"{stream.schema.name} has row policies, which would end with it",
            hint="ask an administrator of the tenant to drop it",
        )


def end_with(
    draft: CommitDraft, id_: int, name: str, tenant: str, owner: str, cascade: bool
) -> Ended:
    """End the views and functions over what is dropped, outermost first, and all grants on them and
    on it.

    Return what ended, and the policies that will end with a stream. The caller appends the end of
    the stream or view itself. Raise NamedByViews if there are views and `cascade` is False.
    """
    views = views_over(draft.state.views, id_)
    if views and not cascade:
        names = sorted(view.definition.name for view in views)
        more = (
            f" and {len(names) - _MAX_LISTED_VIEWS} more" if len(names) > _MAX_LISTED_VIEWS else ""
        )
        raise NamedByViews(
            f"{name} is named by {', '.join(names[:_MAX_LISTED_VIEWS])}{more}",
            got=name[:100],
            hint="drop those first, or write CASCADE to end them and their registrations too",
        )
    grants: list[Grant] = []
    # Grants end before their object, so that a replay never sees a grant on nothing.
    for view in views:
        grants += end_grants(draft, view.id, tenant, owner)
        draft.append(tenant, owner, ViewEnded(view.id))
    grants += end_grants(draft, id_, tenant, owner)
    return Ended(tuple(views), tuple(draft.state.access.policies_of(id_)), tuple(grants))
