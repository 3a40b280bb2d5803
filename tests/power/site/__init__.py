"""A folder for PYTHONPATH: processes that have it are recorded."""
