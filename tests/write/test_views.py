"""Views as proposals: what is refused, and what has to be bound again."""

from __future__ import annotations

import pytest

from datastem.schema import Column, StreamSchema
from datastem.types import BIGINT
from psoup.errors import NamedByViews, NoSuchStream, StreamExists
from psoup.store import State, ViewEnded
from psoup.write.draft import CommitDraft, Moment, RecentBatches, Stale
from psoup.write.streams import Define, Drop
from psoup.write.views import DefineView, EndView
from querystem.views import ViewDefinition

pytestmark = pytest.mark.usefixtures("counted_ids")

COLUMNS = (Column("a", BIGINT),)


@pytest.fixture
def draft() -> CommitDraft:
    """A stream 1, `s`, and over it the views 2, `v`, and 3, `w`."""
    commit = CommitDraft(State().draft(), 1, Moment(5, "here", 5), RecentBatches())
    Define("main", "main", StreamSchema("s", COLUMNS)).propose(commit)
    view("v", (1,)).propose(commit)
    view("w", (1,), (2,)).propose(commit)
    return commit


def view(name: str, streams: tuple[int, ...], views: tuple[int, ...] = ()) -> DefineView:
    definition = ViewDefinition(name, "SELECT a FROM s", COLUMNS)
    return DefineView("main", "main", definition, streams, views)


@pytest.mark.parametrize("name", ["s", "v"])
def test_a_name_is_a_stream_s_or_a_view_s(draft: CommitDraft, name: str) -> None:
    with pytest.raises(StreamExists):
        view(name, (1,)).propose(draft)
    with pytest.raises(StreamExists):
        Define("main", "main", StreamSchema(name, COLUMNS)).propose(draft)


def test_what_views_name_stays(draft: CommitDraft) -> None:
    before = len(draft.entries)
    with pytest.raises(NamedByViews, match="s is named by v, w"):
        Drop("main", "main", "s").propose(draft)
    with pytest.raises(NamedByViews, match="v is named by w"):
        EndView("main", "main", "v").propose(draft)
    assert len(draft.entries) == before, "nothing is half done"


def test_cascade_ends_them_outermost_first(draft: CommitDraft) -> None:
    Drop("main", "main", "s", cascade=True).propose(draft)
    ended = [entry.event for entry in draft.entries if isinstance(entry.event, ViewEnded)]
    assert ended == [ViewEnded(3), ViewEnded(2)]
    with pytest.raises(NoSuchStream):
        EndView("main", "main", "v").propose(draft)


def test_a_view_over_what_has_ended_is_bound_again(draft: CommitDraft) -> None:
    EndView("main", "main", "w").propose(draft)
    with pytest.raises(Stale):
        view("x", (1,), (3,)).propose(draft)
    Drop("main", "main", "s", cascade=True).propose(draft)
    with pytest.raises(Stale):
        view("x", (1,)).propose(draft)


def test_a_view_of_another_tenant_is_not_seen(draft: CommitDraft) -> None:
    with pytest.raises(NoSuchStream):
        EndView("other", "main", "v").propose(draft)
