"""Sources: rows from other places into streams, each once.

A source runs in a process of its own and talks to a store through the client SDK only. How far it
has read is the mark of its publisher, which the store keeps in the commit of the rows.
"""
