"""Appends a row policy with claims filled in that can't be evaluated; as a process.

No server appends one. It stands for a predicate that a later version can't evaluate.
"""

from __future__ import annotations

import sys
from pathlib import Path
from random import Random

from psoup.store import Conflict, Entry, Position, Store
from psoup.store.log.access_events import AccessPut
from psoup.store.state.access import FilledPolicy, Policy
from psoup.write.ids import new_id
from psoup.write.keys import last_state

_KEYS = (
    # Not valid UTF-8.
    '["call","BOOLEAN","=",["col","TEXT","who"],["lit","TEXT","\\ud8{:02x}"]]',
    '["call","BOOLEAN","=",["col","BIGINT","nowhere"],["lit","BIGINT",{}]]',
    '["call","BOOLEAN","nonsense",["col","BIGINT","n"],["lit","BIGINT",{}]]',
    '["no JSON {}"',
)


def append(store: Store, dice: Random) -> None:
    """Append it to the log of a store that servers and an engine write at the same time."""
    version = store.log.latest_version()
    state = last_state(store)
    key = dice.choice(_KEYS).format(dice.randrange(256))
    stream = dice.choice([live for live in state.streams.values() if not live.dropped])
    while True:
        policy_id, existing_id = new_id(state), state.predicates.find(stream.id, key)
        id_ = state.next_predicate_id if existing_id is None else existing_id
        identity = policy_id, stream.tenant, "torture", f"odd{policy_id}", stream.id
        filled = FilledPolicy(policy_id, stream.id, id_, key, 0)
        values = Policy(*identity, "?", "[]", ()), filled
        place = Position(version + 1, 0)
        entry = Entry(place, state.clock, stream.tenant, "torture", AccessPut(values))
        try:
            store.log.append(place.version, [entry])
            return
        except Conflict:
            version += 1
            for appended in store.log.read(version, payloads=False):
                if appended.position > state.position:
                    state.apply(appended)


if __name__ == "__main__":
    append(Store.open(Path(sys.argv[1])), Random(int(sys.argv[2])))
