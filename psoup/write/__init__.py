"""Writing to a store: what may be appended to its log, when it is refused, and the appending.

A *proposal* (`streams`, `registrations`, `leases`) gets a `CommitDraft` of the next commit, and
appends its events or is refused. The `Appender` makes one commit of the proposals that wait
together. `clock` decides which instant the commit is stamped with. Nothing here depends on the
wire: a server uses it, and a program without a server can.
"""
