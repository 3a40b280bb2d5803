"""Feeding: records of a reader in batches into a stream, each once by the mark of its publisher."""
