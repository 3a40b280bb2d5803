"""Back-ups, pins and restores of stores whose epochs are made by hand."""
