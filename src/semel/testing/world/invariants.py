"""What must hold of a world that has come to rest: the log by itself, and against all that was shown, promised and done."""

import hashlib
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from semel.core.ceiling import reserve_bytes
from semel.core.codec import decode
from semel.core.open_log import finding
from semel.core.outcomes import Outcome
from semel.core.records import (
    IndeterminateResolved,
    Queued,
    Record,
    RunFinished,
    RunStarted,
    StepStarted,
    ToolBatchStarted,
    ToolNoDispatch,
    ToolRerun,
    ToolResult,
    TurnFinished,
)
from semel.core.transcript import history_of
from semel.core.values import UserMessage
from semel.ports.model import FailureClass
from semel.testing.world.follower import log_path

if TYPE_CHECKING:
    from semel.testing.world.witness import Witness
    from semel.testing.world.world import World

NOTHING_HAPPENED = frozenset({"never_sent", "did_not_happen", "not_sent"})


def check(world: "World") -> None:
    """Hold the end of a world against everything. Each breach is told to the witness."""
    for session in world.sessions:
        data = world.bytes_of(session)
        _check_bytes(world.witness, session, data)
        world.witness.hold(
            "I1", data == world.medium.durable_bytes(log_path(session)), f"not all of {session!r} is durable at rest"
        )
        state = world.witness.durable(session)
        world.witness.hold("I16", state.run is None, f"a run of {session!r} is open at rest")
        _check_runs(world, session)
        _check_calls(world.witness, session)
        _check_queue(world.witness, session)
        _check_room(world, session)
    frames = {session: world.witness.follower(session).frames for session in world.sessions}
    for session, seq, payload in world.witness.shown():
        there = seq < len(frames[session]) and frames[session][seq].payload == payload
        world.witness.hold("I1", there, f"record {seq} of {session!r} was shown and is another now")
    for delivery in world.deliveries:
        state = world.witness.durable(delivery.session)
        told = history_of(state, finding(frames[delivery.session]))
        said = sum(isinstance(message, UserMessage) and message.text == delivery.text for message in told)
        waits = delivery.session in world.ended_full and any(message.key == delivery.key for message in state.queue)
        owed = 0 if waits or state.taken.get(delivery.key) == "retracted" else 1
        world.witness.hold("P9", said == owed or not delivery.answered, f"{delivery.key!r} is {said} times in its transcript")
        world.witness.hold("P9", said <= 1, f"{delivery.key!r} is {said} times in its transcript")


def _check_bytes(witness: "Witness", session: str, data: bytes) -> None:
    """Every line by hand: seq without a gap, fence never falling, the chain of digests unbroken, and nothing behind it (I2)."""
    previous, fence = "0" * 64, 0
    witness.hold("I2", not data or data.endswith(b"\n"), f"the log of {session!r} ends within a line")
    for at, line in enumerate(data.splitlines()):
        fields = line.split(b" ", 10)
        good = len(fields) == 11 and int(fields[1]) == at and int(fields[3]) >= fence and int(fields[4]) < max(at, 1)
        if good:
            head = line[: len(line) - len(fields[10]) - 65]
            digest = hashlib.sha256(previous.encode() + head + fields[10]).hexdigest()
            good, previous, fence = digest == fields[9].decode(), digest, int(fields[3])
        witness.hold("I2", good, f"line {at} of {session!r} does not follow from the lines before it")
        if not good:
            return


def _records(witness: "Witness", session: str) -> Iterator[Record]:
    for frame in witness.follower(session).frames[1:]:
        record = decode(frame, session)
        if record is not None:
            yield record


