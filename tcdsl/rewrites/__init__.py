"""Rewrites of comprehensions and of scops; each does what it is told, and is verified."""
