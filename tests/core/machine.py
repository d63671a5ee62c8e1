"""The pure core as a machine without time or IO: a script of answers, tools that count, and crashes wherever a write can tear.

A crash leaves the first `kept` records of a write; the next life folds what is there and recovers. Everything that left the
machine is counted outside it: each request as the bytes of its prompt, each dispatch by its call key.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import msgspec

from semel.core.decide import decide, resolve, seal, send
from semel.core.effects import Answered, CallModel, CameBack, Decision, Dispatch, Outcome, Reconcile, Resolve, Send
from semel.core.fold import fold
from semel.core.limits import Limits
from semel.core.outcomes import Outcome as Became
from semel.core.outcomes import Settlement
from semel.core.prompt import prompt_of
from semel.core.records import AgentRef, Config, ModelAttemptFinished, Record
from semel.core.recover import recover
from semel.core.standing import still_doubtful
from semel.core.state import CallState, Logged, Run, Session
from semel.core.values import Block, Bundle, Effect, Message, Stop, Text, ToolCall, ToolSpec, Usage
from tests.core.said import find_in, said

BUNDLE = Bundle(family="scripted", model="m", endpoint="", renderer=1)
ANY_OBJECT = '{"type":"object"}'
LINEAGE = "0" * 32


class Crashed(BaseException):
    """The machine died."""


@dataclass
class World:
    """What outlives the machine: the log as writes, and the oracle of all that has left it."""

    writes: list[list[Record]] = field(default_factory=list)
    whole: list[bool] = field(default_factory=list)
    fences: list[int] = field(default_factory=list)
    requests: list[bytes] = field(default_factory=list)
    dispatched: Counter[str] = field(default_factory=Counter)
    reconciled: Counter[str] = field(default_factory=Counter)
    tool_of: dict[str, str] = field(default_factory=dict)

    def logged(self) -> list[Logged]:
        """The log, each record where it stands."""
        out: list[Logged] = []
        for write, whole, fence in zip(self.writes, self.whole, self.fences, strict=True):
            out += [
                Logged(seq=len(out) + 1 + i, at_ms=1000 + len(out), fence=fence, record=record, torn=not whole)
                for i, record in enumerate(write)
            ]
        return out

    def state(self) -> Session:
        """What the log folds to."""
        return fold(self.logged(), Session(session="s", lineage=LINEAGE))

    def said(self) -> list[Message]:
        """The whole conversation."""
        return said(self.state(), self.logged())


Reply = Settlement | Callable[[ToolCall], Settlement]


def good(text: str = "ok", *, terminate: bool = False) -> Settlement:
    return Settlement(outcome=Became.COMPLETED, is_error=False, text=text, terminate=terminate)


def bad(text: str = "failed") -> Settlement:
    return Settlement(outcome=Became.COMPLETED, is_error=True, text=text)


def unknown(text: str = "lost") -> Settlement:
    return Settlement(outcome=Became.UNKNOWN, is_error=True, text=text, reason="timeout")


@dataclass(frozen=True)
class Script:
    """What the model says, step by step, and what each tool does. `together` False makes every call of a batch return apart."""

    answers: Sequence[Sequence[Block]]
    tools: Sequence[ToolSpec] = ()
    replies: dict[str, Settlement] = field(default_factory=dict)
    reconcile: dict[str, Settlement] = field(default_factory=dict)
    stops: dict[int, Stop] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    output_schema: str | None = None
    together: bool = True

    def command(self, key: str = "k1", text: str = "go") -> Send:
        return Send(
            key=key,
            text=text,
            agent=AgentRef(name="a"),
            config=Config(bundle=BUNDLE, limits=self.limits, output_schema=self.output_schema),
            instructions="be good",
            tools=tuple(self.tools),
        )


def attempt(effect: CallModel, outcome: str) -> ModelAttemptFinished:
    """The exchange of a request, as it ended."""
    return ModelAttemptFinished(
        step_id=effect.step_id,
        attempt=effect.attempt,
        http_attempt=effect.used,
        request_body_len=1,
        request_body_sha256="0",
        response_body_len=1,
        outcome=outcome,
        ts_ms=0,
    )


def tool(name: str, effect: Effect = Effect.ONCE, **options: object) -> ToolSpec:
    return ToolSpec(name=name, description=name, parameters=ANY_OBJECT, effect=effect, **options)  # type: ignore[arg-type]  # free words, as a test wants them


def say(text: str) -> list[Block]:
    return [Text(text=text)]


def call(*names: str) -> list[Block]:
    return [ToolCall(id=f"{name}-{at}", name=name, arguments=f'{{"n":{at}}}') for at, name in enumerate(names)]


@dataclass
class Machine:
    """One life of the process. `crash_at` is the commit in which it dies, of which `kept` records survive.

    `kept` None is a death right after the commit, with its effects not released.
    """

    world: World
    script: Script
    fence: int = 1
    crash_at: int | None = None
    kept: int | None = None
    commits: int = 0

    def __post_init__(self) -> None:
        self.state = self.world.state()
        self.doubt: frozenset[int] = frozenset()

    def commit(self, decision: Decision) -> None:
        if not decision.records:
            return
        records = list(decision.records)
        dying = self.commits == self.crash_at
        kept = len(records) if not dying or self.kept is None else self.kept
        if kept:
            self.world.writes.append(records[:kept])
            self.world.whole.append(kept == len(records))
            self.world.fences.append(self.fence)
        if dying:
            raise Crashed
        self.commits += 1
        places = (
            Logged(seq=self.state.head + i, at_ms=1000 + self.state.head + i - 1, fence=self.fence, record=record)
            for i, record in enumerate(records, start=1)
        )
        self.state = fold(places, self.state)

    def start(self, key: str = "k1", text: str = "go") -> None:
        self.run(send(self.state, self.script.command(key, text)))

    def resume(self) -> None:
        decision = recover(self.state)
        if self.state.run is not None:
            self.run(decision)

    def resolve(self, call_key: str, verdict: str, output: str | None = None) -> None:
        command = Resolve(call_key=call_key, verdict=verdict, by="t", output=output)  # type: ignore[arg-type]  # free words, as a test wants them
        self.commit(Decision(records=resolve(self.state, command)))

    def run(self, decision: Decision) -> None:
        pending: list[int] = []
        while True:
            self.commit(decision)
            if self.state.run is None:
                return
            self.doubt = still_doubtful(self.state.run, self.doubt, decision.doubt)
            outcome: Outcome | None = None
            for effect in decision.effects:
                outcome = self.perform(effect, pending)
            if outcome is None and pending:
                outcome = self.came_back(pending)
            decision = seal(self.state) if outcome is None else decide(self.state, outcome, doubt=self.doubt, now_ms=0)

    def perform(self, effect: object, pending: list[int]) -> Outcome | None:
        match effect:
            case CallModel():
                return self.answer(effect)
            case Dispatch(ordinals=ordinals):
                for ordinal in ordinals:
                    key = self.call(ordinal).planned.call_key
                    self.world.dispatched[key] += 1
                    self.world.tool_of[key] = self.call(ordinal).planned.tool
                pending.extend(ordinals)
                return None
            case Reconcile(ordinal=ordinal):
                planned = self.call(ordinal).planned
                self.world.reconciled[planned.call_key] += 1
                return CameBack(settled={ordinal: self.script.reconcile[planned.tool]})
        raise AssertionError(effect)

    def call(self, ordinal: int) -> CallState:
        return self.state.run.step.batch.calls[ordinal]  # type: ignore[union-attr]  # there while a batch is open

    def came_back(self, pending: list[int]) -> CameBack:
        """Whatever is dispatched comes back: all at once, or the last first and one at a time."""
        taken = list(pending) if self.script.together else [pending[-1]]
        for ordinal in taken:
            pending.remove(ordinal)
        replies = {at: self.script.replies.get(self.call(at).planned.tool, good()) for at in taken}
        return CameBack(settled=replies, in_flight=frozenset(pending))

    def answer(self, effect: CallModel) -> Answered:
        run = self.state.run
        assert run is not None
        prompt = prompt_of(self.state, run, find_in(self.world.logged()))
        self.world.requests.append(msgspec.json.encode([prompt.instructions, prompt.tools, list(prompt.messages)]))
        step = self.state.model_steps
        return Answered(
            attempt=attempt(effect, "completed"),
            blocks=tuple(self.script.answers[step]),
            stop=self.script.stops.get(step, Stop.END_TURN),
            usage=Usage(input=10, output=1),
        )


def whole_run(script: Script) -> World:
    """The run without a crash."""
    world = World()
    Machine(world, script).start()
    return world


def lives(script: Script, crashes: Sequence[tuple[int, int | None]], kind: type[Machine] = Machine) -> World:
    """A run with one crash per life, then a life without one. A life that began before `run_started` was durable sends again."""
    world = World()
    for fence, (crash_at, kept) in enumerate([*crashes, (None, None)], start=1):
        machine = kind(world, script, fence=fence, crash_at=crash_at, kept=kept)
        try:
            if machine.state.newest is None:
                machine.start()
            else:
                machine.resume()
        except Crashed:
            continue
        if crash_at is not None:
            break
    return world


def crash_points(world: World) -> list[tuple[int, int | None]]:
    """Every place where the writes of this run can be cut: before, within, and right behind each."""
    return [(at, kept) for at, write in enumerate(world.writes) for kept in [*range(len(write)), None]]


def place_of(run: Run, step_id: int) -> tuple[str, int, bool]:
    """What has one request: a step, before and behind the one repair of provider state that its run may have."""
    return run.run_id, step_id, run.state_rejected
