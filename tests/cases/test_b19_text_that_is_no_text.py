"""B19, through a whole run: half a surrogate pair from a model, a tool or a file name stops nothing and goes nowhere."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from semel import Agent, Completed, Runtime, tool
from semel.adapters.file.store import FileStore
from semel.adapters.models.script_steps import End, Head, Send, Step
from semel.adapters.system import SystemClock, SystemIds
from semel.core.features import KNOWN
from semel.engine.resume import Ground
from semel.faces.cli.output import visible
from semel.faces.views import view_of
from semel.testing.model_server import ModelServer
from tests.cases.serve import recorded
from tests.core.said import runs_told
from tests.support.frames import frames_of

pytestmark = pytest.mark.anyio
FIXTURES = Path(__file__).parents[1] / "models" / "fixtures"
RAW = (Path(__file__).parents[1] / "tools" / "data" / "B19-tool-output.bin").read_bytes()
LOST = "\N{REPLACEMENT CHARACTER}"


def strict(body: bytes) -> Any:
    """Read as a strict server does: UTF-8, and no half of a pair even where it is written as an escape."""
    value = json.loads(body.decode("utf-8"))
    json.dumps(value, ensure_ascii=False).encode("utf-8")
    return value


async def test_b19_a_run_whose_model_and_tools_give_broken_text_goes_on_and_every_request_is_strict_json(tmp_path: Path) -> None:
    streams = [
        recorded("B19-model-surrogate.anthropic.sse"),
        (FIXTURES / "anthropic_messages" / "text.response.sse").read_bytes(),
    ]
    pending = iter(streams)

    def serve(_body: bytes) -> Iterable[Step]:
        return [Head(status=200, headers={"content-type": "text/event-stream"}), Send(body=next(pending)), End()]

    given: list[str] = []

    @tool(name="ask_user", effect="read")
    def look(q: str) -> list[str]:
        given.append(q)
        return [RAW.decode("utf-8", "surrogateescape"), "menu\udce9.txt"]

    store = FileStore(tmp_path / "state", SystemClock(), known=KNOWN, inline_sync=True)
    async with ModelServer(serve, formats=["anthropic_messages"]) as server:
        agent = Agent("a", model=f"anthropic_messages:m@{server.url}", tools=[look])
        async with Runtime(agents=[agent], ground=Ground(store=store, clock=SystemClock(), ids=SystemIds())) as runtime:
            result = await (await runtime.session("s", agent=agent).send("go")).result()
        bodies = [strict(received.body) for received in server.requests]
    assert isinstance(result, Completed)
    assert given == [f"\ud604{LOST} ok?"]
    sent = json.dumps(bodies[1], ensure_ascii=False)
    assert f"\ud604{LOST} ok?" in sent
    assert "\N{GRINNING FACE}" in sent
    assert f"menu{LOST}.txt" in sent
    view = view_of(store, "s")
    (call,) = runs_told(frames_of(store, "s"), view.state)[0].steps[0].calls
    visible(f"{call.arguments} {call.output}").encode("utf-8")
    log = (tmp_path / "state" / "sessions" / "s" / "wal.log").read_bytes()
    assert b"\\ud" not in log.lower()
    log.decode("utf-8")
