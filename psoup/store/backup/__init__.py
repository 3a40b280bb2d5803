"""Back-ups of a running store, and stores made from them.

`pins` keeps the engine from deleting what is being copied, `copying` copies files and checks them,
`generations` is the target's folder with its manifests, `making` makes a back-up and `restoring`
makes a store from one.
"""
