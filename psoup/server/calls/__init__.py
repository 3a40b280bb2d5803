"""The calls a client can make, from a request to its responses."""
