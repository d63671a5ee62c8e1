"""The witness of the simulated world sees what it is there to see: each check fails where what it stands for is broken."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from semel.core.records import RunFinished
from semel.core.values import AssistantMessage, Prompt, Text, ToolCall, ToolMessage, UserMessage
from semel.faces.cli.simulate import build
from semel.ports.model import Request
from semel.testing.world import World, invariants
from semel.testing.world.witness import fault_of

USER = UserMessage(text="go")
TWO = AssistantMessage(blocks=(ToolCall(id="a", name="x", arguments="{}"), ToolCall(id="b", name="x", arguments="{}")))
A, B = ToolMessage(tool_call_id="a", text="1"), ToolMessage(tool_call_id="b", text="2")
SAID = AssistantMessage(blocks=(Text(text="done"),))


@pytest.mark.parametrize(
    ("messages", "fault"),
    [
        ([USER, TWO, A, B, SAID], None),
        ([USER, TWO, A, B], None),
        ([SAID], "opens with an answer"),
        ([USER, TWO, A, SAID], "not answered"),
        ([USER, TWO, A], "not answered"),
        ([USER, TWO, A, USER, B], "not answered"),
        ([USER, TWO, B, A], "not what is owed"),
        ([USER, TWO, A, A], "not what is owed"),
        ([USER, A], "not what is owed"),
        ([USER, AssistantMessage(blocks=(TWO.blocks[0], TWO.blocks[0]))], "two calls of one id"),
    ],
)
def test_i9_a_prompt_that_no_provider_takes_is_seen(messages: list[object], fault: str | None) -> None:
    found = fault_of(Prompt(instructions="", tools=(), messages=messages))
    assert (found is None) is (fault is None)
    assert fault is None or fault in str(found)


def finished() -> World:
    """A world that has come to rest, with runs in its first session."""
    for seed in range(100):
        world = World(seed, build)
        report = world.run()
        assert report.breaches == ()
        if world.witness.durable("orders").ended and "k0" in world.witness.durable("orders").keys:
            return world
    raise AssertionError("no world has a run")


def terminal_again(world: World) -> None:
    follower = world.witness.follower("orders")
    follower.frames.append(next(frame for frame in follower.frames if b'"run_finished"' in frame.payload))


def terminal_gone(world: World) -> None:
    follower = world.witness.follower("orders")
    at = next(at for at, frame in enumerate(follower.frames) if b'"run_finished"' in frame.payload)
    del follower.frames[at]


def line_swapped(world: World) -> None:
    log = world.medium.look("/sim/state/sessions/orders/wal.log")
    assert log is not None
    first, second, *rest = bytes(log.seen).splitlines(keepends=True)
    log.seen[:] = b"".join((second, first, *rest))


def not_durable(world: World) -> None:
    log = world.medium.look("/sim/state/sessions/orders/wal.log")
    assert log is not None
    del log.durable[-10:]


def record_vanished(world: World) -> None:
    world.witness._seen["orders", 1_000_000] = b"{}"


def promise_forgotten(world: World) -> None:
    world.witness.accepts("orders", "a key that nobody used", "run")


def answered_twice(world: World) -> None:
    world.witness.accepts("orders", "k0", "one run")
    world.witness.accepts("orders", "k0", "another run")


def message_lost(world: World) -> None:
    delivery = next(one for one in world.deliveries if one.answered and one.session == "orders" and one.key == "k0")
    delivery.text = "what nobody has said"


def reader_skips(world: World) -> None:
    world.witness.saw_event("orders", {"seq": 3, "record": {}}, 1)


def live_state_differs(world: World) -> None:
    state = world.witness.durable("orders")
    world.witness.rests("orders", replace(state, next_tag=state.next_tag + 1))


def request_from_nowhere(world: World) -> None:
    world.witness.asking(world._improviser, Request(body=b"{}", sha256=""), None)


def acted_behind_its_back(world: World) -> None:
    world.witness.act("k", "pay")
    world.witness.act("k", "pay")


@pytest.mark.parametrize(
    ("spoil", "seen"),
    [
        (terminal_again, "I5"),
        (terminal_gone, "I5"),
        (line_swapped, "I2"),
        (not_durable, "I1"),
        (record_vanished, "I1"),
        (promise_forgotten, "I1"),
        (answered_twice, "I1"),
        (message_lost, "P9"),
        (reader_skips, "I10"),
        (live_state_differs, "I7"),
        (request_from_nowhere, "I4"),
        (acted_behind_its_back, "I3"),
    ],
)
def test_what_is_spoilt_is_seen(spoil: Callable[[World], None], seen: str) -> None:
    world = finished()
    spoil(world)
    invariants.check(world)
    assert seen in {invariant for invariant, _ in world.witness.breaches}


def test_i8_a_step_that_asks_otherwise_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    world = finished()
    monkeypatch.setattr(world.witness, "_step_of", lambda *_: ("orders", "run", 1))
    one = Request(body=b"one", sha256="")
    world.witness.asking(world._improviser, one, None)
    world.witness.asking(world._improviser, one, None)
    assert world.witness.breaches == []
    world.witness.asking(world._improviser, Request(body=b"other", sha256=""), None)
    assert [invariant for invariant, _ in world.witness.breaches] == ["I8"]


def test_what_is_not_spoilt_is_sound() -> None:
    world = finished()
    invariants.check(world)
    assert world.witness.breaches == []
    assert any(isinstance(record, RunFinished) for record in invariants._records(world.witness, "orders"))
