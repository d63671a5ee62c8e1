"""A ground in memory, for tests of agents: nothing touches a disk, and a process can be made to die."""

from semel.adapters.memory.store import Medium, MemoryStore
from semel.adapters.system import SystemClock, SystemIds
from semel.core.features import KNOWN
from semel.engine.resume import Ground


def memory_ground(medium: Medium | None = None) -> Ground:
    """A process on a medium, or on a fresh one: `Runtime(agents=[agent], ground=memory_ground())`.

    A second ground on the same medium is another process on the same machine; `ground.store.crash()` ends this one.
    """
    clock = SystemClock()
    return Ground(store=MemoryStore(clock, known=KNOWN, medium=medium), clock=clock, ids=SystemIds())
