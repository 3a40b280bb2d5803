"""Back-ups of a running store, and stores made from them.

`pins` keeps the engine from deleting what is being copied, `copying` copies files and checks them,
`generations` has the manifests, `making` makes a back-up and `restoring` makes a store from one.
`targets` opens the place of back-ups, a `folder` or the `objects` of a bucket.
"""
