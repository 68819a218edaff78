"""Schedules: which loops a kernel has, who runs them, where arrays live, who waits for whom."""
