"""The numbers the paper prints (its figures have more, but only as curves)."""

from __future__ import annotations

# Table 2: by intervals in a query, milliseconds an invoke at a window of 2^15 rows.
TABLE_2 = {
    1: {"NoMat": 0.3940, "PSoup-P": 0.0465, "PSoup-C": 0.0565},
    2: {"NoMat": 0.4905, "PSoup-P": 0.0240, "PSoup-C": 0.0210},
    4: {"NoMat": 0.8255, "PSoup-P": 0.0130, "PSoup-C": 0.0035},
}
# Section 5.2.4: "beats the PSoup-P_Unshrd system by an order of magnitude".
SHARED_GAIN = 10.0
