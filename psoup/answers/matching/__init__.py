"""Which rows a predicate matches, and which of them policies show."""
