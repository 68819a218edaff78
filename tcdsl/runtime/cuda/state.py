"""What tcdsl keeps in each context: memory, scalars, pinned buffers, fault records."""

from dataclasses import field

from tcdsl.records import dataclass
from tcdsl.runtime.cuda import libcuda
from tcdsl.runtime.cuda.device import Context
from tcdsl.runtime.cuda.faults import Faults
from tcdsl.runtime.cuda.memory import DevicePool, Scalars, Staging


@dataclass(slots=True, eq=False)
class State:
    """The state of one context; all of it is made when it is first needed."""

    pool: DevicePool
    scalars: Scalars
    staging: Staging = field(default_factory=Staging)
    faults: Faults = field(default_factory=Faults)


_states: dict[int, State] = {}  # by the context's handle


def state_of(context: Context) -> State:
    """Return what tcdsl keeps in *context*."""
    state = _states.get(context.handle)
    if state is None:
        pool = DevicePool(context.name)
        state = _states.setdefault(context.handle, State(pool, Scalars(pool)))
    return state


def synchronize_all() -> None:
    """Wait for all that was launched in contexts that tcdsl uses; raise what went wrong."""
    for handle, state in list(_states.items()):
        with libcuda.current(handle):
            libcuda.synchronize_context()
            state.faults.require_none()
