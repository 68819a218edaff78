"""Numbers about a scop on a machine: extents, bytes, operations, limits."""
