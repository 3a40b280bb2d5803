"""The types of numpy arrays, by the type of their elements."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Mask = npt.NDArray[np.bool_]
Int8s = npt.NDArray[np.int8]
Int64s = npt.NDArray[np.int64]
UInt8s = npt.NDArray[np.uint8]
UInt16s = npt.NDArray[np.uint16]
UInt32s = npt.NDArray[np.uint32]
UInt64s = npt.NDArray[np.uint64]
Doubles = npt.NDArray[np.float64]
Array = npt.NDArray[Any]
# int64, or Python's integers if one of them does not fit (`querystem.kernel.integers`).
Integers = npt.NDArray[Any]
