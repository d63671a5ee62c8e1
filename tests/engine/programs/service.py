"""A busy service: many sessions at once, each with two payments that take a moment. Stops in good order at SIGTERM.

Arguments: state directory, script of the model, side file of the payments, how many sessions.
"""

import asyncio
import os
import sys
from pathlib import Path

from semel import Agent, Call, Runtime, tool

PAY_SECONDS = 0.15


def agent_of(script: str, payments: Path) -> Agent[str]:
    @tool
    async def pay(n: int, *, call: Call[None]) -> str:
        await asyncio.sleep(PAY_SECONDS)
        with payments.open("a") as side:
            side.write(f"{call.session} {n} {call.key}\n")
        return "paid"

    return Agent("teller", model=f"scripted:{script}", tools=[pay])


async def serve(state: str, script: str, payments: Path, sessions: int) -> int:
    agent = agent_of(script, payments)
    async with Runtime(state, agents=[agent]) as runtime:
        stopped = asyncio.ensure_future(runtime.until_stopped())
        await asyncio.sleep(0)
        print("up", flush=True)
        handles = [runtime.session(f"s{at}", agent=agent) for at in range(sessions)]
        work = asyncio.gather(*(one(handle) for handle in handles), return_exceptions=True)
        await asyncio.wait({stopped, work}, return_when=asyncio.FIRST_COMPLETED)
        all_done = work.done()
        stopped.cancel()
    if runtime.stop_outcome is None or not runtime.stop_outcome.clean:
        print(runtime.stop_outcome, file=sys.stderr)
        return 9
    return 0 if all_done else 7


async def one(handle: object) -> None:
    run = await handle.send("Pay both.", key="k")  # type: ignore[attr-defined]  # a session
    await run.result()


if __name__ == "__main__":
    code = asyncio.run(serve(sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4])))
    sys.stdout.flush()
    os._exit(code)
