"""Whole runs of the engine against providers that misbehave: in virtual time, or over real sockets with the back-offs skipped."""

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from models_support import VirtualClock, in_virtual_time
from played import PlayedConnector
from t26_kinds import LIMITS, sent, whole

from semel import Agent, Completed, Failed, Runtime
from semel.adapters.memory.store import MemoryStore
from semel.adapters.models.catalog import ModelOptions, build_model
from semel.adapters.models.script_steps import Step
from semel.adapters.system import SystemClock, SystemIds
from semel.core.features import KNOWN
from semel.core.limits import BACKOFF_FIRST_MS
from semel.core.values import AssistantMessage
from semel.engine.resume import Ground
from semel.ports.model import ModelPort
from semel.ports.tool import ToolPort
from semel.ports.world import Clock
from semel.testing.formats import FORMATS
from tests.core.said import said_in

Made = Callable[[str], Iterable[Step]]
BACKOFF_SECONDS = [BACKOFF_FIRST_MS / 1000 * 2**n for n in range(5)]


class Carried(NamedTuple):
    """What came of a run: `completed`, or the code of its failure; the texts of the answers that its log holds."""

    end: str
    answers: list[str]
    result: Completed[str] | Failed


class Ran(NamedTuple):
    """The same, with what arrived at the provider: how many requests, and how many seconds apart."""

    end: str
    answers: list[str]
    result: Completed[str] | Failed
    asked: int
    waits: list[float]


class Hurried(SystemClock):
    """The real clock, which skips the back-offs and notes them; for runs over real sockets."""

    def __init__(self) -> None:
        self.waits: list[float] = []

    async def sleep(self, seconds: float) -> None:
        if seconds in BACKOFF_SECONDS:
            self.waits.append(seconds)
            seconds = 0
        await super().sleep(seconds)


async def carried(model: ModelPort, clock: Clock, tools: Sequence[ToolPort] = (), store: MemoryStore | None = None) -> Carried:
    """Carry one run, with the limits that a user has."""
    agent = Agent("a", model=model, tools=tools)
    store = store or MemoryStore(clock, known=KNOWN)
    async with Runtime(agents=[agent], ground=Ground(store=store, clock=clock, ids=SystemIds())) as runtime:
        result = await (await runtime.session("s", agent=agent).send("go")).result()
    error = result.error if isinstance(result, Failed) else None
    assert isinstance(result, Completed) or error is not None, result
    assert error is None or error.kind == "model", error
    answers = [message.text for message in said_in(store, "s") if isinstance(message, AssistantMessage)]
    return Carried("completed" if error is None else error.code, answers, result)


async def played(
    family: str,
    make: Made,
    times: int | None,
    *,
    tools: Sequence[ToolPort] = (),
    clock: VirtualClock | None = None,
    store: MemoryStore | None = None,
    options: ModelOptions = LIMITS,
) -> Ran:
    """A run in virtual time against a provider that does as `make` says `times` times, or for ever, and then answers."""
    clock = clock or VirtualClock()
    moments: list[float] = []

    def reply(body: bytes) -> Iterable[Step]:
        moments.append(clock.monotonic())
        first = FORMATS[family].format.read(body).answers == 0
        return make(family) if first and (times is None or len(moments) <= times) else sent(family, whole(family))

    connector = PlayedConnector(clock, reply)
    model = build_model(f"{family}:m@http://127.0.0.1:9/v1", clock=clock, environ={}, options=options, connector=connector)
    done = await in_virtual_time(clock, carried(model, clock, tools, store))
    assert len(connector.requests) == len(moments)
    return Ran(*done, asked=len(moments), waits=[later - sooner for sooner, later in pairwise(moments)])
