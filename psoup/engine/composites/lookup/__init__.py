"""How rows of a leg are found by rows of another.

edges      what connects two legs, and the numbers of its sides
hashes     keys of equalities
ranges     keys of inequalities
probes     rows of a side by their keys
"""
