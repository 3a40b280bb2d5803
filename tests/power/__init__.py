"""Power cuts: a store's writes are recorded, and replayed without those that were not synced.

`recorder` wraps the file functions of a Python process and records, in one order for all processes,
what they name, remove and sync. `disk` makes the folder that a power cut at any moment might have
left. `world` has clients that know what the store must hold afterwards.

    variables = environment(store, journal)      # for each process that writes to the store
    notes = Journal(store, journal)              # notes.mark(…): an acknowledgement
    recording = Recording(journal)               # when they have ended
    recording.restore(cut, folder, rng)          # 0 <= cut <= len(recording)
    recording.marks(cut)                         # what must be there
"""
