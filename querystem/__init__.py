"""What a query is: its language, its bound form, the kernel, the predicate index. Pure."""
