"""Random streams, and random queries over several of them, written in two languages."""
