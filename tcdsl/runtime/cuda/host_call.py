"""A call of compiled kernels on NumPy arrays: over to the device, and back."""

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from tcdsl.errors import FORKED
from tcdsl.runtime.arrays import NDArray, as_numpy
from tcdsl.runtime.cuda import device, libcuda
from tcdsl.runtime.cuda.memory import Block
from tcdsl.runtime.cuda.module import Loaded


def run_on_host_arrays(
    loaded: Loaded,
    arrays: Mapping[str, NDArray],
    written: Collection[str],
    outputs: Sequence[str],
    integers: Sequence[int],
) -> None:
    """Compute the *outputs* among *arrays*, of which those *written* need not be copied over.

    :raises LaunchError: there is no memory, or the kernels reported a fault: then the outputs
        are as they were.
    """
    if device.in_forked_child:
        raise FORKED()
    stream, pool = libcuda.DEFAULT_STREAM, loaded.state.pool
    blocks: dict[str, Block] = {}
    with loaded.context.current():
        loaded.state.faults.require_none()
        try:
            for name in loaded.manifest.arrays:
                size_bytes = max(arrays[name].nbytes, 1)
                blocks[name] = pool.take(size_bytes, stream, f"{name!r}")
                if name not in written:
                    dense = np.ascontiguousarray(as_numpy(arrays[name]))
                    loaded.state.staging.to_device(blocks[name].address, dense, stream)
            slots = [block.address for block in blocks.values()]
            if loaded.workspace_bytes:
                block = pool.take(
                    loaded.workspace_bytes, stream, "the workspace",
                    has_tickets=loaded.manifest.has_tickets,
                )  # fmt: skip
                blocks[""] = block
                slots += [block.address + offset for offset in loaded.offsets]
            if any(arrays[name].size for name in outputs):
                loaded.launch((*slots, loaded.fault_address, *integers), stream)
                libcuda.synchronize(stream)
            loaded.state.faults.require_none()
            for name in outputs:
                if name in blocks:
                    loaded.state.staging.to_host(arrays[name], blocks[name].address, stream)
        finally:
            for block in blocks.values():
                pool.give_back(block, stream)
