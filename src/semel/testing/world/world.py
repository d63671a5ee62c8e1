"""A world: one machine, the lives of one runtime on it, and all that can go wrong; decided by one seed."""

import asyncio
import gc
import hashlib
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from semel.adapters.file.floor import forget_proven
from semel.adapters.file.store import FileStore
from semel.adapters.file.syncs import Syncs
from semel.adapters.file.threads import settled
from semel.adapters.models.scripted import FAMILY, ScriptedModel, load_script, scripted_bundle
from semel.adapters.tools.function import tool
from semel.core.ceiling import CEILING_BYTES
from semel.core.features import KNOWN
from semel.engine.resume import Ground
from semel.errors import SemelError
from semel.ports.model import ModelPort
from semel.ports.tool import ToolPort
from semel.testing.faults import Crashed
from semel.testing.world import invariants, rest
from semel.testing.world.cast import cast_tools
from semel.testing.world.clock import SeededIds, VirtualClock
from semel.testing.world.disk import SimDisk
from semel.testing.world.fate import Fate
from semel.testing.world.follower import STATE, log_path, session_path
from semel.testing.world.guard import Guard, watch
from semel.testing.world.loop import Deadlock, SimLoop
from semel.testing.world.medium import File, Medium
from semel.testing.world.models import HostileModel, Improviser
from semel.testing.world.people import NEVER_RIGHT, Delivery, Person
from semel.testing.world.tools import Children, HostileTool
from semel.testing.world.witness import Witness

SESSIONS = ("orders", "Übung 7")
LIVES_MAX = 5
QUIET_SECONDS = 100_000.0
"""How long, in virtual time, a world may take to come to rest once nothing goes wrong any more (I16)."""

Build = Callable[["World"], tuple[Any, Any]]
"""Makes the agent and the runtime of one life: `lambda world: (agent, Runtime(agents=[agent], ground=world.ground))`."""


class SimSyncs(Syncs):
    """The syncs of a store, whose threads are the loop's simulated ones."""

    async def do(self, work: Callable[[], None]) -> None:
        """Do it at some moment; its end is always awaited."""
        self._under_way += 1
        try:
            await settled(work)
        finally:
            self._under_way -= 1


