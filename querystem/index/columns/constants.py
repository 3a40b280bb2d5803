"""The constants of all texts of one template, as columns."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from datastem.arrays import Array, Int64s
from datastem.types import Kind, Type
from querystem.expressions import Expression, Literal, Op, from_json
from querystem.index.batch import bounds_of, double_keys, edges_of, is_wide
from querystem.index.formula import Interval
from querystem.kernel.compare import cuts_of, interval

_INTEGERS = frozenset({Kind.BIGINT, Kind.TIMESTAMP, Kind.DURATION})

Bounds = tuple[Array, Array]


@dataclass(frozen=True, slots=True)
class ConstantColumns:
    """The constants of `count` texts: `written[name][i]` is how text i writes the constant that
    the template has as parameter `name`, in JSON."""

    written: Mapping[str, pa.Array]
    types: Mapping[str, Type]
    count: int

    def take(self, places: Int64s) -> ConstantColumns:
        """Return the constants of the texts at these places."""
        columns = {name: column.take(pa.array(places)) for name, column in self.written.items()}
        return ConstantColumns(columns, self.types, len(places))

    def literal(self, name: str, place: int) -> Literal:
        """Return one constant."""
        return _literal(self.types[name], self.written[name][place].as_py())

    def texts(self, name: str) -> pa.Array:
        """Return the values of a TEXT constant."""
        quoted = self.written[name]
        texts = pc.utf8_slice_codeunits(quoted, 1, -1)
        if not pc.any(pc.match_substring(quoted, "\\")).as_py():
            return texts
        codes = quoted.dictionary_encode()
        values = pa.array([json.loads(text) for text in codes.dictionary.to_pylist()], pa.string())
        return values.take(codes.indices)

    def bounds(self, op: Op, name: str, operand: Expression) -> Bounds:
        """Return the least and the greatest key for which `operand op constant` is true; `op` is
        one of = < <= > >=."""
        keys = self._keys(name, operand.type)
        if keys is None:
            return self._bounds_by_value(op, name, operand)
        lowest, highest = (np.full(self.count, edge) for edge in edges_of(operand.type))
        match op:
            case Op.LT:
                return lowest, keys - 1
            case Op.LE:
                return lowest, keys
            case Op.GT:
                return keys + 1, highest
            case Op.GE:
                return keys, highest
        return keys, keys

    def _keys(self, name: str, type_: Type) -> Int64s | None:
        """Return the keys of the constants, if each is the key of a value of the type and has a
        key before and after it."""
        written, kind = self.written[name], type_.kind
        if kind is Kind.DECIMAL and not is_wide(type_):
            return _decimal_keys(written, type_)
        if self.types[name] != type_:
            return None
        if kind in _INTEGERS:
            return np.asarray(written.cast(pa.int64()))
        if kind is Kind.DOUBLE:
            return _double_keys(written)
        if kind is Kind.DATE:
            days = pc.utf8_slice_codeunits(written, 1, -1).cast(pa.date32())
            return np.asarray(days.cast(pa.int32()).cast(pa.int64()))
        return None

    def _bounds_by_value(self, op: Op, name: str, operand: Expression) -> Bounds:
        """Return the bounds by the scalar rule, once for each distinct constant."""
        codes = self.written[name].dictionary_encode()
        distinct = [
            bounds_of(Interval(operand, *interval(op, cuts_of(literal, operand.type))))
            for literal in (
                _literal(self.types[name], text) for text in codes.dictionary.to_pylist()
            )
        ]
        table = np.array(distinct, object if is_wide(operand.type) else np.int64)
        bounds = table.reshape(-1, 2)[codes.indices.to_numpy()]
        return bounds[:, 0], bounds[:, 1]


def _literal(type_: Type, written: str) -> Literal:
    literal = from_json(["lit", str(type_), json.loads(written)])
    assert isinstance(literal, Literal)
    return literal


def _double_keys(written: pa.Array) -> Int64s | None:
    values = written.cast(pa.float64()).to_numpy()
    # A number that is too large to be finite was written as a number, but none is next to it.
    return double_keys(values) if np.isfinite(values).all() else None


def _decimal_keys(written: pa.Array, type_: Type) -> Int64s | None:
    """Return constants of any exact type as unscaled values; None if one has more digits."""
    try:
        decimals = pc.ascii_trim(written, '"').cast(pa.decimal128(18, type_.scale))
    except pa.ArrowInvalid:
        return None
    # An Arrow decimal is 128 bits: a low and a high int64. Up to 18 digits are all in the low one.
    halves = np.frombuffer(decimals.buffers()[1], np.int64)
    return halves[2 * decimals.offset :: 2][: len(decimals)]
