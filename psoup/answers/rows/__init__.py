"""The rows of a leg: what its window chooses, and summaries over runs of rows."""
