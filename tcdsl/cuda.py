"""What this machine offers to the target ``"cuda"``."""


def is_available() -> bool:
    """Return whether programs can run on a GPU here; this version has no CUDA target yet."""
    return False
