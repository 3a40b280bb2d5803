"""Proposals that create and drop views and functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from psoup.lookup import find_view
from psoup.store import Position, ViewCreated, ViewEnded, ViewState
from psoup.write.draft import HEADER_BYTES, Chain, CommitDraft, check_bound
from psoup.write.drops import Ended, end_with
from psoup.write.ids import new_id
from psoup.write.quotas import check_objects
from psoup.write.registrations import check_views
from psoup.write.streams import check_free
from querystem.user_functions import FunctionDefinition
from querystem.views import ViewDefinition


@dataclass(frozen=True, slots=True)
class DefineView:
    """Proposal to create a view or a function. `streams`, and `views` with functions, are the ids
    that its text was bound to, directly or through what it names."""

    tenant: str
    owner: str
    definition: ViewDefinition | FunctionDefinition
    streams: Sequence[int]
    views: Sequence[int]
    chain: Chain | None = None

    @property
    def nbytes(self) -> int:
        return HEADER_BYTES + len(self.definition.text)

    def propose(self, draft: CommitDraft) -> tuple[ViewState, Position]:
        check_free(draft.state, self.tenant, self.definition.name)
        check_objects(draft.state, "views", self.tenant, self.owner)
        if isinstance(self.definition, ViewDefinition):
            check_bound(draft.state, self.streams, self.definition.bound_at)
        check_views(draft.state, self.views)
        view_id, over = new_id(draft.state), (*self.streams, *self.views)
        event = ViewCreated(view_id, self.definition, over)
        position = draft.append(self.tenant, self.owner, event)
        return draft.state.views[view_id], position


@dataclass(frozen=True, slots=True)
class EndView:
    """Proposal to drop the live view or function of a name, and with `cascade` first the views and
    functions over it."""

    tenant: str
    owner: str
    name: str
    cascade: bool = False
    kind: str = "view"
    nbytes: int = HEADER_BYTES
    chain: Chain | None = None

    def propose(self, draft: CommitDraft) -> tuple[ViewState, Position, Ended]:
        view = find_view(draft.state, self.tenant, self.name, kind=self.kind)
        ended = end_with(draft, view.id, self.name, self.tenant, self.owner, self.cascade)
        return view, draft.append(self.tenant, self.owner, ViewEnded(view.id)), ended
