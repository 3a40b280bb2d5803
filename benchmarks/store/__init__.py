"""`benchmarks/run store`: how fast a store is on your machine, with your own queries and rows."""
