"""The state: the fold of the log. `state` applies events; the other modules are its parts.

Registrations and predicates, of which there may be millions, are columns (`column_mapping`,
`columns`, `hash_index`). A draft is an overlay over them (`drafts`). `leases`, `jumps` and `losses`
are small values.
"""
