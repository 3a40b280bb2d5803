"""What ends with a stream or a view that is dropped: the views over it, the grants on both, and a
stream's row policies."""

from __future__ import annotations

from dataclasses import dataclass

from psoup.errors import AdministrationDenied, NamedByViews
from psoup.store import State, StreamState, ViewEnded, ViewState, views_over
from psoup.store.state.access import Grant, Policy
from psoup.write.draft import CommitDraft
from psoup.write.grants import end_grants

_SHOWN = 10


@dataclass(frozen=True, slots=True)
class Ended:
    """What ended with a stream or a view."""

    views: tuple[ViewState, ...]
    policies: tuple[Policy, ...]
    grants: tuple[Grant, ...]


def check_policies(state: State, stream: StreamState, administers: bool) -> None:
    """Raise AdministrationDenied if a stream has row policies that the caller who drops it may not
    end: a stream of the same name that is made next would show all rows."""
    if stream.id in state.access.by_stream and not administers:
        raise AdministrationDenied(
            f"{stream.schema.name} has row policies, which would end with it",
            hint="ask somebody who administers the tenant to drop it",
        )


def end_with(
    draft: CommitDraft, id_: int, name: str, tenant: str, owner: str, cascade: bool
) -> Ended:
    """End the views over a stream or a view that is dropped, outermost first, and all grants on
    what ends; return these, and the policies that will end with a stream.

    Raise NamedByViews if there are views and they are not to end too.
    """
    found = views_over(draft.state.views, id_)
    if found and not cascade:
        names = sorted(view.definition.name for view in found)
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        raise NamedByViews(
            f"{name} is named by {', '.join(names[:_SHOWN])}{more}",
            got=name[:100],
            hint="drop those first, or write CASCADE to end them and their registrations too",
        )
    grants: list[Grant] = []
    for view in found:
        grants += end_grants(draft, view.id, tenant, owner)
        draft.append(tenant, owner, ViewEnded(view.id))
    grants += end_grants(draft, id_, tenant, owner)
    return Ended(tuple(found), tuple(draft.state.access.policies_of(id_)), tuple(grants))
