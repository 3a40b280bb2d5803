"""The formulas of all predicates in one graph, where equal parts are one node.

A node is a factor, or AND or OR over other nodes. Nodes count their users; a node goes with the
last of them. Inner nodes are kept in groups of one arity, so that a group is evaluated by as many
matrix operations as its nodes have children.
"""

from __future__ import annotations

from collections.abc import Iterator, Sized
from dataclasses import dataclass
from typing import Any

from querystem.expressions import Expression
from querystem.index.axes import Axis, DenseTable, IntervalAxis, MemberAxis, PointAxis
from querystem.index.batch import point_of
from querystem.index.formula import Condition, Every, Factor, Formula, Interval, Member, Some

NodeKey = Factor | tuple[type[Every] | type[Some], tuple[int, ...]]


@dataclass(slots=True)
class _Node:
    key: NodeKey
    children: tuple[int, ...]
    level: int
    users: int = 0


@dataclass(frozen=True, order=True, slots=True)
class Arity:
    """How many children a node has and of which kind; nodes of one arity are evaluated together.

    Lower levels come first. The `late` children, which are conditions, come after the `early` ones.
    """

    level: int
    is_every: bool
    early: int
    late: int


class FormulaGraph:
    """The nodes, by ids: small integers that are used again after a node has gone."""

    def __init__(self) -> None:
        self.axes: dict[tuple[type[Axis], Expression], Axis] = {}
        self.conditions: dict[int, Condition] = {}
        self._groups: dict[Arity, DenseTable] = {}
        self._nodes: dict[int, _Node] = {}
        self._ids: dict[NodeKey, int] = {}
        self._free: list[int] = []

    def __len__(self) -> int:
        return len(self._nodes)

    @property
    def lines(self) -> int:
        """The number after the greatest id there has been."""
        return len(self._nodes) + len(self._free)

    def groups(self) -> Iterator[tuple[Arity, DenseTable]]:
        """The groups in the order of evaluation; a row of a group is a node and its children."""
        for arity in sorted(self._groups):
            yield arity, self._groups[arity]

    def acquire(self, formula: Formula) -> int:
        """The node of a formula, with one more user."""
        if not isinstance(formula, Every | Some):
            return self._use(formula, ())
        acquired = [self.acquire(part) for part in formula.parts]
        children = tuple(sorted(set(acquired)))
        key: NodeKey = (type(formula), children)
        surplus = list(acquired)
        if key not in self._ids:
            for child in children:
                surplus.remove(child)
        id_ = self._use(key, children)
        for child in surplus:
            self.release(child)
        return id_

    def formula(self, id_: int) -> Formula:
        """The formula of a node; its parts may be in another order than `acquire` was given."""
        node = self._nodes[id_]
        if not isinstance(node.key, tuple):
            return node.key
        return node.key[0](tuple(self.formula(child) for child in node.children))

    def release(self, id_: int) -> None:
        """Says that a user of the node has gone."""
        node = self._nodes[id_]
        node.users -= 1
        if node.users:
            return
        self._unplace(id_, node)
        del self._nodes[id_], self._ids[node.key]
        self._free.append(id_)
        for child in node.children:
            self.release(child)

    def _use(self, key: NodeKey, children: tuple[int, ...]) -> int:
        id_ = self._ids.get(key)
        if id_ is None:
            id_ = self._free.pop() if self._free else len(self._nodes)
            level = 1 + max((self._nodes[child].level for child in children), default=0)
            node = self._nodes[id_] = _Node(key, children, level)
            self._ids[key] = id_
            self._place(id_, node)
        self._nodes[id_].users += 1
        return id_

    def _place(self, id_: int, node: _Node) -> None:
        match node.key:
            case Interval() | Member() as factor:
                home = _home(factor)
                if home not in self.axes:
                    self.axes[home] = home[0](factor.operand)
                self.axes[home].put(id_, factor)  # type: ignore[arg-type]
            case Condition() as factor:
                self.conditions[id_] = factor
            case _:
                arity, row = self._arity(id_, node)
                self._groups.setdefault(arity, DenseTable(len(row))).put(id_, *row)

    def _unplace(self, id_: int, node: _Node) -> None:
        match node.key:
            case Interval() | Member() as factor:
                _drop(self.axes, _home(factor), id_)
            case Condition():
                del self.conditions[id_]
            case _:
                _drop(self._groups, self._arity(id_, node)[0], id_)

    def _arity(self, id_: int, node: _Node) -> tuple[Arity, list[int]]:
        late = [child for child in node.children if child in self.conditions]
        early = [child for child in node.children if child not in self.conditions]
        early.sort(key=lambda child: not isinstance(self._nodes[child].key, Interval))
        is_every = isinstance(node.key, tuple) and node.key[0] is Every
        arity = Arity(node.level, is_every, len(early), len(late))
        return arity, [id_, *early, *late]

    def _check(self, roots: list[int]) -> None:
        users = dict.fromkeys(self._nodes, 0)
        for id_ in [*roots, *[child for node in self._nodes.values() for child in node.children]]:
            users[id_] += 1
        assert users == {id_: node.users for id_, node in self._nodes.items()}
        assert all(users.values())
        assert {node.key: id_ for id_, node in self._nodes.items()} == self._ids
        assert sorted([*self._nodes, *self._free]) == list(range(self.lines))
        placed: list[Sized] = [*self.axes.values(), *self._groups.values()]
        assert sum(map(len, placed)) + len(self.conditions) == len(self._nodes)
        assert all(map(len, placed))
        for axis in self.axes.values():
            axis._check()
        for arity, group in self._groups.items():
            group._check()
            for id_, *children in group.table.tolist():
                assert all(self._nodes[child].level < arity.level for child in children)
                assert sorted(children) == list(self._nodes[id_].children)


def _home(factor: Interval | Member) -> tuple[type[Axis], Expression]:
    if isinstance(factor, Member):
        return MemberAxis, factor.operand
    return (IntervalAxis if point_of(factor) is None else PointAxis), factor.operand


def _drop(homes: dict[Any, Any], home: Any, id_: int) -> None:
    homes[home].drop(id_)
    if not len(homes[home]):
        del homes[home]
