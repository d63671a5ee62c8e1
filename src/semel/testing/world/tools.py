"""Tools that succeed, fail, hang, are deaf, come late, say too much, or take the process with them; around any tool."""

import asyncio
import math
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any

from semel.core.values import JSON, ToolSpec
from semel.errors import CallNotSent, OutcomeUnknown, ToolFailed
from semel.ports.tool import Call, Deferred, Done, Happened, Held, Never, ProcessMark, Reconciled, StillUnknown, ToolPort
from semel.ports.world import Clock
from semel.testing.world.disk import BOOT
from semel.testing.world.fate import Fate
from semel.testing.world.witness import Witness

HUGE_CHARS = 300_000
_CODE_MAX = 3


class Gone(BaseException):
    """Raised by a tool that means to end its process."""


class HostileTool(ToolPort):
    """A tool of the user's or of the world's own cast, with the faults that the seed chooses around it."""

    def __init__(self, inner: ToolPort, fate: Fate, witness: Witness, crash: Callable[[str], None]) -> None:
        """`crash` ends the process and raises."""
        self._inner, self._fate, self._witness, self._crash = inner, fate, witness, crash
        self._dice = fate.dice("tools")

    @property
    def spec(self) -> ToolSpec:
        """The tool's own."""
        return self._inner.spec

    async def run(self, arguments: dict[str, JSON], call: Call[Any]) -> JSON:
        """Let the tool do what it does, and be what the seed makes of it."""
        self._witness.dispatching(call, self.spec)
        self._fate.tell("tool", f"{call.tool} {call.key[:8]} is called")
        if self._dice.random() < 0.2:
            call.progress("on it")
        self._strike_before()
        if self._fate.strikes("tool_hangs"):
            await asyncio.sleep(self._dice.uniform(5, 2000))
        if self._fate.strikes("tool_deaf"):
            await _deaf(self._dice.uniform(1, 60))
        if self._fate.strikes("tool_late"):
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(self._dice.uniform(0, 40))
        if self._fate.strikes("crash_meanwhile"):
            seconds = self._dice.choice((0.001, 0.1, 1.0)) * self._dice.random()
            asyncio.get_running_loop().call_later(seconds, self._crash, "a tool was at work")
        value = await self._inner.run(arguments, call)
        return self._after(value)

    async def reconcile(self, call: Call[Any]) -> Reconciled:
        """The tool's own answer, or none."""
        if self._fate.strikes("reconcile_fails"):
            raise ConnectionError("nobody answers")
        if self._fate.strikes("reconcile_hangs"):
            await asyncio.sleep(self._dice.uniform(10, 100))
        return await self._inner.reconcile(call)

    async def end_leftovers(self, mark: ProcessMark) -> bool:
        """The tool's own."""
        return await self._inner.end_leftovers(mark)

    def _strike_before(self) -> None:
        if self._fate.strikes("crash_before_act"):
            self._crash("a tool was about to act")
        if self._fate.strikes("tool_not_sent"):
            raise CallNotSent("nobody is there")
        if self._fate.strikes("tool_fails"):
            raise ToolFailed("it says no")
        if self._fate.strikes("tool_lost_before"):
            raise self._lost()

    def _after(self, value: JSON) -> JSON:
        """What comes back from a tool that has acted."""
        if self._fate.strikes("crash_after_act"):
            self._crash("a tool had acted")
        if self._fate.strikes("tool_lost_after"):
            raise self._lost()
        if isinstance(value, Deferred | Held):
            return value  # nobody has acted yet, or somebody else says what came of it
        if self._fate.strikes("tool_raises"):
            raise ValueError("\x00 broken \ud800")
        if self._fate.strikes("tool_base_exception"):
            raise self._dice.choice((KeyboardInterrupt, SystemExit, Gone, asyncio.CancelledError))
        if self._fate.strikes("tool_huge"):
            return "x" * HUGE_CHARS
        if self._fate.strikes("tool_bad_value"):
            return self._dice.choice((math.nan, {1, 2}, object(), "\ud800\x00", {"deep": [math.inf]}))
        return Done(value) if self._fate.strikes("tool_done") else value

    def _lost(self) -> BaseException:
        errors = (TimeoutError("too slow"), ConnectionResetError("cut"), OutcomeUnknown("nobody knows"))
        return self._dice.choice(errors)


async def _deaf(seconds: float) -> None:
    """Wait that long, whatever anybody says."""
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    while loop.time() < until:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(until - loop.time())


class Deed(ToolPort):
    """A tool of the cast: it takes a while, acts, takes another while, and answers. It knows what became of a key."""

    def __init__(self, spec: ToolSpec, dice: Random, witness: Witness, *, closes: bool = True) -> None:
        """What acts is the witness's to see. Without `closes`, what comes behind the answer that it never did takes effect."""
        self._spec, self._dice, self._witness, self._closes = spec, dice, witness, closes

    @property
    def spec(self) -> ToolSpec:
        """As declared."""
        return self._spec

    async def run(self, arguments: dict[str, JSON], call: Call[Any]) -> JSON:
        """Act once."""
        self._witness.known.add(call.key)
        await self._while()
        if not self._witness.act(call.key, call.tool):
            raise CallNotSent("this key is closed")
        await self._while()
        return {"did": call.tool, "n": arguments.get("n")}

    async def reconcile(self, call: Call[Any]) -> Reconciled:
        """The truth, or that it cannot be told."""
        await self._while()
        return answer_of(self._witness, call.key, self._dice, closes=self._closes)

    async def end_leftovers(self, mark: ProcessMark) -> bool:
        """A function dies with its process."""
        return False

    async def _while(self) -> None:
        if self._dice.random() < 0.7:
            await asyncio.sleep(self._dice.choice((0.0, 0.001, 0.1, 2.0)) * self._dice.random())