class SimStore(FileStore):
    """A file store without threads, and without an index: that is SQLite's, which asks the real disk."""

    def _syncs_here(self) -> Syncs:
        loop = asyncio.get_running_loop()
        if self._syncs is None or self._syncs.loop is not loop:
            self._syncs = SimSyncs(loop)
        return self._syncs

    def recall(self, session: str) -> bytes | None:
        """Nothing is remembered."""
        return None

    def remember(self, session: str, mark: str, content: bytes) -> None:
        """Nothing is kept."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """What came of a world. `turns` were begun, `done` of them came to their end."""

    seed: int
    breaches: tuple[tuple[str, str], ...]
    fired: Counter[str]
    checked: Counter[str]
    turns: int
    done: int
    digest: str
    lives: int
    seconds: float
    story: tuple[tuple[float, str, str], ...]
    logs: dict[str, bytes]


@dataclass(eq=False)
class Doom:
    """How a life ends: at a callback of its loop, or at a call of its disk. None of both: when its people have gone."""

    at_step: int | None = None
    at_call: int | None = None
    how: str = "before"


class World:
    """Run it once. `ground`, `model` and `tool` are for `build`, which is asked at the beginning of each life."""

    def __init__(self, seed: int, build: Build, *, messages: Sequence[str] = ("message",)) -> None:
        """Equal seeds and builds run alike, step for step, in any process. `messages` are what people write, with a number."""
        self.messages = messages
        self.fate = Fate(seed)
        self.medium = Medium()
        self.clock = VirtualClock(self.fate)
        self.ids = SeededIds(self.fate)
        self.witness = Witness(self.medium, self.fate)
        self.guard = Guard()
        self.children = Children(self.fate, self.witness)
        self.deliveries: list[Delivery] = []
        self.ended_full: set[str] = set()
        self.full = self.fate.is_about("full_log")
        self._build = build
        self._dice = self.fate.dice("world")
        self.ceiling_bytes = self._dice.choice((16_000, 30_000, 60_000)) if self.full else CEILING_BYTES
        self.sessions = SESSIONS[: self._dice.randint(1, 2)]
        self._dead = False
        self._lives = 0
        self._rivals: list[SimDisk] = []
        self._disk: SimDisk | None = None
        self._doom = Doom()
        self._calls = 0
        self._improviser = Improviser(self.fate)
        for session in self.sessions:
            self.witness.follower(session)

    # -- for `build`

    @property
    def ground(self) -> Ground:
        """What the runtime of this life stands on: simulated disk, clock and ids."""
        disk = SimDisk(self.medium, self.fate, self._lives, self._dies)
        disk.watch, disk.on_death = self._watch, self._die
        self._disk = disk
        inline = self._dice.random() < 0.5
        store = SimStore(Path(STATE), self.clock, known=KNOWN, disk=disk, inline_sync=inline, ceiling_bytes=self.ceiling_bytes)
        return Ground(store=store, clock=self.clock, ids=self.ids)

    def model(self, inner: ModelPort | str | None = None) -> HostileModel:
        """A model with faults around it: an object, a script by its name (`scripted:FILE`), or one that makes up its answers."""
        found = scripted(inner, self.clock) if isinstance(inner, str) else inner
        return HostileModel(found or self._improviser, self.fate, self.witness, self.crash)

    def tool(self, inner: ToolPort | Callable[..., Any]) -> HostileTool:
        """A tool with faults around it. It has to be asynchronous: there are no threads."""
        port = tool(inner) if not hasattr(inner, "spec") else inner
        return HostileTool(
            port,  # type: ignore[arg-type]  # what has a spec is a port
            self.fate,
            self.witness,
            self.crash,
        )

    def tools(self) -> list[HostileTool]:
        """The world's own cast: a tool of each kind."""
        return [self.tool(tool) for tool in cast_tools(self.fate, self.witness, self.children, self.clock)]

    def crash(self, why: str) -> None:
        """End the process, and raise, so that nothing behind it runs."""
        self.fate.tell("world", f"the process dies: {why}")
        self._die()
        raise Crashed

    # -- for people

    def any_session(self) -> str:
        """One of the sessions."""
        return self.fate.dice("people").choice(self.sessions)

    def any_delivery(self) -> Delivery | None:
        """One of the messages so far."""
        return self.fate.dice("people").choice(self.deliveries) if self.deliveries else None

    def rival(self) -> SimStore:
        """The store of another process on the same disk."""
        disk = SimDisk(self.medium, self.fate, 1001 + len(self._rivals), lambda _name: None)
        self._rivals.append(disk)
        disk.watch = self._watch
        return SimStore(Path(STATE), self.clock, known=KNOWN, disk=disk, ceiling_bytes=self.ceiling_bytes)

    def holder(self, session: str) -> object:
        """Who holds the lease of a session, None if nobody does."""
        lease = self.medium.look(f"{session_path(session)}/lease")
        return None if lease is None else lease.holder

    def bytes_of(self, session: str) -> bytes:
        """The log of a session as a process would read it."""
        log = self.medium.look(log_path(session))
        return b"" if log is None else bytes(log.seen)

    # -- the run

    def run(self) -> Report:
        """Live, die and come to rest; then hold the end against what was promised."""
        with _no_collector():
            lives = self._dice.randint(1, LIVES_MAX)
            while self._lives < lives and not self.witness.breaches:
                self._life(last=False)
            self.fate.quiet = True
            if not self.witness.breaches:
                self._life(last=True)
            if not self.witness.breaches:
                invariants.check(self)
        turns, done = invariants.turns_of(self)
        logs = {session: self.bytes_of(session) for session in self.sessions}
        for session, log in logs.items():
            self.fate.tell("log", f"{session!r}: {len(log)} bytes, {hashlib.sha256(log).hexdigest()[:16]}")
        return Report(
            seed=self.fate.seed,
            breaches=tuple(self.witness.breaches),
            fired=self.fate.fired,
            checked=self.witness.checked,
            turns=turns,
            done=done,
            digest=self.fate.digest(),
            lives=self._lives,
            seconds=self.fate.now,
            story=tuple(self.fate.lines),
            logs=logs,
        )

    def _life(self, *, last: bool) -> None:
        """One life of the runtime, from its start to its end or death, and what comes over the machine behind it."""
        self._lives += 1
        self._dead, self._calls = False, 0
        self._doom = Doom() if last else self._doomed()
        forget_proven(Path(STATE))
        if self.fate.strikes("clock_jump"):
            self.clock.set_by_ms += self._dice.choice((-3_600_000, -1500, 1500, 86_400_000))
        self.fate.tell("world", f"life {self._lives} begins" + (", and nothing goes wrong any more" if last else ""))
        loop = SimLoop(  # type: ignore[abstract]  # it has no sockets, signals and processes
            self.fate, reorder=self.fate.seed % 2 == 1, dead=lambda: self._is_over(loop)
        )
        try:
            loop.run(self._quiet_life() if last else self._busy_life())
        except Deadlock as error:
            self.witness.breach("I16", str(error))
        except Exception as error:  # noqa: BLE001  a runtime that cannot be entered or left is a finding, whatever it raises
            where = traceback.extract_tb(error.__traceback__)[-1]
            self.witness.breach("named", f"a life ends with {type(error).__name__}: {error} ({where.name}, line {where.lineno})")
        self.witness.process_is_dead = False
        for disk in (*self._rivals, *([self._disk] if self._disk is not None else [])):
            disk.die()
        for complaint in [] if self._dead else loop.complaints:
            self.fate.tell("asyncio", complaint)
        if self._dead and last and not self.witness.breaches:
            self.witness.breach("I16", "the process died although nothing goes wrong any more")
        if self.fate.strikes("power_loss"):
            self.medium.lose_power(self.fate.dice("power"))
            self.children.lose_power()
        self.fate.now += self._dice.choice((0.01, 1.0, 600.0)) * self._dice.random()
        self.children.settle()

    def _doomed(self) -> Doom:
        if self.fate.strikes("crash_at_await"):
            return Doom(at_step=int(self._dice.expovariate(1 / 400)) + 1)
        if self.fate.strikes("crash_at_disk_call"):
            return Doom(at_call=int(self._dice.expovariate(1 / 40)) + 1, how=self._dice.choice(("before", "after")))
        if self.fate.strikes("crash_in_write"):
            return Doom(at_call=int(self._dice.expovariate(1 / 40)) + 1, how="within")
        return Doom()

    def _is_over(self, loop: SimLoop) -> bool:
        if not self._dead and (self.witness.breaches or loop.steps == self._doom.at_step):
            self.fate.tell("world", f"the process dies at callback {loop.steps}")
            self._die()
        return self._dead

    def _dies(self, name: str) -> str | None:
        """Whether the process ends at this call of its disk, and on which side of it."""
        self._calls += 1
        at = self._doom.at_call
        if at is None or self._calls < at or (self._doom.how == "within" and name != "write"):
            return None
        self.fate.tell("world", f"the process dies {self._doom.how} {name}")
        return self._doom.how

    def _die(self) -> None:
        self._dead = self.witness.process_is_dead = True
        if self._disk is not None:
            self._disk.die()

    def _watch(self, disk: SimDisk, file: File, offset: int, data: bytes | None) -> None:
        watch(self, disk, file, offset, data)

    async def _busy_life(self) -> None:
        agent, runtime = self._build(self)
        leaving = asyncio.Event()
        async with runtime:
            people = [Person(self, runtime, agent, leaving) for _ in range(self._dice.randint(1, 3))]
            days = [asyncio.ensure_future(person.day()) for person in people]
            gone = asyncio.ensure_future(leaving.wait())
            everybody = asyncio.ensure_future(asyncio.wait(days))
            await asyncio.wait([everybody, gone], return_when=asyncio.FIRST_COMPLETED)
            if not leaving.is_set() and self._dice.random() < 0.7:
                await asyncio.wait([gone], timeout=self._dice.choice((0.0, 1.0, 100.0, 8000.0)))
        await self._part([*days, *(reader for person in people for reader in person.readers), gone, everybody], runtime)

    async def _quiet_life(self) -> None:
        """Everything that was begun comes to its end, or to a state in which a person is needed by name."""
        agent, runtime = self._build(self)
        person = Person(self, runtime, agent, asyncio.Event())
        async with runtime:
            try:
                async with asyncio.timeout(QUIET_SECONDS):
                    await rest.come_to_rest(self, person)
            except TimeoutError:
                self.witness.breach("I16", "the world does not come to rest")
        await self._part(person.readers, runtime)

    async def _part(self, tasks: "list[asyncio.Task[Any]]", runtime: Any) -> None:
        """Behind the end of a runtime: whoever waits for it is told within a moment, and what it met has a name."""
        if tasks:
            await asyncio.wait(tasks, timeout=5)
        for task in tasks:
            task.cancel()
        for incident in getattr(getattr(runtime, "diary", None), "incidents", ()):
            self.fate.tell("runtime", f"{incident.stage} of {incident.session!r}: {incident.code}")
            known = incident.code in _CODES
            self.witness.hold("named", known, f"{incident.stage} of {incident.session!r}: {incident.code}: {incident.message}")


def scripted(name: str, clock: VirtualClock) -> ScriptedModel:
    """The model of a script file. Raises BadSettings, UnknownModel."""
    path = name.removeprefix(f"{FAMILY}:")
    return ScriptedModel(bundle=scripted_bundle(path), script=load_script(path), clock=clock)


def _codes(kind: type[SemelError]) -> set[str]:
    return {kind.code}.union(*(_codes(below) for below in kind.__subclasses__()))


_CODES = _codes(SemelError) - {kind.code for kind in NEVER_RIGHT}


@contextmanager
def _no_collector() -> Iterator[None]:
    """When an object goes must not depend on what else the interpreter does; cycles are collected between two worlds."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
