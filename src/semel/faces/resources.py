"""What a runtime has under way: nothing, once its runs have ended and nothing was deaf."""

import asyncio
from pathlib import Path

import semel
from semel.core.values import Frozen
from semel.ports.roster import ROSTER

_OURS = str(Path(semel.__file__).parent)


class Resources(Frozen, frozen=True, kw_only=True):
    """Counts of this process, and names of what is not a task. `tasks` include timers; `sessions` are those that it holds.

    `deaf` are tools and models on the event loop that did not end when they were told to, and that nobody waits for.
    """

    sessions: tuple[str, ...] = ()
    tasks: int = 0
    processes: tuple[str, ...] = ()
    connections: tuple[str, ...] = ()
    threads: tuple[str, ...] = ()
    deaf: tuple[str, ...] = ()

    @property
    def none(self) -> bool:
        """Whether nothing is left."""
        return self == Resources()


def resources(sessions: tuple[str, ...]) -> Resources:
    """What is under way now, in the running event loop and beside it."""
    return Resources(
        sessions=sessions,
        tasks=sum(_is_ours(task) for task in asyncio.all_tasks() if task is not asyncio.current_task()),
        processes=ROSTER.names("process"),
        connections=ROSTER.names("connection"),
        threads=ROSTER.names("thread"),
        deaf=ROSTER.names("task"),
    )


def _is_ours(task: "asyncio.Task[object]") -> bool:
    code = getattr(task.get_coro(), "cr_code", None)
    return code is not None and code.co_filename.startswith(_OURS)
