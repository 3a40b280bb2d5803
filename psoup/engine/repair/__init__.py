"""After a failure: going back to an epoch, mended files, quarantine, clocks, restored stores."""
