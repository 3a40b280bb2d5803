"""The formulas of many predicates as arrays that never change."""
