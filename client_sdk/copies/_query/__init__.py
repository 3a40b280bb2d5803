"""Reading offline: the answer of a copy at an instant, computed from base rows or not, and SQL."""
