"""How a world comes to rest once nothing goes wrong any more; and that what is refused then changes nothing."""

import asyncio
from typing import TYPE_CHECKING, Any

from semel.core.open_calls import open_calls
from semel.errors import (
    KeyReuse,
    LogDamaged,
    OutcomePending,
    SemelError,
    SendRetracted,
    SessionBusy,
    SessionFull,
    UnknownCall,
    UsageError,
)
from semel.testing.world.follower import log_path
from semel.testing.world.people import answer_one

if TYPE_CHECKING:
    from semel.testing.world.people import Delivery, Person
    from semel.testing.world.world import World

ROUNDS_MAX = 40


async def come_to_rest(world: "World", person: "Person") -> None:
    """Try again what was not answered, carry on what is open, give every verdict; round and round until nothing is left."""
    for _ in range(ROUNDS_MAX):
        await asyncio.sleep(1)
        await _settle(person)
        try:
            left = await _something_left(world, person)
        except (SessionBusy, UsageError) as error:  # it has just begun, or was just answered; the next round sees that
            world.fate.tell("person", f"is refused: {error.code}: {error}")
            left = True
        except SemelError as error:
            world.witness.breach("named", f"at rest: {error.code}: {error}")
            return
        if not left:
            await _look_once_more(world)
            await _refuse(world, person)
            await _refuse_damage(world)
            return
    world.witness.breach("I16", f"the world does not come to rest in {ROUNDS_MAX} rounds")


async def _look_once_more(world: "World") -> None:
    """Another process opens every session, so that what a dead one has left torn is cut."""
    for session in world.sessions:
        if world.bytes_of(session) and world.holder(session) is None:
            await (await world.rival().open(session)).close()


async def _settle(person: "Person") -> None:
    """Wait for every run that is being followed."""
    while pending := [task for task in person.readers if not task.done()]:
        await asyncio.wait(pending)


async def _something_left(world: "World", person: "Person") -> bool:
    """Do one more thing, if there is one to be done."""
    for session in world.sessions:
        if await _session_left(world, person, session):
            return True
    for delivery in world.deliveries:
        if not (delivery.answered or delivery.refused):
            await _try(world, delivery, person)
            return True
    return False


async def _session_left(world: "World", person: "Person", session: str) -> bool:
    """Carry on what is open; answer what waits; give a verdict; start what is queued. A session that is full does no more."""
    state = world.witness.follower(session).opened()  # what a dead process has left torn stands, although nobody was told
    run_id = None if state.run is None else state.run.run_id
    waiting = [call for call in open_calls(state) if call.run_id == run_id or session not in world.ended_full]
    run = None
    try:
        if waiting:
            await answer_one(person, session, waiting[0])
        elif run_id is not None:
            run = await person.runtime.resume(session)
        elif session in world.ended_full:
            return False
        elif state.unknown:
            await _give_verdict(world, person, session, state.unknown[0].call_key)
        elif state.queue:
            run = await person.runtime.resume(session, go_on=True)
        else:
            return False
    except SessionFull:
        world.fate.fire("full_log")
        world.ended_full.add(session)
    if run is not None:
        person.follow(session, run)
    return True


async def _try(world: "World", delivery: "Delivery", person: "Person") -> None:
    try:
        await person.deliver(delivery)
    except OutcomePending:
        delivery.refused = False  # a person looks first, then it is tried again
        for call in world.witness.durable(delivery.session).unknown:
            await _give_verdict(world, person, delivery.session, call.call_key)
    except SessionFull:
        world.fate.fire("full_log")
        delivery.refused = True
    except SendRetracted:
        world.fate.tell("person", f"{delivery.key} was taken back")
    except UsageError as error:
        world.witness.breach("named", f"{delivery.key!r} is refused at rest: {error.code}: {error}")


async def _give_verdict(world: "World", person: "Person", session: str, call_key: str) -> None:
    """The truth, as a person finds it out."""
    world.children.settle()
    verdict = "happened" if world.witness.acted[call_key] else "did_not_happen"
    go_on = world.fate.dice("people").random() < 0.5
    try:
        run = await person.runtime.resolve(call_key, verdict, go_on=go_on)
    except SessionFull:
        world.fate.fire("full_log")
        run = await person.runtime.resolve(call_key, verdict)  # for this there is room
    world.witness.resolved(session, call_key)
    if run is not None:
        person.follow(session, run)


async def _refuse(world: "World", person: "Person") -> None:
    """Requests that are refused by name leave every log as it was (I12)."""
    session = world.sessions[0]
    before = {name: world.bytes_of(name) for name in world.sessions}
    desk = person.runtime.session(session, agent=person.agent)
    answered = [delivery for delivery in world.deliveries if delivery.answered and delivery.session == session]
    await _refused(world, desk.send("  ", key="blank"), UsageError)
    await _refused(world, person.runtime.resolve("0" * 32, "happened"), UnknownCall)
    if answered:
        await _refused(world, desk.send("something else", key=answered[0].key), KeyReuse)
    world.witness.hold("I12", before == {name: world.bytes_of(name) for name in world.sessions}, "a refusal changed a log")


async def _refused(world: "World", asked: Any, kind: type[SemelError]) -> None:
    try:
        await asked
    except kind:
        return
    except SemelError as error:
        world.witness.breach("I12", f"refused by another name: {error.code}")
    else:
        world.witness.breach("I12", f"what has to be refused as {kind.code} was taken")


async def _refuse_damage(world: "World") -> None:
    """A bit of a log is flipped: it is refused by name, and not a byte is changed; then it is flipped back (P7, I12)."""
    session = world.fate.dice("world").choice(world.sessions)
    log, dice = world.medium.look(log_path(session)), world.fate.dice("world")
    world.witness.durable(session)
    good = world.witness.follower(session).bytes_durable  # behind it lies what a dead process has left torn
    if log is None or not good or world.holder(session) is not None:
        return
    at, bit = dice.randrange(good), 1 << dice.randrange(8)
    for image in (log.seen, log.durable):
        image[at] ^= bit
    world.fate.fire("bit_flip")
    before = {path: bytes(file.seen) for path, file in world.medium.files("/sim").items()}
    try:
        writer = await world.rival().open(session)
    except SemelError as error:
        named = isinstance(error, LogDamaged) or error.code == "newer_writer"
        world.witness.hold("I12", named, f"a flipped bit of {session!r} is refused as {error.code}")
        after = {path: bytes(file.seen) for path, file in world.medium.files("/sim").items()}
        world.witness.hold("I12", before == after, "a log that is refused was changed")
    else:
        await writer.close()
        world.witness.breach("I12", f"a flipped bit of {session!r} at {at} is not seen")
    for image in (log.seen, log.durable):
        image[at] ^= bit
