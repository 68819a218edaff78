"""Running kernels on NVIDIA GPUs.

    libcuda     the driver's functions that PyCUDA has no wrapper for
    device      PyCUDA, and the devices' primary contexts
    memory      device memory, pinned memory, copies between host and device
    faults      gathered indices out of range, which kernels report
    module      loaded code, and its launches
    steps       one kernel or memset each, ready for a call's pointers
    libraries   arrays of torch, CuPy, PyCUDA, Numba, JAX: pointers, streams, allocation
    copying     arrays of any strides, copied on the device
    dlpack      memory of ours, handed to another library

Nothing here imports PyCUDA or another library of arrays before it is needed.
"""
