"""A model whose provider refuses the key as long as a test wants that."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

from semel import Agent
from semel.adapters.system import SystemClock
from semel.core.records import StepStarted
from semel.core.values import JSON, Bundle, Prompt
from semel.ports.log import SessionStore
from semel.ports.model import Answer, Delta, Exchange, FailureClass, ModelFailed, ModelPort, Request
from semel.ports.tool import ToolPort
from semel.wiring import model_named
from tests.engine.fakes import events_of, script_file

WORDS = "the server answered 401: no such key (the key came from SHOP_KEY)"


class Door(ModelPort):
    """Answers as `inner` does where it is open. `asked` are the digests of all requests, also of those that were refused."""

    def __init__(self, inner: ModelPort) -> None:
        self.inner, self.open = inner, False
        self.failure = FailureClass.AUTH
        self.asked: list[str] = []

    @property
    def bundle(self) -> Bundle:
        return self.inner.bundle

    def render(self, prompt: Prompt) -> Request:
        return self.inner.render(prompt)

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Answer, None]:
        self.asked.append(request.sha256)
        if not self.open:
            raise ModelFailed(self.failure, WORDS, exchange=Exchange(http_status=401))
        async with aclosing(self.inner.stream(request)) as chunks:
            async for chunk in chunks:
                yield chunk

    async def close(self) -> None:
        await self.inner.close()


def behind_a_door(path: Path, *answers: JSON, tools: tuple[ToolPort, ...] = ()) -> tuple[Agent[str], Door]:
    """An agent whose model gives these answers once its door is open."""
    door = Door(model_named(script_file(path / "door.json", *answers), {}, SystemClock()))
    return Agent("a", model=door, tools=tools), door


def pauses(store: SessionStore) -> list[str]:
    """Why the runs of session `s` were paused, in order."""
    return [event["record"]["reason"] for event in events_of(store) if event["type"] == "run_paused"]


def attempts(store: SessionStore) -> list[int]:
    """The attempts of the newest step of session `s`."""
    tag = StepStarted.__struct_config__.tag
    steps = [event["record"] for event in events_of(store) if event["type"] == tag]
    return [step["attempt"] for step in steps if step["step_id"] == steps[-1]["step_id"]]
