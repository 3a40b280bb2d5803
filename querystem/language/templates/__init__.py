"""Templates: a query bound once and filled in with many values."""
