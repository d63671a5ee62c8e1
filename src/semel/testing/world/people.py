"""What people and other programs do to a runtime: a table of verbs, done in an order and at moments that the seed chooses."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from semel.core.open_calls import OpenCall, open_calls
from semel.errors import (
    CorruptLog,
    InvariantBroken,
    KeyReuse,
    LogDamaged,
    OutcomePending,
    SemelError,
    SessionBusy,
    SessionFull,
    UsageError,
)
from semel.testing.faults import Crashed

if TYPE_CHECKING:
    from semel.testing.world.world import World

DELIVERIES = ("queue", "interrupt", "steer", "follow_up")
VERDICTS = ("happened", "did_not_happen", "abandoned")
PAUSES = (0.0, 0.001, 0.05, 1.0, 30.0)
NEVER_RIGHT = (InvariantBroken, CorruptLog, LogDamaged)
"""What no fault of a world excuses."""


@dataclass(eq=False)
class Delivery:
    """A message that somebody wants delivered; it is tried again, with its key, until it is answered or refused.

    `how` is the delivery that was asked for, None for a plain send.
    """

    session: str
    key: str
    text: str
    how: str | None = None
    answered: bool = False
    refused: bool = False


class Office(Protocol):
    """A runtime, as far as people need it; `semel.Runtime` is one."""

    def session(self, session: str | None = None, *, agent: Any, context: Any = None) -> Any:
        """A session by its id."""

    def inbox(self) -> list[Any]:
        """The calls whose outcome is unknown."""

    async def resume(self, session: str) -> Any:
        """Carry on the open run of a session."""

    async def resolve(self, call: str, verdict: Any, *, go_on: bool = False) -> Any:
        """Say what became of a call."""


@dataclass(eq=False)
class Person:
    """Somebody before one life of the runtime. `readers` are those who follow the runs that were begun."""

    world: "World"
    runtime: Any
    agent: Any
    leaving: asyncio.Event
    readers: list["asyncio.Task[None]"] = field(default_factory=list)

    async def day(self) -> None:
        """A few things, one behind the other."""
        dice = self.world.fate.dice("people")
        for at in range(dice.randint(1, 4)):
            await asyncio.sleep(dice.choice(PAUSES) * dice.random())
            drawn = dice.choices(VERBS, weights=[verb.weight for verb in VERBS])[0]
            await self.do(VERBS[0] if at == 0 and dice.random() < 0.7 else drawn)

    async def do(self, verb: "Verb") -> None:
        """One thing. A refusal by name is an answer; anything else that is raised is a breach."""
        try:
            await verb.act(self)
        except NEVER_RIGHT as error:
            self.world.witness.breach("named", f"{verb.name}: {type(error).__name__}: {error}")
        except SessionFull:
            self.world.fate.fire("full_log")
        except SemelError as error:
            self.world.fate.tell("person", f"{verb.name} is refused: {error.code}")
        except (asyncio.CancelledError, GeneratorExit, Crashed):
            raise
        except BaseException as error:  # noqa: BLE001  whatever is not an answer by name
            self.world.witness.breach("named", f"{verb.name}: {type(error).__name__}: {error}")

    async def deliver(self, delivery: Delivery) -> None:
        """Send a message; what is answered is durable. Somebody may hang up meanwhile: then nothing is known."""
        world = self.world
        handle = self.runtime.session(delivery.session, agent=self.agent)
        more = {} if delivery.how is None else {"delivery": delivery.how}
        sending = asyncio.ensure_future(handle.send(delivery.text, key=delivery.key, **more))
        if world.fate.strikes("hangs_up"):
            await asyncio.sleep(world.fate.dice("people").choice(PAUSES[:3]))
            sending.cancel()
        try:
            run = await sending
        except asyncio.CancelledError:
            return
        except OutcomePending:
            raise  # once a person has looked, it can be tried again
        except UsageError:
            delivery.refused = True
            raise
        world.witness.accepts(delivery.session, delivery.key, run.run_id)
        delivery.answered = True
        world.fate.tell("person", f"{delivery.key} is answered: run {run.run_id[:8]}")
        self.follow(delivery.session, run)

    def follow(self, session: str, run: Any) -> None:
        """Watch a run to its rest, and read along."""
        self.readers.append(asyncio.ensure_future(self._rest(session, run)))
        if self.world.fate.dice("people").random() < 0.5:
            self.readers.append(asyncio.ensure_future(self._read(session, run)))

    async def _rest(self, session: str, run: Any) -> None:
        try:
            state = await run.rest()
        except NEVER_RIGHT as error:
            self.world.witness.breach("named", f"a run came to {type(error).__name__}: {error}")
        except SemelError as error:
            self.world.fate.tell("runtime", f"the run of {session!r} cannot go on: {error.code}")
        else:
            self.world.witness.rests(session, state)

    async def _read(self, session: str, run: Any) -> None:
        dice = self.world.fate.dice("people")
        seen = before = dice.choice((0, 0, run.before))
        try:
            async for event in run.events(after=before, live=dice.random() < 0.5):
                if "seq" in event:
                    self.world.witness.saw_event(session, event, seen)
                    seen = event["seq"]
                if dice.random() < 0.05:
                    await asyncio.sleep(dice.choice(PAUSES))
        except SemelError as error:
            self.world.fate.tell("reader", f"of {session!r} ends: {error.code}")


async def send(person: Person) -> None:
    """A new message."""
    world = person.world
    await person.deliver(_message(world, None))


async def tell(person: Person) -> None:
    """A new message into the open run, behind it, or instead of what is left of it."""
    world = person.world
    await person.deliver(_message(world, world.fate.dice("people").choice(DELIVERIES)))


def _message(world: "World", how: str | None) -> Delivery:
    number = len(world.deliveries)
    delivery = Delivery(world.any_session(), f"k{number}", f"{world.fate.dice('people').choice(world.messages)} {number}", how)
    world.deliveries.append(delivery)
    return delivery


async def send_again(person: Person) -> None:
    """A message that may have been delivered already."""
    delivery = person.world.any_delivery()
    if delivery is not None and not delivery.refused:
        await person.deliver(delivery)


async def reuse_key(person: Person) -> None:
    """Another message under a key that was answered: refused by name."""
    world, delivery = person.world, person.world.any_delivery()
    if delivery is None or not delivery.answered or not world.fate.strikes("key_reused"):
        return
    try:
        await person.runtime.session(delivery.session, agent=person.agent).send("something else", key=delivery.key)
    except KeyReuse as error:
        world.witness.hold("I12", "input" in str(error), "a refused key does not name the field")
    else:
        world.witness.breach("I12", f"key {delivery.key!r} was taken again for another message")


async def resume(person: Person) -> None:
    """Go on with whatever is open."""
    session = person.world.any_session()
    run = await person.runtime.resume(session)
    if run is not None:
        person.follow(session, run)


async def resolve(person: Person) -> None:
    """A verdict on a call whose outcome is unknown, and perhaps on with it."""
    dice = person.world.fate.dice("people")
    unknown = [item for item in person.runtime.inbox() if item.standing == "unknown"]
    if not unknown:
        return
    item = dice.choice(unknown)
    go_on = dice.random() < 0.5
    run = await person.runtime.resolve(item.call.call_key, dice.choice(VERDICTS), go_on=go_on)
    person.world.witness.resolved(item.session, item.call.call_key)
    person.world.fate.tell("person", f"a verdict on {item.call.call_key[:8]} is answered")
    if run is not None:
        person.follow(item.session, run)


async def take_back(person: Person) -> None:
    """A message is queued, and while it waits it is taken back."""
    world = person.world
    delivery = _message(world, "queue")
    await person.deliver(delivery)
    await asyncio.sleep(world.fate.dice("people").choice(PAUSES[:3]))
    if all(message.key != delivery.key for message in world.witness.durable(delivery.session).queue):
        return
    await person.runtime.session(delivery.session, agent=person.agent).retract(delivery.key)
    world.fate.fire("taken_back")
    world.witness.retracted(delivery.session, delivery.key)


async def cancel(person: Person) -> None:
    """The open run is to end, now or behind its step."""
    world, session = person.world, person.world.any_session()
    at = world.fate.dice("people").choice(("now", "step_boundary"))
    run = await person.runtime.session(session, agent=person.agent).cancel(at=at)
    if run is not None:
        world.fate.fire(f"cancel_{at}")
        world.witness.cancelled(session, run.run_id)
        person.follow(session, run)


async def stop(person: Person) -> None:
    """The open run is to end as `max_steps`."""
    session = person.world.any_session()
    run = await person.runtime.session(session, agent=person.agent).stop()
    if run is not None:
        person.world.fate.fire("stopped")
        person.world.witness.stopped(session, run.run_id)
        person.follow(session, run)


async def answer(person: Person) -> None:
    """A call that waits for an approval is let go or refused; one that somebody owes a result gets it."""
    world, session = person.world, person.world.any_session()
    waiting = open_calls(world.witness.durable(session))
    if waiting:
        await answer_one(person, session, world.fate.dice("people").choice(waiting))


async def answer_one(person: Person, session: str, call: OpenCall) -> None:
    """What this one call waits for. A result is of something that has happened."""
    world, dice, desk = person.world, person.world.fate.dice("people"), person.runtime.session(session, agent=person.agent)
    if call.kind == "approval":
        if dice.random() < 0.6:
            run = await desk.approve(call.call_key)
        else:
            run = await desk.deny(call.call_key)
    else:
        if call.kind == "held" and not world.witness.acted[call.call_key]:
            world.witness.act(call.call_key, call.tool)
        run = await desk.deliver(call.call_key, "it is done")
        world.witness.delivered(session, call.call_key)
    world.fate.fire(f"answered_{call.kind}")
    if run is not None:
        person.follow(session, run)


async def leave(person: Person) -> None:
    """Stop the process in good order, whatever is under way."""
    if person.world.fate.strikes("left_early"):
        person.leaving.set()


async def look(person: Person) -> None:
    """Look at a session by reading alone."""
    world, session = person.world, person.world.any_session()
    status = person.runtime.session(session, agent=person.agent).state()
    if status is not None:
        world.witness.hold("I10", status.head_seq <= world.witness.durable_head(session), "a status is ahead of the device")


async def rival_reads(person: Person) -> None:
    """Another process reads the log."""
    world = person.world
    if not world.fate.strikes("rival_reads"):
        return
    session, store = world.any_session(), world.rival()
    if store.exists(session):
        for frame in store.read(session).frames:
            world.witness.saw(session, frame.seq, frame.payload)


async def rival_opens(person: Person) -> None:
    """Another process wants to write: it gets the session exactly when nobody has it."""
    world = person.world
    if not world.fate.strikes("rival_opens"):
        return
    session, store = world.any_session(), world.rival()
    held = world.holder(session) is not None
    try:
        writer = await store.open(session)
    except SessionBusy:
        world.witness.hold("I6", held, f"{session!r} is free and was refused")
        return
    world.witness.hold("I6", not held, f"two processes hold {session!r}")
    await asyncio.sleep(world.fate.dice("people").choice(PAUSES[:3]))
    await writer.close()


@dataclass(frozen=True)
class Verb:
    """Something that people do, and how often beside the others."""

    name: str
    weight: float
    act: Callable[[Person], Awaitable[None]]


VERBS = (
    Verb("send", 6, send),
    Verb("tell", 6, tell),
    Verb("send again", 2, send_again),
    Verb("take back", 3, take_back),
    Verb("cancel", 2, cancel),
    Verb("stop", 1.5, stop),
    Verb("answer", 3, answer),
    Verb("reuse a key", 2, reuse_key),
    Verb("resume", 1, resume),
    Verb("resolve", 2, resolve),
    Verb("leave", 1.5, leave),
    Verb("look", 1, look),
    Verb("read beside", 2, rival_reads),
    Verb("open beside", 2, rival_opens),
)
