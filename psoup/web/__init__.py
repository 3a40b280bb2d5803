"""The web port of a server: HTTP resources over the same Core and Admission as gRPC.

A layer above `psoup.server`, whose calls it makes in the same process and event loop.
"""
