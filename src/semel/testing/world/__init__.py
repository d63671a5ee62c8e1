"""The simulated world: the whole engine on a simulated machine, in one thread, on virtual time, decided by one seed."""

from semel.testing.world.fate import FAULTS, Fate
from semel.testing.world.world import Report, World

__all__ = ["FAULTS", "Fate", "Report", "World"]
