"""Strategies: which loops a kernel has, and where each statement instance stands in them."""
