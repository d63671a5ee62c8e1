"""A service: a `Runtime` that goes on by itself, with the agent of a shop, until it gets SIGTERM: service [send]

It says `ready`; with `send` it sends `Pay 17` to the session `s`, unless it was sent before, and says `sent`. When the run of
that session has ended it says how.
"""

import asyncio
import sys

from semel.core.status import Status
from semel.faces.agent import Agent
from semel.faces.agentref import load_agent
from semel.faces.api import Runtime

LOOK_SECONDS = 0.05


async def tell(runtime: Runtime, agent: Agent[object], *, sends: bool) -> None:
    if sends:
        run = await runtime.session("s", agent=agent).send("Pay 17", key="first")
        print("sent", flush=True)
        print(type(await run.end()).__name__.lower(), flush=True)
        return
    while (status := runtime.status("s")) is None or not is_over(status):
        await asyncio.sleep(LOOK_SECONDS)
    print(status.state, flush=True)


def is_over(status: Status) -> bool:
    return status.state not in ("running", "paused")


async def main(*words: str) -> None:
    agent = load_agent("agent.toml")
    async with Runtime(agents=[agent]) as runtime:
        print("ready", flush=True)
        telling = asyncio.ensure_future(tell(runtime, agent, sends="send" in words))
        await runtime.until_stopped()
    telling.cancel()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
