"""Power cuts: a store's writes are recorded, and replayed with what was not synced lost.

`recorder` puts itself between a Python process and the disk and writes down, in one order for all
processes, what they name, remove and sync. `disk` makes the folder anew as a power cut at any
moment might have left it. `world` has clients that know what they must find afterwards.

    variables = environment(store, journal)      # for each process that writes to the store
    notes = Journal(store, journal)              # notes.mark(…): what a client was told
    recording = Recording(journal)               # when they have ended
    recording.restore(cut, folder, rng)          # 0 <= cut <= len(recording)
    recording.marks(cut)                         # what must be there
"""
