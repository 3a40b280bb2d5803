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
# Figure 8, as in section 5.2.2: milliseconds an invoke, windows of 576 rows of each table.
FIGURE_8_WINDOW = 576
FIGURE_8 = {"PSoup-P": 29.98, "PSoup-C": 8.54}
# Figure 11, as in section 5.4.2: composite tuples against separate ones.
FIGURE_11 = {"Eq/Ineq": "about 2 × faster", "Ineq/Eq": "faster", "Ineq/Ineq": "slower"}
