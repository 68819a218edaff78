"""What this machine offers to the target ``"cuda"``.

Nothing of CUDA is imported before one of these functions is called.
"""


def is_available() -> bool:
    """Return whether programs can run on a GPU here: driver, GPU, PyCUDA and a compiler."""
    return why_not_available() is None


def why_not_available() -> str | None:
    """Return why no program can run on a GPU here, or None if one can."""
    from tcdsl.runtime.cuda import device
    from tcdsl.runtime.nvrtc import why_no_cuda_compiler

    return device.why_not_available() or why_no_cuda_compiler()


def synchronize() -> None:
    """Wait for every launch of this process on all GPUs that tcdsl has used.

    :raises LaunchError: a launch went wrong, or a gathered index was out of range.
    """
    from tcdsl.runtime.cuda.state import synchronize_all

    synchronize_all()
