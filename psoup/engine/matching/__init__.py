"""Which predicates meet which rows: live predicates, coverage and back-fill."""
