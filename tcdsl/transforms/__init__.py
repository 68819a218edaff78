"""Rewrites of comprehensions, scops and schedules; each does what it is told, and is verified."""
