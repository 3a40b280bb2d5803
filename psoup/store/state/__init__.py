"""The fold of the log: `state` applies events; the other modules are its parts.

Registrations and predicates, of which there may be millions, are columns (`column_mapping`,
`columns`, `hash_index`); a draft of them lies over those (`drafts`). `leases`, `jumps` and `losses`
are small values.
"""
