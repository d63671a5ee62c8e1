"""B07: of three parallel calls one fails in any way. Each is settled on its own, siblings finish, results keep their order.

Where the failing tool is `read`, the run goes on to the next model call; where it is `once` and what happened is unknown, the run
interrupts instead.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from semel import Agent, Completed, Interrupted, Runtime
from semel.core.values import Effect
from tests.cases.serve import messages, paired, replies, stream
from tests.engine.fakes import CountingTool, counting, ground

pytestmark = pytest.mark.anyio
CALLS = stream(("search", {"q": "x"}), ("get_weather", {"city": "Oslo"}), ("read_file", {"path": "a.txt"}))


class Hostile(BaseException):
    """Like KeyboardInterrupt: not an Exception."""


async def raises(error: BaseException) -> object:
    raise error


async def times_out() -> object:
    return await asyncio.Event().wait()


FAILURES: dict[str, tuple[Callable[[], Awaitable[object]], bool]] = {
    "connection error without text": (lambda: raises(ConnectionError("")), True),
    "cancelled": (lambda: raises(asyncio.CancelledError()), True),
    "keyboard interrupt": (lambda: raises(KeyboardInterrupt()), True),
    "another base exception": (lambda: raises(Hostile()), True),
    "exit": (lambda: raises(SystemExit(3)), False),
    "value error without text": (lambda: raises(ValueError()), False),
    "time out": (times_out, True),
}


def tools(failing: Callable[[], Awaitable[object]], effect: Effect, released: asyncio.Event) -> list[CountingTool]:
    async def fail(_arguments: object, _call: object) -> object:
        released.set()
        return await failing()

    async def slow(_arguments: object, _call: object) -> object:
        await released.wait()
        return "file text"

    return [
        counting("search", Effect.READ),
        counting("get_weather", effect, behaviour=fail, timeout_ms=50),
        counting("read_file", Effect.READ, behaviour=slow),
    ]


@pytest.mark.parametrize("name", FAILURES)
async def test_b07_a_failing_read_call_settles_alone_and_the_run_goes_on(name: str, tmp_path: Path) -> None:
    failing, _ = FAILURES[name]
    given = tools(failing, Effect.READ, asyncio.Event())
    before = asyncio.all_tasks()
    async with replies(CALLS, stream(text="done")) as server:
        agent = Agent("a", model=f"openai_chat:m@{server.url}", tools=given)
        async with Runtime(agents=[agent], ground=ground()) as runtime:
            result = await (await runtime.session("s", agent=agent).send("go")).result()
        assert isinstance(result, Completed)
        sent = messages(server, 1)
    assert paired(sent)
    results = [message["content"] for message in sent if message["role"] == "tool"]
    assert results[0] == "search ok"
    assert results[2] == "file text"
    assert str(results[1]).strip()
    assert [len(tool.keys) for tool in given] == [1, 1, 1]
    assert {task for task in asyncio.all_tasks() if not task.done()} - before == set()


@pytest.mark.parametrize("name", FAILURES)
async def test_b07_a_failing_once_call_interrupts_the_run_exactly_when_its_outcome_is_unknown(name: str, tmp_path: Path) -> None:
    failing, is_unknown = FAILURES[name]
    given = tools(failing, Effect.ONCE, asyncio.Event())
    async with replies(CALLS, stream(text="done")) as server:
        agent = Agent("a", model=f"openai_chat:m@{server.url}", tools=given)
        async with Runtime(agents=[agent], ground=ground()) as runtime:
            result = await (await runtime.session("s", agent=agent).send("go")).result()
        assert len(server.requests) == (1 if is_unknown else 2)
    assert isinstance(result, Interrupted if is_unknown else Completed)
