"""B27: a stream that is cut in the middle. The next attempt stands alone; nothing of the dead one is kept or run."""

import json

import pytest

from semel import Agent, Completed, Failed, Runtime
from semel.adapters.memory.store import Medium
from tests.cases.serve import messages, recorded, replies, stream
from tests.engine.fakes import counting, ground

pytestmark = pytest.mark.anyio
CUT, SECOND = recorded("B27-cut.chat.sse"), recorded("B27-second.chat.sse")


@pytest.mark.parametrize("how", ["reset", "no_last_chunk", "complete"])
async def test_b27_only_the_finished_attempt_enters_history_and_runs(how: str) -> None:
    execute = counting("execute")
    ran: list[object] = []

    async def run(arguments: dict[str, object], _call: object) -> str:
        ran.append(arguments)
        return "1"

    execute.behaviour = run
    async with replies((CUT, how), SECOND, stream(text="done")) as server:
        agent = Agent("a", model=f"openai_chat:m@{server.url}", tools=[execute])
        async with Runtime(agents=[agent], ground=ground()) as runtime:
            run_handle = await runtime.session("s", agent=agent).send("go")
            events = [event async for event in run_handle.events(after=0, live=True)]
            assert isinstance(await run_handle.result(), Completed)
        assert server.requests[0].body == server.requests[1].body
        sent = messages(server, 2)
    assert ran == [{"language": "python", "code": "print(1)"}]
    assert "call_b27a" not in json.dumps(sent)
    assert sent[-2]["content"] == "Running. "
    kinds = [event.get("live") for event in events if "live" in event]
    assert kinds[: kinds.index("discarded") + 1] == ["text", "discarded"]
    seqs = [event["seq"] for event in events if "seq" in event]
    assert seqs == list(range(1, len(seqs) + 1))
    attempts = [event["record"] for event in events if event.get("type") == "model_attempt_finished"]
    assert [attempt["outcome"] for attempt in attempts[:2]] == ["interrupted", "completed"]
    assert [attempt["http_attempt"] for attempt in attempts[:2]] == [0, 1]
    answers = [event["record"] for event in events if event.get("type") == "model_step_finished"]
    assert answers[0]["usage"] == {"input": 77, "output": 25, "cache_read": 0, "reasoning": 0}


async def test_b27_when_attempts_run_out_the_run_fails_by_name_and_the_next_send_works() -> None:
    from semel import Limits

    medium = Medium()
    async with replies((CUT, "reset"), (CUT, "reset"), stream(text="fine now")) as server:
        agent = Agent("a", model=f"openai_chat:m@{server.url}", tools=[counting("execute")], limits=Limits(model_retries=1))
        async with Runtime(agents=[agent], ground=ground(medium)) as runtime:
            session = runtime.session("s", agent=agent)
            failed = await (await session.send("go")).result()
            assert isinstance(failed, Failed)
            assert failed.error is not None
            assert failed.error.code == "interrupted"
            assert isinstance(await (await session.send("again")).result(), Completed)
        assert [message["content"] for message in messages(server, 2)] == ["go", "again"]
