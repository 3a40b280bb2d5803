"""Publishing offline: batches that wait in the file, and how each is sent exactly once."""
