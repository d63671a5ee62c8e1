"""B04: an answer that a cancel cut short leaves nothing behind that a provider would refuse, and none of its calls is run."""

import asyncio
import json
from collections.abc import Iterable
from pathlib import Path

import pytest

from semel import Agent, Cancelled, Completed, Runtime
from semel.adapters.models.script_steps import End, Head, Send, Silence, Step
from semel.engine.resume import Ground
from semel.testing.model_server import ModelServer
from tests.cases.serve import recorded, stream
from tests.engine.fakes import counting, events_of
from tests.engine.slow import disk_ground

pytestmark = pytest.mark.anyio

MESSAGES_DONE = (
    b'event: message_start\ndata: {"type":"message_start","message":{"id":"m","type":"message","role":"assistant","content":[],'
    b'"model":"claude","stop_reason":null,"usage":{"input_tokens":1,"output_tokens":1}}}\n\n'
    b'event: content_block_start\ndata: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}\n\n'
    b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"ok"}}\n\n'
    b'event: content_block_stop\ndata: {"type":"content_block_stop","index":0}\n\n'
    b'event: message_delta\ndata: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":2}}\n\n'
    b'event: message_stop\ndata: {"type":"message_stop"}\n\n'
)
HEAD = Head(status=200, headers={"content-type": "text/event-stream"})
CASES = [
    ("anthropic_messages", "B04-abort-mid-args.anthropic.sse", MESSAGES_DONE),
    ("openai_chat", "B04-abort-thinking-only.chat.sse", stream(text="ok")),
]


def served(cut: bytes, whole: bytes) -> ModelServer:
    """The first answer stops and its connection stays open; the next one is whole."""
    pending = iter([[HEAD, Send(body=cut), Silence(), End()], [HEAD, Send(body=whole), End()]])

    def reply(_request: bytes) -> Iterable[Step]:
        return next(pending)

    return ModelServer(reply)


@pytest.mark.parametrize("cancels", [1, 2])
@pytest.mark.parametrize(("family", "name", "whole"), CASES)
async def test_b04_an_answer_cut_by_a_cancel_is_shown_and_never_sent_or_run(
    family: str, name: str, whole: bytes, cancels: int, tmp_path: Path
) -> None:
    on: Ground = disk_ground(tmp_path / "s")
    edit = counting("edit")
    async with served(recorded(name), whole) as server:
        agent = Agent("a", model=f"{family}:m@{server.url}", tools=[edit])
        async with Runtime(agents=[agent], ground=on) as runtime:
            session = runtime.session("s", agent=agent)
            run = await session.send("edit the notes")
            while not server.requests:
                await asyncio.sleep(0.005)
            await asyncio.sleep(0.05)  # what had been sent of the answer is there, or will never be: nothing depends on it
            for _ in range(cancels):
                await session.cancel()
            assert isinstance(await run.result(), Cancelled)
        async with Runtime(agents=[agent], ground=on) as after:  # another process, as far as the log can tell
            again = await after.session("s", agent=agent).send("never mind, list files")
            assert isinstance(await again.result(), Completed)
        sent = json.loads(server.requests[1].body)["messages"]
    assert edit.keys == []
    assert "tool_batch_started" not in [event["type"] for event in events_of(on.store)]
    assert [message["role"] for message in sent] in (["user"], ["user", "user"])
    body = json.dumps(sent)
    assert "never mind, list files" in body
    assert "partial_json" not in body
    assert "tool_use" not in body
    assert all(message.get("content") for message in sent)
