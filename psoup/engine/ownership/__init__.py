"""One engine per store: its lock, the fence before deletions, and the stand-by."""
