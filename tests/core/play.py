"""A session played from a list of numbers: commands, outcomes and deaths in any order, each only where it is legal.

A number picks one of the moves that are possible in the state at hand, so that every list is a deep history and shrinks well.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from semel.core.hook_notes import HookNote
from semel.core.limits import Limits
from semel.core.outcomes import Outcome, Settlement
from semel.core.transcript import holds_opaque
from semel.core.values import AssistantMessage, Block, Effect, Stop, Text, ToolCall, ToolMessage, UserMessage
from tests.core.cast import TOOLS, asks_for
from tests.core.driver import Died
from tests.core.machine import bad, good, say, unknown
from tests.core.pausing import leave, refuse_key
from tests.core.thinker import Thinker

BATCHES = (
    ("read",),
    ("pay",),
    ("pay", "read"),
    ("read", "pay", "put"),
    ("deploy", "pay"),
    ("deploy", "read", "refund"),
    ("ghost", "pay"),
    ("ghost",),
    ("refund", "refund", "read"),
    ("refund",),
    ("ghost", "refund"),
    ("wire", "wire"),
    ("put", "deploy"),
    ("pay", "pay", "pay"),
    ("submit_output",),
    ("read", "submit_output"),
)
DELIVERIES = ("steer", "follow_up", "queue", "steer", "follow_up", "queue", "steer", "interrupt")
STARTS = (
    ("anthropic_messages", "m", "be good"),
    ("anthropic_messages", "m", "be quick"),
    ("anthropic_messages", "m", "be brief"),
    ("anthropic_messages", "other", "be good"),
    ("scripted", "m", "be good"),
    ("scripted", "m", "be quick"),
)
"""Who may be asked, and how; models of the first family bind their state to the instructions."""

VERDICTS = ("happened", "did_not_happen", "abandoned")
PICKS, ARGUMENTS = 240, 84

NUMBER = '{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}'
OLD = (UserMessage(text="before"), AssistantMessage(blocks=(Text(text="hm"), ToolCall(id="pay:0", name="pay", arguments="{}"))))
HISTORY = (*OLD, ToolMessage(tool_call_id="pay:0", text="paid"), AssistantMessage(blocks=(Text(text="so it was"),)))
KINDS: tuple[dict[str, Any], ...] = (
    {},
    {},
    {},
    {"limits": Limits(steps=3, reruns=1, step_attempts=2, repeated_calls=2)},
    {"output_schema": NUMBER},
    {"history": HISTORY},
)
"""What a session may be started with; the first number of a list picks one, and who is asked first."""


class Player:
    """Plays moves on a driver and counts them."""

    def __init__(self, kind: int = 0) -> None:
        options = dict(KINDS[kind % len(KINDS)])
        history = options.pop("history", ())
        self.driver = Thinker(tools=TOOLS, policy=asks_for("put", "deploy"), **options)
        self.asks_as(kind // len(KINDS))
        if history:
            self.driver.supply(history)
        self.counts: Counter[str] = Counter()
        self._made = 0

    def play(self, moves: Sequence[int]) -> None:
        for number in moves:
            pick, argument = divmod(number, ARGUMENTS)
            possible = [move for move in MOVES if move.can(self) for _ in range(move.weight)]
            move = possible[pick % len(possible)]
            self.counts[move.name] += 1
            try:
                move.do(self, argument)
            except Died:
                self.counts["died_in_a_write"] += 1
                self.driver.die()
                if argument % 3:
                    self.resume(0)

    def asks_as(self, number: int) -> None:
        """The next run asks this model, with these instructions."""
        self.driver.family, self.driver.model, self.driver.instructions = STARTS[number % len(STARTS)]

    def key(self) -> str:
        self._made += 1
        return f"key {self._made}"

    @property
    def running(self) -> bool:
        return self.driver.state.run is not None

    @property
    def carried(self) -> bool:
        """Whether a living process carries the run; else it was left by a death."""
        return self.running and not self.driver.fresh

    @property
    def undecided(self) -> tuple[str, ...]:
        run = self.driver.state.run
        step = run.step if run is not None else None
        return () if step is None or run is None or run.ending else tuple(asked.call_key for asked in step.undecided)

    @property
    def owed(self) -> list[str]:
        return [key for key in self.driver.state.owed if key not in self.driver.state.late]

    @property
    def said(self) -> list[str]:
        return sorted(key for key in self.driver.acknowledged if self.driver.state.taken.get(key) != "retracted")

    # what people ask for

    def send(self, _argument: int) -> None:
        key = self.key()
        self.driver.send(key, f"say {key}")

    def send_otherwise(self, argument: int) -> None:
        """To another model, or with other instructions, as all that follow until the next time."""
        self.asks_as(argument)
        self.send(argument)

    def message(self, argument: int) -> None:
        key = self.key()
        self.driver.message(key, f"say {key}", DELIVERIES[argument % len(DELIVERIES)])

    def say_again(self, argument: int) -> None:
        """A delivery that is tried again is answered alike and writes nothing."""
        key = self.said[argument % len(self.said)]
        use, head = self.driver.state.keys[key], self.driver.state.head
        if use.kind == "send":
            self.driver.send(key, f"say {key}")
        else:
            self.driver.message(key, f"say {key}", use.kind)
        assert self.driver.state.head == head

    def retract(self, argument: int) -> None:
        queue = self.driver.state.queue
        self.driver.retract(queue[argument % len(queue)].key)

    def hand_over(self, argument: int) -> None:
        queue = self.driver.state.queue
        self.driver.hand_over(queue[argument % len(queue)].key, DELIVERIES[argument % 2])

    def drain(self, argument: int) -> None:
        self.driver.drain(go_on=argument % 2 == 0)

    def cancel(self, argument: int) -> None:
        self.driver.cancel(("now", "step_boundary")[argument % 2])

    def stop(self, _argument: int) -> None:
        self.driver.stop()

    def decide(self, argument: int) -> None:
        if argument % 7 == 6:
            self.driver.expire(10_000)
            return
        decision = "denied" if argument % 3 == 1 else "approved"
        self.driver.answer_approval(self.undecided[0], decision, arguments='{"n":99}' if argument % 3 == 2 else None)

    def resolve(self, argument: int) -> None:
        calls = self.driver.state.unknown
        call = calls[argument % len(calls)]
        self.driver.resolve(call.call_key, VERDICTS[argument % 3])
        if argument // 3 % 2 == 0:
            self.driver.go_on(call.call_key)

    def deliver(self, argument: int) -> None:
        key, before = self.owed[argument % len(self.owed)], self.driver.state.head
        self.driver.deliver(key, f"late {key[:6]}", is_error=argument % 4 == 3)
        assert self.driver.state.head > before

    # what comes back

    def answer(self, argument: int) -> None:
        names = BATCHES[argument % len(BATCHES)]
        blocks: list[Block] = say(f"text {argument}") if argument % 4 == 0 else [Text(text="so"), *_calls(names, argument)]
        stop = {22: Stop.MAX_TOKENS, 23: Stop.REFUSAL}.get(argument % 24, Stop.END_TURN)
        self.driver.answer(blocks, stop, _notes(len(names), argument) if argument % 4 else ())

    def think(self, argument: int) -> None:
        """The model answers with state that only it understands."""
        blocks = say(f"thought {argument}") if argument % 2 else _calls(BATCHES[argument % len(BATCHES)], argument)
        self.driver.answer([self.driver.thought, *blocks])

    def refuse(self, _argument: int) -> None:
        self.driver.fail(failure="opaque_state_rejected", retryable=False)

    def fail(self, argument: int) -> None:
        self.driver.fail(retryable=argument % 4 != 0, retry_after_ms=5000 if argument % 2 else None)

    def refuse_key(self, _argument: int) -> None:
        refuse_key(self.driver)

    def leave(self, _argument: int) -> None:
        leave(self.driver)

    def back_all(self, _argument: int) -> None:
        self.driver.back()

    def back_one(self, argument: int) -> None:
        at = sorted(self.driver.flying)[argument % len(self.driver.flying)]
        how = argument % 7
        if how == 0:
            self.driver.back(held=[at])
        elif how == 1:
            self.driver.back(deferred=[at])
        else:
            self.driver.back({at: self._settlement(at, how)})

    def _settlement(self, at: int, how: int) -> Settlement:
        once = self.driver.spec_of(at).effect is Effect.ONCE
        if how == 2 and once:
            return unknown()
        if how == 3:
            return bad("card declined")
        return good("", terminate=True) if how == 4 else good(f"result {at}")

    def asked(self, argument: int) -> None:
        never = Settlement(outcome=Outcome.COMPLETED, is_error=True, text="Did not happen.", reason="did_not_happen")
        self.driver.asked((good("it had happened"), never, None)[argument % 3])

    # life and death

    def seal(self, _argument: int) -> None:
        self.driver.seal()

    def die(self, argument: int) -> None:
        self.driver.die()
        if argument % 4:
            self.resume(0)

    def resume(self, _argument: int) -> None:
        try:
            self.driver.resume()
        except Died:
            self.driver.die()

    def tear(self, argument: int) -> None:
        self.driver.tear = argument % 6


def _notes(calls: int, argument: int) -> tuple[HookNote, ...]:
    """What pre-tool hooks say of some of the calls: other arguments, a no, or that they failed."""
    notes: list[HookNote] = []
    for at in range(calls):
        what = {0: "changed", 4: "denied", 7: "failed"}.get((argument + at) % 11)
        if what is not None:
            changed = '{"n":99}' if what == "changed" else None
            notes.append(HookNote(phase="pre_tool", hook="guard", verdict=what, ordinal=at, changed=changed))
    return tuple(notes)


def _calls(names: Sequence[str], argument: int) -> list[ToolCall]:
    """Calls whose ids the model repeats from answer to answer (B08)."""
    n = '"x"' if argument % 5 == 0 else str(argument % 7)
    return [ToolCall(id=f"{name}:{at}", name=name, arguments=f'{{"n":{n}}}') for at, name in enumerate(names)]


class Move(NamedTuple):
    """A move, how often it is taken against the others, and when it is possible."""

    do: Callable[[Player, int], None]
    weight: int
    can: Callable[[Player], bool]

    @property
    def name(self) -> str:
        return self.do.__name__


def _out(p: Player) -> bool:
    return bool(p.driver.flying) and p.driver.asked_about is None


def _takes(p: Player) -> bool:
    run = p.driver.state.run
    return bool(p.driver.state.queue) and run is not None and not run.ending


MOVES = (
    Move(Player.send, 6, lambda p: not p.running),
    Move(Player.send_otherwise, 6, lambda p: not p.running),
    Move(Player.answer, 24, lambda p: p.driver.asking is not None),
    Move(Player.think, 16, lambda p: p.driver.asking is not None),
    Move(Player.refuse, 8, lambda p: p.driver.asking is not None and holds_opaque(p.driver.state)),
    Move(Player.refuse_key, 2, lambda p: p.driver.asking is not None),
    Move(Player.leave, 2, lambda p: p.driver.asking is not None),
    Move(Player.back_one, 16, _out),
    Move(Player.asked, 16, lambda p: p.driver.asked_about is not None),
    Move(Player.decide, 16, lambda p: bool(p.undecided)),
    Move(Player.resume, 16, lambda p: p.running and p.driver.fresh),
    Move(Player.deliver, 10, lambda p: bool(p.owed)),
    Move(Player.resolve, 12, lambda p: bool(p.driver.state.unknown) and not p.running),
    Move(Player.drain, 6, lambda p: not p.running and bool(p.driver.state.queue)),
    Move(Player.tear, 6, lambda p: p.driver.tear is None and not p.driver.idle),
    Move(Player.die, 4, lambda p: True),
    Move(Player.die, 12, lambda p: any(p.driver.spec_of(at).reconciles for at in p.driver.flying)),
    Move(Player.back_all, 6, _out),
    Move(Player.seal, 4, lambda p: p.carried and p.driver.idle),
    Move(Player.fail, 5, lambda p: p.driver.asking is not None),
    Move(Player.message, 8, lambda p: True),
    Move(Player.hand_over, 4, _takes),
    Move(Player.retract, 2, lambda p: bool(p.driver.state.queue)),
    Move(Player.stop, 1, lambda p: p.running),
    Move(Player.cancel, 2, lambda p: p.running),
    Move(Player.say_again, 2, lambda p: bool(p.said)),
)
NAMES = {move.name for move in MOVES}
