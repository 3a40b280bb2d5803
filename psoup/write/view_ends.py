"""The end of views: those over something that is dropped end with it, or keep it."""

from __future__ import annotations

from psoup.errors import NamedByViews
from psoup.store import ViewEnded, views_over
from psoup.write.draft import CommitDraft
from psoup.write.grants import end_grants

_SHOWN = 10


def end_views_over(
    draft: CommitDraft, id_: int, name: str, tenant: str, owner: str, cascade: bool
) -> None:
    """Ends the views over a stream or a view that is dropped, outermost first, and all grants on
    what ends.

    Raises NamedByViews where there are any and they are not to end too.
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
    for view in found:
        end_grants(draft, view.id, tenant, owner)
        draft.append(tenant, owner, ViewEnded(view.id))
    end_grants(draft, id_, tenant, owner)
