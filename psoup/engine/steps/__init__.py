"""A step: new rows are stored and matched; keyed rows end earlier ones."""
