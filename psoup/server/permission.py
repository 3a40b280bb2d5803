"""Who may make which call: the one table of rules, and the tenant and owner a call acts for.

Every RPC of the proto has a rule; one without is refused. A call acts for the tenant and the owner
of its caller. It may name another tenant only for an operator, and another owner only for those who
administer the tenant. Without authentication every caller is `anyone`, who may name all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from google.protobuf.message_factory import GetMessageClass

from psoup.access.actions import Action, may, only_monitors, operates
from psoup.access.named import named_objects, objects_of
from psoup.access.principal import Principal
from psoup.errors import AdministrationDenied, PermissionDenied, StreamDropped
from psoup.lookup import TenantStreams, Visible, find_registration
from psoup.server.settings import check_name
from psoup.store import Position, Registration, State
from psoup.v1 import psoup_pb2 as pb
from querystem.query import Query


class Of(Enum):
    """The object that a rule speaks of."""

    SEEN = auto()  # what the caller may see, and nothing else
    OBJECT = auto()  # each stream and view that the request names
    REGISTRATION = auto()  # a registration of the caller, and what its text names
    OWN = auto()  # what belongs to the caller; of every owner for those who administer
    TENANT = auto()  # the tenant as a whole
    STORE = auto()  # the store: operators see and do all, others see the part of their tenant


@dataclass(frozen=True, slots=True)
class Rule:
    """The actions that a call needs, on what."""

    of: Of
    actions: tuple[Action, ...] = ()
    # Whether calls, or the batches of one, count as events of quotas. Those that an administrator
    # needs to lift a quota or to shut a caller out do not.
    counts_events: bool = False


_READ_OWN = Rule(Of.REGISTRATION, (Action.READ,))
_REGISTER = Rule(Of.OBJECT, (Action.REGISTER, Action.READ), counts_events=True)
_PUBLISH = Rule(Of.OBJECT, (Action.PUBLISH,), counts_events=True)
_ADMINISTER = Rule(Of.TENANT, (Action.ADMINISTER,))

RULES: Mapping[str, Rule] = {
    # GRANT and REVOKE need `administer`: see `psoup.server.calls.define`.
    "Define": Rule(Of.OBJECT, (Action.DEFINE,), counts_events=True),
    "ListStreams": Rule(Of.SEEN),
    "DescribeStream": Rule(Of.SEEN),
    "ListViews": Rule(Of.SEEN),
    "Register": _REGISTER,
    "RegisterMany": _REGISTER,
    "Unregister": Rule(Of.REGISTRATION, counts_events=True),
    "ListRegistrations": Rule(Of.REGISTRATION),
    "DescribeRegistration": _READ_OWN,
    "Publish": _PUBLISH,
    "PublishStream": _PUBLISH,
    "ListPublishers": Rule(Of.OWN),
    "ForgetPublishers": Rule(Of.OWN, counts_events=True),
    "Invoke": _READ_OWN,
    "Ask": Rule(Of.OBJECT, (Action.READ,)),
    "Explain": _READ_OWN,
    "Sync": _READ_OWN,
    "Watch": _READ_OWN,
    "Status": Rule(Of.STORE),
    "Clock": Rule(Of.STORE),
    "Zones": Rule(Of.STORE),
    "CreateKey": Rule(Of.TENANT, (Action.ADMINISTER,), counts_events=True),
    "ListKeys": _ADMINISTER,
    "RevokeKey": _ADMINISTER,
    "ListGrants": _ADMINISTER,
    "SetQuota": _ADMINISTER,
    "ListQuotas": _ADMINISTER,
    "Audit": _ADMINISTER,
}

_METHODS = pb.DESCRIPTOR.services_by_name["Psoup"].methods
_BY_REQUEST = {
    GetMessageClass(method.input_type): RULES[method.name]
    for method in _METHODS
    if method.name in RULES
}
_NO_RULE = Rule(Of.STORE, tuple(Action))


def rule_of(rpc: str) -> Rule:
    """Return the rule of an RPC. Raise PermissionDenied for one that has none."""
    if rpc not in RULES:
        raise PermissionDenied(f"{rpc} has no rule that says who may call it")
    return RULES[rpc]


@dataclass(frozen=True, slots=True)
class Acting:
    """A caller, the tenant and owner that a call acts for, and the rule of the call."""

    principal: Principal
    tenant: str
    owner: str
    rule: Rule

    @classmethod
    def of(cls, principal: Principal, request: Any) -> Acting:
        """Return the tenant and owner that a request acts for. Raise PermissionDenied,
        BadRequest."""
        # A Watch names its tenant and owner in the Sync that it repeats.
        message = request.sync if isinstance(request, pb.WatchRequest) else request
        tenant = _named(message, "tenant") or principal.tenant
        owner = _named(message, "owner") or principal.owner
        rule = _BY_REQUEST.get(type(request), _NO_RULE)
        if tenant != principal.tenant and not operates(principal):
            raise _denied("act for another tenant", "leave the tenant out, or name your own")
        return cls(principal, tenant, owner, rule)

    # ---- the caller

    @property
    def operates(self) -> bool:
        """Whether the caller is an operator of the store."""
        return operates(self.principal)

    def may(self, state: State, action: Action, object_id: int = 0) -> bool:
        return may(state, self.principal, action, object_id)

    def administers(self, state: State) -> bool:
        return self.may(state, Action.ADMINISTER)

    def own(self, state: State) -> str | None:
        """Return the owner whose registrations the caller may use; None stands for every owner."""
        return None if self.administers(state) else self.principal.owner

    def check_owner(self, state: State) -> None:
        """Raise PermissionDenied if the call acts for an owner that the caller may not."""
        if self.owner != self.principal.owner and not self.administers(state):
            raise _denied("act for another owner", "leave the owner out, or name yourself")

    # ---- streams and views

    def visible(self, state: State) -> Visible:
        """Return a predicate of streams and views: whether the caller may know of them."""
        if any(self.may(state, action) for action in Action):
            return _everything

        def is_visible(object_id: int) -> bool:
            return any(self.may(state, action, object_id) for action in Action)

        return is_visible

    def streams(self, state: State, as_of: Position | None = None) -> TenantStreams:
        """Return the streams and views that a text of the caller can name, with the columns that
        they had at a position, if there is one."""
        return TenantStreams(state, self.tenant, self.visible(state), as_of)

    def demand(
        self,
        state: State,
        objects: Iterable[int] = (0,),
        actions: Iterable[Action] | None = None,
    ) -> None:
        """Raise PermissionDenied if the caller may not do what the rule of the call, or
        `actions`, says with one of the streams and views; 0 stands for all of the tenant."""
        needed = tuple(self.rule.actions if actions is None else actions)
        for object_id in objects:
            for action in needed:
                if not self.may(state, action, object_id):
                    on = name_of(state, object_id)
                    hint = f"ask an administrator for GRANT {action.value} ON {on} TO …"
                    denied = action is Action.ADMINISTER
                    raise (AdministrationDenied if denied else PermissionDenied)(
                        f"no role or grant of yours allows {action.value} on {on}", hint=hint
                    )

    def demand_named(self, state: State, query: Query, streams: TenantStreams) -> None:
        """Raise PermissionDenied if the caller may not do what the rule says with what the text
        of a query names itself, which was bound to `streams`."""
        named = named_objects(query)
        self.demand(state, streams.ids_of(named.streams | named.views))
        self.demand(state, sorted(streams.called_ids), (Action.READ,))

    # ---- registrations

    def owns(self, state: State, handle: bytes) -> bool:
        """Return whether a handle is that of a registration which the caller may use."""
        registration = state.registrations.get(handle)
        owner = self.own(state)
        return (
            registration is not None
            and registration.tenant == self.tenant
            and owner in (None, registration.owner)
        )

    def registration(self, state: State, handle: bytes) -> Registration:
        """Return a registration. Raise RegistrationExpired, and UnknownHandle also for one that the
        caller may not use."""
        return find_registration(state, self.tenant, handle, self.own(state))

    def unread(self, state: State, registration: Registration, query: Query) -> set[int]:
        """Return the ids of the streams and views that the text of a registration names itself and
        the caller may not read.

        Raise StreamDropped if all of them were dropped, and the caller may read what has their
        names now: grants end with a stream, so that it is not their end that bars the way.
        """
        # Most callers may read everything of their tenant; their texts need not be looked at.
        if self.may(state, Action.READ):
            return set()
        objects = objects_of(state, registration, query)
        refused = {
            object_id for object_id in objects if not self.may(state, Action.READ, object_id)
        }
        if refused and all(self._reads_successor(state, object_id) for object_id in refused):
            names = ", ".join(sorted(name_of(state, object_id) for object_id in refused))
            raise StreamDropped(f"{names} was dropped", hint="register this query again")
        return refused

    def reads(self, state: State, registration: Registration, query: Query) -> bool:
        """Return whether the caller may still read what the text of a registration names itself.
        Raise StreamDropped as `unread` does."""
        return not self.unread(state, registration, query)

    def demand_read(self, state: State, registration: Registration, query: Query) -> None:
        """Raise PermissionDenied if the caller may not read what a text names any more, and
        StreamDropped as `unread` does."""
        self.demand(state, sorted(self.unread(state, registration, query)), (Action.READ,))

    def _reads_successor(self, state: State, object_id: int) -> bool:
        """Return whether a stream or view was dropped, and the caller may read what has its name
        now."""
        name = name_of(state, object_id)
        live = state.find_stream(self.tenant, name) or state.find_view(self.tenant, name)
        if live is None or live.id == object_id:
            return False
        return self.may(state, Action.READ, live.id)

    @property
    def binding(self) -> bytes:
        """The bytes that tie tokens to the caller; empty without authentication."""
        if self.principal.anyone:
            return b""
        return f"{len(self.tenant)} {self.tenant} {self.principal.owner}".encode()


def check_call(rpc: str, state: State, acting: Acting) -> None:
    """Refuse a call that its rule refuses whatever it is about. Raise PermissionDenied."""
    rule = rule_of(rpc)
    if only_monitors(acting.principal):
        raise PermissionDenied(
            "the role monitor makes no calls",
            hint="read /metrics and /readyz on the web port; calls need another access key",
        )
    if rule.of is Of.TENANT:
        acting.demand(state, actions=rule.actions)


def demand_operator(acting: Acting, doing: str) -> None:
    """Raise PermissionDenied unless the caller is an operator of the store."""
    if not acting.operates:
        raise _denied(doing, "ask an operator of the store")


def name_of(state: State, object_id: int) -> str:
    """Return the name of a stream, view or function, or ALL."""
    if not object_id:
        return "ALL"
    view = state.views.get(object_id)
    return state.streams[object_id].schema.name if view is None else view.definition.name


def _everything(object_id: int) -> bool:
    return True


def _named(request: Any, field: str) -> str:
    name: str = getattr(request, field, "")
    check_name(name, field)
    return name


def _denied(doing: str, hint: str) -> AdministrationDenied:
    return AdministrationDenied(f"you may not {doing}", hint=hint)
