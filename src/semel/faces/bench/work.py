"""The work that is measured: turns of 600 B of text, three calls with 200 B of arguments, three results of 1 KiB (design 13).

The model is a script in this process and speaks no wire format, so that what is measured is semel's own work; what a wire family
costs beside it is told in docs/performance.md. The tools are plain async functions, with the default effect.
"""

import asyncio
import hashlib
import time
from collections.abc import AsyncGenerator, Callable
from pathlib import Path

from msgspec import json

from semel import wiring
from semel.core.values import Block, Bundle, Frozen, Prompt, Stop, Text, ToolCall, Usage
from semel.engine.resume import Ground
from semel.errors import must
from semel.faces.agent import Agent, Limits
from semel.faces.api import Runtime
from semel.faces.results import Completed
from semel.ports.model import Answer, Delta, Exchange, Request
from semel.settings import Settings
from semel.testing.faults import NumberedDisk

TEXT_BYTES, CALLS, ARGUMENT_BYTES, RESULT_BYTES = 600, 3, 200, 1024
CONTENT_BYTES = TEXT_BYTES + CALLS * (ARGUMENT_BYTES + RESULT_BYTES)
"""What one turn says: text, arguments and results, without anything around them."""
_NOTE = "a" * (ARGUMENT_BYTES - 11)
_RESULT = "r" * RESULT_BYTES
_UNBOUNDED = Limits(steps=10**9, tokens=10**15, wall_seconds=86_400)

Notice = Callable[[], None]


class Taken(Frozen, frozen=True, kw_only=True):
    """What some work took: seconds on the clock, and seconds of this process on a processor."""

    wall: float
    cpu: float


class WorkModel:
    """So many turns of the work, then a last word. Implements `ports.model.ModelPort`; for one run."""

    bundle = Bundle(family="scripted", model="bench", endpoint="", renderer=1)

    def __init__(self, turns: int, notice: Notice = lambda: None) -> None:
        """`notice` is called when a turn begins, which is when its request is sent."""
        self._turns, self._notice = turns, notice
        self._asked = 0
        self._seen, self._digest = 0, hashlib.sha256()

    def render(self, prompt: Prompt) -> Request:
        """Not a byte for a wire, but the digest of the whole conversation, each message of which is taken up once."""
        for message in prompt.messages[self._seen :]:
            self._digest.update(json.encode(message))
        self._seen = len(prompt.messages)
        return Request(body=b"", sha256=self._digest.hexdigest())

    async def stream(self, _request: Request) -> AsyncGenerator[Delta | Answer, None]:
        """The next answer of the script, whole."""
        self._notice()
        number, self._asked = self._asked, self._asked + 1
        if number >= self._turns:
            yield Answer(blocks=(Text(text="Done."),), stop=Stop.END_TURN, usage=Usage(input=1, output=1), exchange=Exchange())
            return
        calls = (ToolCall(id=f"{number}.{at}", name="look", arguments=_arguments(number, at)) for at in range(CALLS))
        said: tuple[Block, ...] = (Text(text="t" * TEXT_BYTES), *calls)
        yield Answer(blocks=said, stop=Stop.TOOL_USE, usage=Usage(input=1, output=1), exchange=Exchange())

    async def close(self) -> None:
        """Nothing is open."""


def _arguments(turn: int, ordinal: int) -> str:
    """Other words in each call: a model that makes the same calls again and again is stopped."""
    said = f"{turn}.{ordinal} "
    return f'{{"note":"{said}{_NOTE[len(said) :]}"}}'


async def look(note: str) -> str:
    """Look something up."""
    return _RESULT


def ground_at(root: Path, disk: NumberedDisk | None = None) -> Ground:
    """A state directory as a program has it whose event loop serves nothing else."""
    return wiring.ground_of(Settings(state=root, inline_sync=True), disk)


def play(ground: Ground, turns: int, *, sessions: int = 1, notice: Notice = lambda: None) -> Taken:
    """Carry one run of so many turns in each session, all at once, and say what that took."""
    return asyncio.run(_played(ground, turns, sessions, notice))


async def _played(ground: Ground, turns: int, sessions: int, notice: Notice) -> Taken:
    agents = [_agent(turns, notice) for _ in range(sessions)]
    async with Runtime(ground=ground, recover="manual") as runtime:
        wall, cpu = time.perf_counter(), time.process_time()
        results = await asyncio.gather(*(_run(runtime, f"s{number}", agent) for number, agent in enumerate(agents)))
        taken = Taken(wall=time.perf_counter() - wall, cpu=time.process_time() - cpu)
    must(all(isinstance(result, Completed) for result in results), "every run of the bench completes", results=results)
    return taken


def _agent(turns: int, notice: Notice) -> Agent[None]:
    return Agent("bench", model=WorkModel(turns, notice), tools=[look], limits=_UNBOUNDED)


async def _run(runtime: Runtime, session: str, agent: Agent[None]) -> object:
    run = await runtime.session(session, agent=agent).send("Go.")
    return await run.result()
