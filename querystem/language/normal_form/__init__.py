"""The normal form of bound expressions, other columns put into them, and their texts."""
