"""A process whose run is stopped while a call of it is out, and that is killed as soon as the stop is answered.

Arguments: state directory, script of the model, and `forgets` for a build that answers a stop without recording it.
"""

import asyncio
import os
import signal
import sys

from semel import Agent, Runtime
from semel.core.effects import Decision
from semel.core.values import JSON, Effect
from semel.faces import api
from semel.ports.tool import Call
from tests.engine.fakes import counting


def agent_of(script: str, begun: asyncio.Event | None = None) -> Agent[str]:
    """Its tool waits for ever where somebody waits for it to begin."""

    async def look(_arguments: dict[str, JSON], _call: Call[object]) -> str:
        if begun is not None:
            begun.set()
            await asyncio.Event().wait()
        return "seen"

    return Agent("a", model=f"scripted:{script}", tools=[counting("look", Effect.READ, behaviour=look)])


async def main(state: str, script: str) -> None:
    begun = asyncio.Event()
    agent = agent_of(script, begun)
    async with Runtime(state, agents=[agent]) as runtime:
        session = runtime.session("s", agent=agent)
        await session.send("go", key="k")
        await begun.wait()
        await session.stop(by="anna")
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    if sys.argv[3:] == ["forgets"]:
        api.stop_of = lambda _command: lambda _state, _under_way: Decision()  # type: ignore[assignment]  # a planted fault
    asyncio.run(main(sys.argv[1], sys.argv[2]))
