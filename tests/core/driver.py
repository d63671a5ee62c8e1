"""A session on the pure core that takes commands, outcomes and deaths in any order, and an oracle of all that left it.

A death drops what is in memory: what is being asked, what is in flight. A write can be torn: of the records of one commit only
the first survive, and none of its effects was released. The oracle stands outside: each request by the step it was for, each
dispatch by its call key, each call that some record has settled, each message that was acknowledged.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec.structs import replace

from semel.core.ceiling import dispensable, reserve_bytes
from semel.core.decide import (
    answer_approval,
    cancel,
    continue_run,
    decide,
    deliver_message,
    deliver_result,
    due_message,
    expire_approvals,
    hand_over,
    known_delivery,
    resolve,
    retract,
    route,
    seal,
    send,
    stop,
    supply_history,
)
from semel.core.effects import (
    AnswerApproval,
    Answered,
    CallModel,
    CameBack,
    Cancel,
    Decision,
    Deferral,
    DeliverResult,
    Dispatch,
    ExchangeFailed,
    Hold,
    Interrupt,
    Message,
    Outcome,
    Reconcile,
    Resolve,
    Send,
    StopAsking,
    StopRun,
    UnderWay,
)
from semel.core.fold import fold
from semel.core.hook_notes import HookNote
from semel.core.limits import Limits
from semel.core.outcomes import Settlement, lost
from semel.core.outcomes import settle as settlement
from semel.core.pairing import fault_of
from semel.core.policy import Policy, allow_all
from semel.core.prompt import prompt_of
from semel.core.records import AgentRef, Config, Record
from semel.core.recover import recover
from semel.core.standing import still_doubtful
from semel.core.state import Session
from semel.core.uncertainty import LostReason
from semel.core.values import Block, Effect, Stop, ToolSpec, Usage
from semel.core.values import Message as Said
from semel.errors import SessionFull
from tests.core.machine import BUNDLE, attempt, good, place_of
from tests.core.writes import Telling, Write, folded, settled_in, size_of

AGENT = AgentRef(name="a")


class Died(BaseException):
    """The process died in the middle of a write."""


@dataclass
class Driver(Telling):
    """One session. `tear` is how many records of the next commit survive; None lets it be whole."""

    tools: Sequence[ToolSpec] = ()
    policy: Policy = allow_all
    limits: Limits = field(default_factory=Limits)
    output_schema: str | None = None
    recover: Callable[..., Decision] = recover
    writes: list[Write] = field(default_factory=list)
    fence: int = 1
    tear: int | None = None
    ceiling_bytes: int | None = None
    asking: CallModel | None = None
    flying: set[int] = field(default_factory=set)
    asked_about: int | None = None
    doubt: frozenset[int] = frozenset()
    fresh: bool = True
    torn: bool = False
    requests: dict[tuple[str, int, bool], bytes] = field(default_factory=dict)
    sent: list[list[Said]] = field(default_factory=list)
    dispatched: Counter[str] = field(default_factory=Counter)
    redispatched: int = 0
    reconciled: Counter[str] = field(default_factory=Counter)
    settled: set[tuple[str, int]] = field(default_factory=set)
    held: list[Record] = field(default_factory=list)
    tool_of: dict[str, str] = field(default_factory=dict)
    acknowledged: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.state = folded(self.writes)
        self.refolded = (len(self.writes), self.state)
        self.settled = {place for write in self.writes for place in settled_in(write.records)}

    # what is asked for

    def send(self, key: str = "k1", text: str = "go", **more: Any) -> None:
        if known_delivery(self.state, key, text, None, more.get("delivery", "send")) is None:
            self._do(send(self.state, self.command(key, text, **more)))
            self.acknowledged[key] = text
            self.fresh = False

    def command(self, key: str, text: str, **more: Any) -> Send:
        config = Config(bundle=BUNDLE, limits=self.limits, output_schema=self.output_schema)
        return Send(key=key, text=text, agent=AGENT, config=config, instructions="be good", tools=tuple(self.tools), **more)

    def message(self, key: str, text: str, delivery: Any) -> None:
        """A message of any delivery, as a face would route it."""
        if known_delivery(self.state, key, text, None, delivery) is not None:
            return
        if route(self.state, delivery) == "send":
            self.send(key, text, delivery=delivery)
            return
        command = Message(key=key, text=text, delivery=delivery, agent=AGENT)
        self._do(deliver_message(self.state, command, self.under_way))
        self.acknowledged[key] = text

    def retract(self, key: str) -> None:
        self._do(retract(self.state, key))

    def hand_over(self, key: str, delivery: Any) -> None:
        self._do(hand_over(self.state, key, delivery))

    def drain(self, *, go_on: bool = False) -> bool:
        """Start the queued message whose turn it is."""
        due = due_message(self.state, go_on=go_on)
        if due is None:
            return False
        text = "\n".join(entry.content.text for entry in due.request.input)  # type: ignore[union-attr]  # messages
        self._do(send(self.state, self.command(due.key, text)))
        return True

    def cancel(self, at: Any = "now") -> None:
        self._do(cancel(self.state, Cancel(at=at), self.under_way))

    def stop(self) -> None:
        self._do(stop(self.state, StopRun()))
        if not self.fresh:
            self.seal()

    def answer_approval(self, call_key: str, decision: Any, arguments: str | None = None) -> None:
        command = AnswerApproval(call_key=call_key, decision=decision, by="t", arguments=arguments)
        self._do(answer_approval(self.state, command, self.under_way, self.policy))

    def expire(self, now_ms: int) -> None:
        self._do(expire_approvals(self.state, now_ms, self.under_way))

    def deliver(self, call_key: str, text: str = "late", **more: Any) -> None:
        command = DeliverResult(call_key=call_key, text=text, **more)
        self._do(deliver_result(self.state, command, self.under_way))

    def resolve(self, call_key: str, verdict: Any, output: str | None = None) -> None:
        self._do(Decision(records=resolve(self.state, Resolve(call_key=call_key, verdict=verdict, by="t", output=output))))

    def go_on(self, call_key: str) -> None:
        self._do(continue_run(self.state, self.command("continue:" + call_key, "Continue."), call_key))

    def supply(self, said: Sequence[Said]) -> None:
        self._do(supply_history(self.state, said, format="test"))

    # what comes back

    def answer(self, blocks: Sequence[Block], stop: Stop = Stop.END_TURN, hooks: tuple[HookNote, ...] = ()) -> None:
        """The model answers; `hooks` are what the agent's hooks said of it."""
        effect = self._asked()
        answered = Answered(
            attempt=attempt(effect, "completed"),
            blocks=tuple(blocks),
            stop=stop,
            usage=Usage(input=10, output=1),
            hooks=hooks,
        )
        self._decide(answered)

    def fail(self, *, retryable: bool = True, retry_after_ms: int | None = None, failure: str = "timeout") -> None:
        effect = self._asked()
        failed = ExchangeFailed(
            attempt=attempt(effect, failure),
            failure=failure,
            message="too slow",
            retryable=retryable,
            used=effect.used,
            retry_after_ms=retry_after_ms,
        )
        self._decide(failed)

    def back(
        self,
        settled: dict[int, Settlement] | None = None,
        *,
        held: Sequence[int] = (),
        deferred: Sequence[int] = (),
    ) -> None:
        """Calls come back; without arguments, all of them, well."""
        if settled is None and not held and not deferred:
            settled = dict.fromkeys(sorted(self.flying), good())
        news = CameBack(
            settled=settled or {},
            held={at: Hold(module="m", reason="busy", held_at_ms=5) for at in held},
            deferred={
                at: Deferral(handle=f"h-{self.key_of(at)[:8]}", text="Accepted; the result comes later.") for at in deferred
            },
        )
        self.flying -= news.settled.keys() | news.held.keys() | news.deferred.keys()
        self.asked_about = None
        self._decide(replace(news, in_flight=frozenset(self.flying)))

    def asked(self, found: Settlement | None = None) -> None:
        """The outside says what became of the call that it was asked about; None if it cannot tell."""
        at = self.asked_about
        assert at is not None
        spec = self.spec_of(at)
        self.flying.discard(at)
        self.back({at: found or settlement(spec.effect, lost(LostReason.CRASHED), after_crash=True)})

    # life and death

    def die(self) -> None:
        """The process is gone; what its log has is folded anew, to what the process knew unless it died in a write."""
        again = self._refold()
        assert self.torn or again == self.state, "the fold of the log is the live state"
        self.torn = False
        self.held.clear()
        self.asking, self.asked_about, self.doubt, self.fresh = None, None, frozenset(), True
        self.flying.clear()
        self.tear = None
        self.fence += 1
        self.state = again

    def _refold(self) -> Session:
        """The fold of the log, made apart from the live state; what an earlier death has folded is not folded again."""
        done, state = self.refolded
        for write in self.writes[done:]:
            state = fold(write.placed(state.head), state)
        self.refolded = (len(self.writes), state)
        return state

    def resume(self) -> None:
        if self.state.run is not None and self.asking is None and not self.flying:
            self._do(self.recover(self.state, self.policy))
            self.fresh = False

    def seal(self) -> None:
        """Nothing is under way and nothing came back."""
        if self.state.run is not None and self.idle:
            self._do(seal(self.state))

    @property
    def under_way(self) -> UnderWay | None:
        """What this process has under way; None where it does not carry the run, which a death has left."""
        if self.fresh and self.state.run is not None:
            return None
        return UnderWay(asking=self.asking is not None, in_flight=frozenset(self.flying), doubt=self.doubt, policy=self.policy)

    @property
    def idle(self) -> bool:
        return self.asking is None and not self.flying

    @property
    def used(self) -> int:
        """The log as the ceiling counts it."""
        return size_of(record for write in self.writes for record in write.records)

    # how it is done

    def _decide(self, outcome: Outcome) -> None:
        self.asking = None
        self._do(decide(self.state, outcome, doubt=self.doubt, now_ms=0, policy=self.policy))

    def _asked(self) -> CallModel:
        assert self.asking is not None
        return self.asking

    def _do(self, decision: Decision) -> None:
        """Commit, then release."""
        self._commit(decision)
        self.held += decision.held
        self.doubt = still_doubtful(self.state.run, self.doubt, decision.doubt)
        for effect in decision.effects:
            self._release(effect)
        if self.state.run is None:
            assert self.idle, "a run ends with nothing under way"

    def _commit(self, decision: Decision) -> None:
        if not decision.records:
            return
        records, self.held = [*self.held, *decision.records], []
        if not self._fits(records):
            records = [record for record in records if not dispensable(record)]
            if not self._fits(records):
                raise SessionFull("full")
        kept = len(records) if self.tear is None else min(self.tear, len(records))
        torn = self.tear is not None
        self.tear = None
        self.settled |= settled_in(records[:kept])
        if torn:
            self.torn = True
            if kept:
                self.writes.append(Write(records[:kept], kept == len(records), self.fence))
            raise Died
        write = Write(records, True, self.fence)
        self.state = fold(write.placed(self.state.head), self.state)
        self.writes.append(write)

    def _fits(self, records: list[Record]) -> bool:
        if self.ceiling_bytes is None:
            return True
        after = fold(Write(records, whole=True, fence=self.fence).placed(self.state.head), self.state)
        return self.used + size_of(records) + reserve_bytes(after) <= self.ceiling_bytes

    def _release(self, effect: object) -> None:
        match effect:
            case CallModel():
                self._ask(effect)
            case Dispatch(ordinals=ordinals):
                for at in ordinals:
                    self._leaves(at)
                self.flying.update(ordinals)
            case Reconcile(ordinal=at):
                self._unsettled(at)
                self.reconciled[self.key_of(at)] += 1
                self.flying.add(at)
                self.asked_about = at
            case StopAsking():
                self.asking = None
            case Interrupt(ordinals=ordinals):
                assert set(ordinals) <= self.flying
            case _:
                raise AssertionError(effect)

    def _leaves(self, at: int) -> None:
        """A call leaves: not one that is settled, and a once call for the first time."""
        key, spec = self.key_of(at), self.spec_of(at)
        self._unsettled(at)
        self.redispatched += key in self.dispatched
        self.dispatched[key] += 1
        self.tool_of[key] = spec.name
        assert self.dispatched[key] == 1 or spec.effect is not Effect.ONCE, "a once call leaves once"
        assert self._call(at).intent, "the intent is in the log before the call leaves"

    def _unsettled(self, at: int) -> None:
        assert (self._batch_id, at) not in self.settled, "nothing that is settled is dispatched or asked about"

    @property
    def _batch_id(self) -> str:
        return str(self.state.run.step.batch.batch_id)  # type: ignore[union-attr]  # there while a batch is open

    def _ask(self, effect: CallModel) -> None:
        """A request leaves. It keeps the history contract, repeats what an earlier attempt sent, and tells no unknown."""
        run = self.state.run
        assert run is not None
        assert not run.aborting
        prompt = prompt_of(self.state, run, self.find)
        said = list(prompt.messages)
        fault = fault_of(said)
        assert fault is None, fault
        assert said[-1] is not None
        body = msgspec.json.encode([prompt.instructions, prompt.tools, said])
        place = place_of(run, effect.step_id)
        assert self.requests.setdefault(place, body) == body, "an attempt of a step sends what the first one sent"
        assert not any(call.run_id == run.run_id for call in self.state.unknown), "no model of a run sees its unknown call"
        self.sent.append(said)
        self.asking = effect

    def key_of(self, at: int) -> str:
        return self._call(at).planned.call_key

    def spec_of(self, at: int) -> ToolSpec:
        assert self.state.run is not None
        spec = self.state.run.tool(self._call(at).planned.tool)
        assert spec is not None
        return spec

    def _call(self, at: int) -> Any:
        return self.state.run.step.batch.calls[at]  # type: ignore[union-attr]  # there while a batch is open
