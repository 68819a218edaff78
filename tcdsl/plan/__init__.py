"""Plans: which statements share a kernel, found by a search that the cost model's times guide."""
