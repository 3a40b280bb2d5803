"""Calls: the effects a verb asks for, drivers that carry them out, transports and channels."""
