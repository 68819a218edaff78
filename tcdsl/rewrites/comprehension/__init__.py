"""Rewrites of comprehensions: which indices become one, before anything is polyhedral."""
