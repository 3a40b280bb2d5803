"""Calls: the effects a verb asks for, the drivers that carry them out, transports and channels."""