def answer_of(witness: Witness, key: str, dice: Random, *, closes: bool = True) -> Reconciled:
    """What the outside says of a key. One that is told never to have happened is closed, if the outside can do that."""
    if dice.random() < 0.25:
        return StillUnknown()
    if witness.acted[key]:
        return Happened(output="it did")
    if closes:
        witness.never.add(key)
    return Never()


class Promise(Deed):
    """A tool of the cast whose result somebody else owes: it is held, now and then until some moment, or deferred."""

    def __init__(self, spec: ToolSpec, dice: Random, witness: Witness, clock: Clock | None) -> None:
        """With a clock its calls are held, without one deferred."""
        super().__init__(spec, dice, witness)
        self._clock = clock

    async def run(self, arguments: dict[str, JSON], call: Call[Any]) -> JSON:
        """Hand it on. What is deferred takes effect at once, what is held when its result comes."""
        self._witness.known.add(call.key)
        await self._while()
        if self._clock is not None:
            seconds = self._dice.choice((None, 1, 100, 5000))
            return Held("somebody has it", until=None if seconds is None else self._clock.now_ms() / 1000 + seconds)
        if not self._witness.act(call.key, call.tool):
            raise CallNotSent("this key is closed")
        return Deferred(handle="the same handle" if self._dice.random() < 0.2 else f"h-{call.key[:12]}")


class Child:
    """A process that serves a call. It acts when its time comes, whether or not the runtime still lives."""

    def __init__(self, key: str, tool: str, acts_at: float) -> None:
        """`acts_at` is in virtual seconds."""
        self.key, self.tool, self.acts_at = key, tool, acts_at
        self.ended = False


class Children:
    """The processes of the machine beside the runtime's own. They outlive it, unless the power goes."""

    def __init__(self, fate: Fate, witness: Witness) -> None:
        """None yet."""
        self._fate, self._witness = fate, witness
        self._children: dict[int, Child] = {}

    def start(self, key: str, tool: str, seconds: float) -> int:
        """Start one; returns its number."""
        number = 100 + len(self._children)
        self._children[number] = Child(key, tool, self._fate.now + seconds)
        return number

    def settle(self) -> None:
        """Let those act whose time has come."""
        for child in self._children.values():
            if not child.ended and child.acts_at <= self._fate.now:
                child.ended = True
                self._witness.hold(
                    "I3",
                    child.key not in self._witness.never,
                    f"{child.tool} {child.key[:8]} acts behind the promise that it never will",
                )
                self._witness.act(child.key, child.tool)

    def number_of(self, key: str | None) -> int:
        """Which one serves a call; 0 if none does."""
        return next((number for number, child in self._children.items() if child.key == key and not child.ended), 0)

    def end(self, number: int) -> bool:
        """Kill one; True if it still ran."""
        self.settle()
        child = self._children.get(number)
        if child is None or child.ended:
            return False
        child.ended = True
        self._fate.tell("world", f"process {number} of {child.tool} {child.key[:8]} is ended")
        return True

    def lose_power(self) -> None:
        """All end."""
        for number in self._children:
            self.end(number)


class ChildTool(ToolPort):
    """A tool of the cast whose work is done by a process of its own."""

    def __init__(self, spec: ToolSpec, dice: Random, witness: Witness, children: Children) -> None:
        """`children` are the processes of the machine."""
        self._spec, self._dice, self._witness, self._children = spec, dice, witness, children

    @property
    def spec(self) -> ToolSpec:
        """As declared."""
        return self._spec

    async def run(self, arguments: dict[str, JSON], call: Call[Any]) -> JSON:
        """Start the process and wait for its end; a cancel ends it, and so does a log that cannot take down its start."""
        if call.key in self._witness.never:
            raise CallNotSent("this key is closed")
        self._witness.known.add(call.key)
        seconds = self._dice.choice((0.01, 1.0, 20.0)) * self._dice.random()
        number = self._children.start(call.key, call.tool, seconds)
        try:
            call.spawned(ProcessMark(pid=number, started=number, boot=BOOT, call_key=call.key))
            await asyncio.sleep(seconds)
        except (asyncio.CancelledError, Exception):
            self._children.end(number)
            raise
        self._children.settle()
        return f"exit code {self._dice.randrange(_CODE_MAX)}"

    async def reconcile(self, call: Call[Any]) -> Reconciled:
        """The truth, or that it cannot be told."""
        self._children.settle()
        return answer_of(self._witness, call.key, self._dice)

    async def end_leftovers(self, mark: ProcessMark) -> bool:
        """End the process, which is known by its number, or else by its key."""
        return self._children.end(mark.pid or self._children.number_of(mark.call_key))
