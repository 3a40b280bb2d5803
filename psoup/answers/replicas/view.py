"""A store at one moment, as planning reads it."""

from __future__ import annotations

from dataclasses import dataclass

from datastem.stem_view import StemView
from psoup.answers.replicas.epoch_files import EpochView
from psoup.answers.replicas.keyed_history import KeyedView
from psoup.answers.replicas.replica import Replica
from psoup.store import Losses, State, StreamState


@dataclass(frozen=True, slots=True)
class View:
    """A replica and the clock. It is valid until the replica changes, so planning must not wait
    while it uses a view.

    `now` never runs backwards: it is not less than the last stamp of the log.
    """

    replica: Replica
    now: int

    @classmethod
    def at(cls, replica: Replica, clock: int) -> View:
        """Return the view of a replica when the clock is `clock`, in microseconds UTC."""
        return cls(replica, max(clock, replica.state.clock))

    @property
    def state(self) -> State:
        return self.replica.state

    @property
    def epoch(self) -> EpochView:
        return self.replica.epoch

    @property
    def losses(self) -> Losses:
        return self.replica.losses

    def now_of(self, stream: StreamState) -> int | None:
        """Return NOW of a stream: the clock, or the greatest ts reached; None before there is
        one."""
        return self.now if stream.schema.now_is_clock else stream.reached

    def stem(self, stream_id: int) -> StemView:
        return self.replica.stems[stream_id].view()

    def find_stem(self, stream_id: int) -> StemView | None:
        """Return the stem of a stream; None if the stream was dropped."""
        stem = self.replica.stems.get(stream_id)
        return None if stem is None else stem.view()

    def keyed(self, stream_id: int, stem: StemView) -> KeyedView | None:
        """Return the history of a stream at the moment of a view of its stem; None without a stream
        key."""
        keyed = self.replica.keyed.get(stream_id)
        return None if keyed is None else keyed.view(stem)