def _check_runs(world: "World", session: str) -> None:
    """One terminal for each run, nothing of the run behind it (I5), and none because of a key, which can be put right (R30)."""
    started: list[str] = []
    finished: Counter[str] = Counter()
    for record in _records(world.witness, session):
        if isinstance(record, RunStarted):
            started.append(record.run_id)
        elif isinstance(record, RunFinished):
            finished[record.run_id] += 1
            refused = record.error is not None and record.error.code == FailureClass.AUTH
            world.witness.hold("R30", not refused, f"run {record.run_id[:8]} has ended because its key was refused")
        elif isinstance(record, StepStarted):
            world.witness.hold("I5", not finished[record.run_id], f"run {record.run_id[:8]} goes on behind its terminal")
    world.witness.hold("I5", finished == Counter(set(started)), f"the runs of {session!r} have terminals {dict(finished)}")
    world.witness.hold("I5", len(set(started)) == len(started), f"a run of {session!r} was started twice")


def _check_calls(witness: "Witness", session: str) -> None:
    """What is recorded of a call is what happened in the world, and no more than can be known of it (I3)."""
    keys: dict[tuple[str, int], str] = {}
    again: set[str] = set()
    for record in _records(witness, session):
        if isinstance(record, ToolBatchStarted):
            keys.update({(record.batch_id, call.ordinal): call.call_key for call in record.planned_calls})
        elif isinstance(record, ToolNoDispatch):
            key = keys[record.batch_id, record.ordinal]
            witness.hold("I3", not witness.dispatched[key], f"call {key[:8]} is recorded as not dispatched, and it was")
        elif isinstance(record, ToolRerun):
            again.add(record.call_key)
        elif isinstance(record, ToolResult):
            key = keys[record.batch_id, record.ordinal]
            if record.reason in NOTHING_HAPPENED:
                witness.hold("I3", not witness.acted[key], f"call {key[:8]} is recorded as {record.reason}, and it took effect")
                witness.hold("I3", key not in again, f"call {key[:8]} was to run again and is recorded as {record.reason}")
            elif record.outcome is Outcome.COMPLETED and not record.is_error:
                done = witness.acted[key] > 0 or (key not in witness.known and witness.dispatched[key] > 0)
                witness.hold("I3", done, f"call {key[:8]} is recorded as completed, and it did nothing")


def _check_queue(witness: "Witness", session: str) -> None:
    """No message that was accepted before an unknown outcome starts its run while nobody has looked or gone on (Q2, P3)."""
    keys: dict[tuple[str, int], str] = {}
    waits: set[str] = set()
    unknown: set[str] = set()
    queued: set[str] = set()
    for record in _records(witness, session):
        if isinstance(record, ToolBatchStarted):
            keys.update({(record.batch_id, call.ordinal): call.call_key for call in record.planned_calls})
        elif isinstance(record, ToolResult) and record.outcome is Outcome.UNKNOWN:
            unknown.add(keys[record.batch_id, record.ordinal])
            waits = set(queued)
        elif isinstance(record, IndeterminateResolved):
            unknown.discard(record.call_key)
        elif isinstance(record, Queued):
            queued.add(record.submission_id)
        elif isinstance(record, RunStarted):
            drained_past = bool(unknown) and record.key in waits
            witness.hold("Q", not drained_past, f"{record.key!r} was queued in front of an unknown outcome and ran past it")
            unknown, waits = set(), set()


def _check_room(world: "World", session: str) -> None:
    """Behind each write there was room to close the session (I13)."""
    follower = world.witness.follower(session)
    if not world.full:
        return
    for head, state in follower.states.items():
        end = follower.frames[head + 1].offset if head + 1 < len(follower.frames) else follower.bytes_durable
        fits = end + reserve_bytes(state) <= world.ceiling_bytes
        world.witness.hold("I13", fits, f"behind record {head} of {session!r} there is no room to close it")


def turns_of(world: "World") -> tuple[int, int]:
    """How many turns were begun, and how many came to their end."""
    begun: set[tuple[str, int]] = set()
    done: set[tuple[str, int]] = set()
    for session in world.sessions:
        for record in _records(world.witness, session):
            if isinstance(record, StepStarted):
                begun.add((record.run_id, record.step_id))
            elif isinstance(record, TurnFinished):
                done.add((record.run_id, record.step_id))
    return len(begun), len(done & begun)
