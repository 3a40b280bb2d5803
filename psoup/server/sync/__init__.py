"""Sync and Watch: what changed in a copy since its token, in parts that can be cut anywhere.

`tokens` says what a copy is, signed. A `Job` is one item of a call with its target; a `Copier`
tells the difference between the two, of rows (`rowcopy`) or of results (`resultcopy`). `parts`
makes messages of it, `call` a Sync, `watch` a Watch.
"""
