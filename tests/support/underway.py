"""What semel says is under way in this process when a test has ended: nothing. What one test leaves, another would be told of."""

import gc
import time
from typing import get_args

from semel.ports.roster import ROSTER, Kind

PATIENCE_SECONDS = 5.0
"""How long a thread that was let go, or a process that was killed, may take to be gone."""


def take_left() -> list[str]:
    """Threads, processes, connections and deaf tasks that go on, however long one waits. It is told once, of whose they are."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (found := _named()) and time.monotonic() < deadline:
        gc.collect()  # a connection that nobody closed ends with its owner
        time.sleep(0.005)
    for entry in list(ROSTER._held) if found else []:
        ROSTER.strike_off(entry)
    return found


def _named() -> list[str]:
    return [f"{kind} {name}" for kind in get_args(Kind) for name in ROSTER.names(kind)]
