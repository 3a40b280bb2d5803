"""The store on disk: a folder of Delta tables, and the only code that commits to them.

`Store` opens the folder. `Log` is the one total order of events, `State` their fold, `Epoch` one
step of the engine made visible. `DeltaFolder` is a Delta table whose commits are put-if-absent.
"""

from psoup.store.composite_marks import CompositeMark
from psoup.store.delta import Commit, DataFile, DeltaFolder, Snapshot
from psoup.store.epochs import Epoch, Epochs, StreamMark
from psoup.store.errors import (
    Conflict,
    CorruptStore,
    ForeignPosition,
    LogTrimmed,
    NotAStore,
    Repairing,
    StoreError,
    UnsupportedFormat,
)
from psoup.store.log.events import (
    Accept,
    ClockStatement,
    Composite,
    Confirm,
    Data,
    Entry,
    Event,
    Expire,
    Interest,
    Jump,
    LegPredicate,
    Register,
    RegisterMany,
    Release,
    Renew,
    Replace,
    RowsErased,
    StreamAltered,
    StreamCreated,
    StreamEnded,
    Tick,
    Trigger,
    Unregister,
    ViewCreated,
    ViewEnded,
    WriterStarted,
    ZoneDefined,
)
from psoup.store.log.log import Log
from psoup.store.log.position import START, Position
from psoup.store.state.composites import CompositeState
from psoup.store.state.legs import RegisteredComposite, RegisteredLeg
from psoup.store.state.losses import NO_LOSS, Hole, Losses, Lost
from psoup.store.state.predicates import Predicate
from psoup.store.state.registration import Registration
from psoup.store.state.state import State
from psoup.store.state.streams import AcceptedBatch, StreamState
from psoup.store.state.touched import Touched
from psoup.store.state.views import ViewState, kind_of_view, views_over
from psoup.store.state.writers import WriterMarks
from psoup.store.store import Store

__all__ = [
    "Accept",
    "AcceptedBatch",
    "ClockStatement",
    "Commit",
    "Composite",
    "CompositeMark",
    "CompositeState",
    "Confirm",
    "Conflict",
    "CorruptStore",
    "Data",
    "DataFile",
    "DeltaFolder",
    "Entry",
    "Epoch",
    "Epochs",
    "Event",
    "Expire",
    "ForeignPosition",
    "Hole",
    "Interest",
    "Jump",
    "LegPredicate",
    "Log",
    "LogTrimmed",
    "Losses",
    "Lost",
    "NO_LOSS",
    "NotAStore",
    "Position",
    "Predicate",
    "Register",
    "RegisterMany",
    "Release",
    "RegisteredComposite",
    "RegisteredLeg",
    "Registration",
    "Renew",
    "Replace",
    "RowsErased",
    "Repairing",
    "START",
    "Snapshot",
    "State",
    "Store",
    "StoreError",
    "StreamAltered",
    "StreamCreated",
    "StreamEnded",
    "StreamMark",
    "StreamState",
    "Tick",
    "Touched",
    "Trigger",
    "Unregister",
    "UnsupportedFormat",
    "ViewCreated",
    "ViewEnded",
    "ViewState",
    "WriterMarks",
    "WriterStarted",
    "ZoneDefined",
    "kind_of_view",
    "views_over",
]
