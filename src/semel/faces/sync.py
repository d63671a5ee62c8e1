"""The one synchronous door."""

import asyncio
import os
import warnings
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from semel.core.values import JSON
from semel.faces.agent import Agent
from semel.faces.api import Runtime
from semel.faces.files import Files
from semel.faces.own_loop import deaf_line, run_in_own_loop
from semel.faces.results import Result

OutputT = TypeVar("OutputT")
T = TypeVar("T")


def run_sync(
    agent: Agent[OutputT],
    text: str,
    *,
    session: str | None = None,
    key: str | None = None,
    context: JSON = None,
    deps: object = None,
    state: str | os.PathLike[str] | None = None,
    files: Files = (),
) -> Result[OutputT]:
    """Run an agent to the end of one run and return its result. Works inside a running event loop too, which it then blocks.

    Warns by name of what did not end when it was told to: threads go on, and what ran on the event loop has ended with it.
    """

    async def whole() -> Result[OutputT]:
        async with Runtime(state, agents=[agent], deps=deps, recover="manual", inline_sync=True) as runtime:
            run = await runtime.session(session, agent=agent, context=context).send(text, key=key, files=files)
            result = await run.result()
        deaf = deaf_line(runtime.stop_outcome)
        if deaf is not None:
            warnings.warn(f"semel: {deaf}", RuntimeWarning, stacklevel=1)
        return result

    return run_blocking(whole)


def run_blocking(whole: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine to its end from synchronous code: in this thread, or in one of its own where a loop is running here."""
    if _loop_is_running():
        with ThreadPoolExecutor(max_workers=1) as pool:
            return pool.submit(lambda: run_in_own_loop(whole())).result()
    return run_in_own_loop(whole())


def _loop_is_running() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
