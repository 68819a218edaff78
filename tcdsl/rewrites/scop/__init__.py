"""Rewrites of scops: statements over other domains and arrays that compute the same."""
