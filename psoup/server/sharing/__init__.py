"""What the calls of a server share, so that no tenant can take it all.

A call passes the `gate` of its kind, its message waits for its turn (`precedence`) and for room in
memory (`room`), and what takes long waits for a thread, chunk by chunk (`turns`, `shares`).
"""
