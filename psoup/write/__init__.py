"""Writing to a store: what may be appended to its log, when it is refused, and the appending.

A *proposal* (`streams`, `registrations`, `leases`) is asked over a `CommitDraft` of the
next commit and appends its events or is refused. The `Appender` makes one commit of the proposals
that wait together. `clock` says which instant the commit is stamped with. Nothing here knows of a
wire: a server writes by it today, and whatever publishes without one can.
"""
