"""The polyhedral core: scops, dependences, schedule trees, and their verification."""
