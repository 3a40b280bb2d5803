"""The formulas of predicates that come and go one by one, in a graph in which equal parts are one
node.

A node is a factor, or AND or OR over other nodes. Nodes count their users, and end with the last
of them. Inner nodes are in groups of one arity, so that a group is evaluated by as many matrix
operations as its nodes have children.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sized
from dataclasses import dataclass
from typing import Any

import numpy as np

from datastem.arrays import Int64s, Mask
from querystem.expressions import Expression
from querystem.index.batch import ProbeBatch, point_of
from querystem.index.dense_table import DenseTable
from querystem.index.formula import (
    Condition,
    Every,
    Factor,
    Formula,
    Interval,
    Member,
    Some,
    like_of,
)
from querystem.index.growing_axes import (
    GrowingAxis,
    GrowingIntervals,
    GrowingLikes,
    GrowingMembers,
    GrowingPoints,
)
from querystem.index.probe import Arity

NodeKey = Factor | tuple[type[Every] | type[Some], tuple[int, ...]]


@dataclass(slots=True)
class _Node:
    key: NodeKey
    children: tuple[int, ...]
    level: int
    users: int = 0


class FormulaGraph:
    """The nodes, by ids: small integers that are used again after a node has ended."""

    def __init__(self) -> None:
        self._axes: dict[tuple[type[GrowingAxis], Expression], GrowingAxis] = {}
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

    @property
    def axes(self) -> Collection[GrowingAxis]:
        return self._axes.values()

    @property
    def condition_nodes(self) -> Int64s:
        """The nodes that are conditions."""
        return np.fromiter(self.conditions, np.int64, len(self.conditions))

    def condition_mask(self, node: int, batch: ProbeBatch) -> Mask:
        """Return a mask of the rows for which a condition holds."""
        return batch.mask(self.conditions[node])

    def groups(self) -> Iterator[tuple[Arity, Int64s]]:
        """Yield the groups in the order of evaluation; a row of a group is a node and its
        children."""
        for arity in sorted(self._groups):
            yield arity, self._groups[arity].table

    def acquire(self, formula: Formula) -> int:
        """Return the node of a formula, with one more user."""
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
        """Return the formula of a node; its parts may be in another order than in `acquire`."""
        node = self._nodes[id_]
        if not isinstance(node.key, tuple):
            return node.key
        return node.key[0](tuple(self.formula(child) for child in node.children))

    def release(self, id_: int) -> None:
        """Take one user off a node, and remove the node with its last user."""
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
            case Interval() | Member() | Condition() as factor:
                home = _home(factor)
                if home is None:
                    assert isinstance(factor, Condition)
                    self.conditions[id_] = factor
                    return
                if home not in self._axes:
                    self._axes[home] = home[0](home[1])
                self._axes[home].put(id_, factor)  # type: ignore[arg-type]
            case _:
                arity, row = self._arity(id_, node)
                self._groups.setdefault(arity, DenseTable(len(row))).put(id_, *row)

    def _unplace(self, id_: int, node: _Node) -> None:
        match node.key:
            case Interval() | Member() | Condition() as factor:
                home = _home(factor)
                if home is None:
                    del self.conditions[id_]
                else:
                    _drop(self._axes, home, id_)
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
        placed: list[Sized] = [*self._axes.values(), *self._groups.values()]
        assert sum(map(len, placed)) + len(self.conditions) == len(self._nodes)
        assert all(map(len, placed))
        for axis in self._axes.values():
            axis._check()
        for arity, group in self._groups.items():
            group._check()
            for id_, *children in group.table.tolist():
                assert all(self._nodes[child].level < arity.level for child in children)
                assert sorted(children) == list(self._nodes[id_].children)


def _home(factor: Factor) -> tuple[type[GrowingAxis], Expression] | None:
    """Return the kind of axis and the operand of a factor; None if no axis answers it."""
    if isinstance(factor, Condition):
        like = like_of(factor)
        return None if like is None else (GrowingLikes, like[0])
    if isinstance(factor, Member):
        return GrowingMembers, factor.operand
    return (GrowingIntervals if point_of(factor) is None else GrowingPoints), factor.operand


def _drop(homes: dict[Any, Any], home: Any, id_: int) -> None:
    homes[home].drop(id_)
    if not len(homes[home]):
        del homes[home]
