"""Own edits in own copies: rows of the queue, shown in a copy before the store has sent them."""
