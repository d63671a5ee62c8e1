"""A Python function as a hook: an async one runs on the event loop, any other in a daemon thread, as a tool does."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

from semel.adapters.tools.threads import in_daemon_thread
from semel.errors import BadAgent
from semel.ports.hook import NamedHook


def as_hook(function: Callable[[Any], object], phase: str) -> NamedHook:
    """The hook that a function is; its name is the function's. Raises BadAgent for what cannot be called."""
    if not callable(function):
        raise BadAgent(f"a {phase} hook is a function, not a {type(function).__name__}")
    name = str(getattr(function, "__name__", type(function).__name__))

    async def act(told: object) -> object:
        if inspect.iscoroutinefunction(function):
            return await function(told)
        found = await in_daemon_thread(functools.partial(function, told), name=f"hook {name}")
        return await found if inspect.isawaitable(found) else found

    return NamedHook(name=name, act=act)
