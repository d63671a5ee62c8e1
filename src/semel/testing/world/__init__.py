"""The simulated world: the whole engine on a simulated machine, in one thread, on virtual time, decided by one seed."""

from semel.testing.world.fate import FAULTS
from semel.testing.world.story import Tally, run_seeds, told
from semel.testing.world.world import Build, Report, World

__all__ = ["FAULTS", "Build", "Report", "Tally", "World", "run_seeds", "told"]
