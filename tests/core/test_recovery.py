"""A run that is cut anywhere and resumed is the run that was not cut: same requests, no action twice, one terminal."""

import pytest

from semel.core.records import RunFinished, ToolNoDispatch, ToolResult
from semel.core.values import Effect, Stop
from tests.core.machine import Machine, Script, World, call, crash_points, good, lives, say, tool, unknown, whole_run

READ = tool("read", Effect.READ)
IDEMPOTENT = tool("put", Effect.IDEMPOTENT)
ONCE = tool("pay")
ASKED = tool("refund", reconciles=True)
ONE_AT_A_TIME = tool("deploy", sequential=True)

SCRIPTS = {
    "text": Script(answers=[say("hello")]),
    "read": Script(answers=[call("read"), say("done")], tools=[READ]),
    "once": Script(answers=[call("pay"), say("done")], tools=[ONCE]),
    "parallel": Script(answers=[call("read", "pay", "put", "pay"), say("done")], tools=[READ, ONCE, IDEMPOTENT]),
    "apart": Script(answers=[call("read", "pay", "put", "pay"), say("done")], tools=[READ, ONCE, IDEMPOTENT], together=False),
    "refused": Script(answers=[call("nope", "read", "nope"), call("nope"), say("done")], tools=[READ]),
    "sequential": Script(answers=[call("deploy", "read", "deploy"), say("done")], tools=[ONE_AT_A_TIME, READ]),
    "reconciled": Script(
        answers=[call("refund", "read", "refund"), say("done")], tools=[ASKED, READ], reconcile={"refund": good("was done")}
    ),
    "reconcile fails": Script(
        answers=[call("refund", "pay", "refund"), say("done")], tools=[ASKED, ONCE], reconcile={"refund": unknown()}
    ),
    "unknown live": Script(answers=[call("pay", "read"), say("never")], tools=[ONCE, READ], replies={"pay": unknown()}),
    "done": Script(answers=[call("read"), say("never")], tools=[READ], replies={"read": good("all", terminate=True)}),
    "two turns": Script(answers=[call("read"), call("put", "pay"), say("done")], tools=[READ, IDEMPOTENT, ONCE]),
}


def check(script: Script, reference: World, world: World) -> str:
    """What must hold whatever was cut; returns how the run ended."""
    effects = {spec.name: spec for spec in script.tools}
    for key, times in world.dispatched.items():
        if effects[world.tool_of[key]].effect is Effect.ONCE:
            assert times <= 1, f"{world.tool_of[key]} was dispatched {times} times"
    records = [logged.record for logged in world.logged()]
    finished = [record for record in records if isinstance(record, RunFinished)]
    assert len(finished) == 1
    assert records[-1] is finished[0]
    # A repeated request repeats the bytes of the one it stands for, so what is sent is the reference with repeats.
    distinct = [request for at, request in enumerate(world.requests) if at == 0 or request != world.requests[at - 1]]
    # P4 reads "given the same call outcomes": a call that a torn write kept from leaving, or that was asked about, has another.
    other = any(isinstance(record, ToolNoDispatch) and record.reason == "never_dispatched" for record in records)
    same = 1 if other or world.reconciled else len(distinct)
    assert distinct[:same] == reference.requests[: len(distinct)][:same]
    return finished[0].reason


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_run_cut_at_any_record_and_resumed_repeats_nothing_and_ends_once(name: str) -> None:
    script = SCRIPTS[name]
    reference = whole_run(script)
    ends = [check(script, reference, lives(script, [point])) for point in crash_points(reference)]
    assert set(ends) <= {"completed", "interrupted"}
    assert len(ends) == sum(len(write) + 1 for write in reference.writes)


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_recovery_cut_at_any_record_recovers_again(name: str) -> None:
    script = SCRIPTS[name]
    reference = whole_run(script)
    count = 0
    for first in crash_points(reference):
        for second in [(at, kept) for at in range(3) for kept in (0, 1, 2, 3, None)]:
            check(script, reference, lives(script, [first, second]))
            count += 1
    assert count == 15 * len(crash_points(reference))


def test_a_once_call_that_was_sent_and_lost_stops_the_run_and_no_model_is_asked() -> None:
    script = SCRIPTS["once"]
    reference = whole_run(script)
    assert [len(write) for write in reference.writes] == [2, 4, 4, 4]
    world = lives(script, [(2, 0)])
    assert check(script, reference, world) == "interrupted"
    assert len(world.requests) == 1
    state = world.state()
    assert [unknown.tool for unknown in state.unknown] == ["pay"]


def test_a_torn_intent_was_never_dispatched_and_the_call_behind_it_is() -> None:
    script = Script(answers=[call("read", "pay"), say("done")], tools=[READ, ONCE])
    world = lives(script, [(1, 4)])  # attempt, step, batch, intent of read; the intent of pay is torn off
    kinds = [type(record).__name__ for write in world.writes for record in write]
    assert kinds.count("ToolNoDispatch") == 1
    assert list(world.tool_of.values()) == ["pay"]


def times_paid_behind_a_read_that_was_given_up(kind: type[Machine] = Machine) -> int:
    """How often a once call is sent, when each recovery dies in its first barrier and the read before it is given up."""
    script = Script(answers=[call("look", "pay"), say("done")], tools=[tool("look", Effect.READ, sequential=True), tool("pay")])
    world = lives(script, [(2, 0), *[(1, 0)] * 6], kind)
    return sum(times for key, times in world.dispatched.items() if world.tool_of[key] == "pay")


def test_p2_a_once_call_behind_a_read_that_was_given_up_is_sent_once_however_often_its_recovery_dies() -> None:
    assert times_paid_behind_a_read_that_was_given_up() == 1


@pytest.mark.parametrize("points", [[(2, 1)], [(2, 0), (0, 2)]])
def test_p21_a_torn_close_out_of_a_sequential_batch_says_what_the_whole_one_says(points: list[tuple[int, int | None]]) -> None:
    live = len(points) == 1
    script = Script(
        answers=[call("deploy", "deploy"), say("never")],
        tools=[tool("deploy", sequential=True)],
        replies={"deploy": unknown()} if live else {},
    )
    world = lives(script, points)
    outcomes = [str(logged.record.outcome) for logged in world.logged() if isinstance(logged.record, ToolResult)]
    assert outcomes == ["unknown", "interrupted"]
    assert sum(world.dispatched.values()) == 1


@pytest.mark.parametrize("stop", [Stop.REFUSAL, Stop.CONTENT_FILTER])
@pytest.mark.parametrize("kept", range(5))
def test_an_answer_that_was_declined_fails_its_run_wherever_it_is_cut(stop: Stop, kept: int) -> None:
    world = lives(Script(answers=[say("no")], stops={0: stop}), [(1, kept)])
    state = world.state()
    assert state.newest is not None
    assert state.ended[state.newest].reason == "error"


@pytest.mark.parametrize("stop", [Stop.REFUSAL, Stop.CONTENT_FILTER])
def test_calls_of_an_answer_that_was_declined_are_settled_by_that_name_and_the_run_fails(stop: Stop) -> None:
    world = whole_run(Script(answers=[call("pay"), say("done")], tools=[ONCE], stops={0: stop}))
    assert not world.dispatched
    settled = [logged.record for logged in world.logged() if isinstance(logged.record, ToolNoDispatch)]
    assert [record.reason for record in settled] == ["answer_declined"]
    finished = [logged.record for logged in world.logged() if isinstance(logged.record, RunFinished)]
    assert [record.reason for record in finished] == ["error"]
