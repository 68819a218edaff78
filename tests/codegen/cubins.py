"""What NVRTC's machine code says of a kernel."""

import struct
from collections.abc import Mapping

RESERVED_BYTES = 1 << 10  # of the shared memory of a block that has any, for the system
_SHARED = ".nv.shared."


def shared_bytes(code: bytes) -> Mapping[str, int]:
    """Return the static shared memory of the kernels of *code*, as far as they have any.

    :arg code: an ELF file of 64 bits, for compute capability 9.0.
    """
    (start,) = struct.unpack_from("<Q", code, 0x28)
    entry_bytes, n_entries, of_names = struct.unpack_from("<HHH", code, 0x3A)
    sections = [
        struct.unpack_from("<IIQQQQ", code, start + number * entry_bytes)
        for number in range(n_entries)
    ]
    names = sections[of_names][4]
    found = {}
    for name, _, _, _, _, size in sections:
        text = code[names + name : code.index(b"\0", names + name)].decode()
        if text.startswith(_SHARED) and text != f"{_SHARED}reserved.0":
            found[text.removeprefix(_SHARED)] = size - RESERVED_BYTES
    return found
