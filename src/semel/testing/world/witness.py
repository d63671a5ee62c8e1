"""What has left the process and what it has promised, held outside of it, and held against the device at that very moment."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import json

from semel.core.open_log import finding
from semel.core.prompt import prompt_of
from semel.core.state import Session
from semel.core.values import AssistantMessage, Effect, Prompt, ToolMessage, ToolSpec
from semel.errors import CorruptLog, SemelError
from semel.ports.model import ModelPort, Request
from semel.ports.tool import Call
from semel.testing.world.fate import Fate
from semel.testing.world.follower import Follower, Shrunk
from semel.testing.world.medium import Medium


class Witness:
    """The oracle of a world. Each check that fails is a breach, under the name of the invariant."""

    def __init__(self, medium: Medium, fate: Fate) -> None:
        """Nothing has happened. `checked` counts the checks that had something to look at."""
        self.breaches: list[tuple[str, str]] = []
        self.process_is_dead = False
        self.checked: Counter[str] = Counter()
        self.dispatched: Counter[str] = Counter()
        self.acted: Counter[str] = Counter()
        self.known: set[str] = set()  # calls of the cast, whose actions are told here
        self.never: set[str] = set()
        self.tools: dict[str, ToolSpec] = {}
        self.accepted: dict[tuple[str, str], str] = {}
        self._seen: dict[tuple[str, int], bytes] = {}
        self._bodies: dict[tuple[str, str, int], bytes] = {}
        self._followers: dict[str, Follower] = {}
        self._medium, self._fate = medium, fate

    def hold(self, invariant: str, truth: bool, what: str) -> None:  # noqa: FBT001  reads as a sentence: hold("I3", count < 2, ...)
        """Count a check, and keep the breach where it fails."""
        self.checked[invariant] += 1
        if not truth:
            self.breach(invariant, what)

    def breach(self, invariant: str, what: str) -> None:
        """A promise was broken."""
        if self.process_is_dead:  # what its remains would still do, nobody sees
            return
        self.breaches.append((invariant, what))
        self._fate.tell("BREACH", f"{invariant}: {what}")

    def follower(self, session: str) -> Follower:
        """Who follows a session."""
        found = self._followers.get(session)
        if found is None:
            found = self._followers[session] = Follower(self._medium, session)
        return found

    def durable(self, session: str) -> Session:
        """The state of what the device has; a log that shrank, or that nobody can have written, is a breach."""
        follower = self.follower(session)
        try:
            return follower.look()
        except Shrunk as error:
            self.breach("I1", str(error))
        except (CorruptLog, SemelError) as error:
            self.breach("I7", f"the log of {session!r} does not fold: {error}")
        return Session(session=session)

    def durable_head(self, session: str) -> int:
        """The highest seq that the device has."""
        self.durable(session)
        return self.follower(session).head

    # -- what leaves the process

    def dispatching(self, call: Call[Any], spec: ToolSpec) -> None:
        """A call leaves: its intent is durable, and a once call leaves once."""
        state = self.durable(call.session)
        run = state.run
        batch = run.step.batch if run is not None and run.run_id == call.run_id and run.step is not None else None
        found = batch.calls[call.ordinal] if batch is not None and call.ordinal < len(batch.calls) else None
        intended = found is not None and found.planned.call_key == call.key and found.intent
        self.hold("I4", intended, f"{call.tool} {call.key[:8]} left without a durable intent")
        self.hold("I4", found is not None and not found.terminal, f"{call.tool} {call.key[:8]} left although it has its outcome")
        ending = run is not None and run.aborting_now
        self.hold("Q", not ending, f"{call.tool} {call.key[:8]} left behind the cancel of its run")
        self.dispatched[call.key] += 1
        self.tools[call.key] = spec
        if spec.effect is Effect.ONCE:
            self.hold("I3", self.dispatched[call.key] == 1, f"once call {call.tool} {call.key[:8]} left the process again")

    def act(self, key: str, tool: str) -> bool:
        """An action takes effect in the world; False where the outside has promised that it never will."""
        if key in self.never:
            return False
        self.acted[key] += 1
        self._fate.tell("world", f"{tool} {key[:8]} takes effect")
        spec = self.tools.get(key)
        if spec is None or spec.effect is Effect.ONCE:
            self.hold("I3", self.acted[key] == 1, f"{tool} {key[:8]} took effect {self.acted[key]} times")
        return True

    def asking(self, model: ModelPort, request: Request, prompt: Prompt | None) -> None:
        """A request leaves: all in it is durable, its step never asked otherwise, and a provider would take it."""
        where = self._step_of(model, request)
        self.hold("I4", where is not None, "a request left that holds what is not durable")
        if prompt is not None:
            fault = fault_of(prompt)
            self.hold("I9", fault is None, f"a request that no provider takes: {fault}")
        if where is None:
            return
        session, run_id, step_id = where
        state = self.durable(session)
        known = [call.call_key[:8] for call in state.unknown if call.run_id == run_id]
        self.hold("P3", not known, f"a model is asked although the outcome of {known} of its run is unknown")
        first = self._bodies.setdefault(where, request.body)
        self.hold("I8", first == request.body, f"step {step_id} of run {run_id[:8]} asks otherwise than before")

    def _step_of(self, model: ModelPort, request: Request) -> tuple[str, str, int] | None:
        for session in self._followers:
            state = self.durable(session)
            run = state.run
            if run is None or run.step is None or run.step.answer is not None:
                continue
            if model.render(prompt_of(state, run, finding(self.follower(session).frames))).body == request.body:
                return session, run.run_id, run.step.step_id
        return None

    # -- what was promised

    def accepts(self, session: str, key: str, run_id: str) -> None:
        """A delivery was answered: it is durable, and asked again it has the same answer."""
        use = self.durable(session).keys.get(key)
        self.hold("I1", use is not None, f"{key!r} was answered and is not durable")
        self.hold("I1", self.accepted.setdefault((session, key), run_id) == run_id, f"{key!r} was answered with two runs")

    def retracted(self, session: str, key: str) -> None:
        """That a message was taken back was answered."""
        self.hold("I1", self.durable(session).taken.get(key) == "retracted", f"that {key!r} was taken back is not durable")

    def cancelled(self, session: str, run_id: str) -> None:
        """A cancel was answered: it is durable, or the run has ended."""
        state = self.durable(session)
        asked = state.run is not None and state.run.run_id == run_id and state.run.aborting
        self.hold("I1", asked or run_id in state.ended, f"the cancel of run {run_id[:8]} is not durable")

    def stopped(self, session: str, run_id: str) -> None:
        """A stop was answered: it is durable, or the run has ended or is to end anyway."""
        state = self.durable(session)
        asked = state.run is not None and state.run.run_id == run_id and state.run.ending
        self.hold("I1", asked or run_id in state.ended, f"the stop of run {run_id[:8]} is not durable")

    def delivered(self, session: str, call_key: str) -> None:
        """The result of a call that waited was answered."""
        self.hold("I1", call_key in self.durable(session).late, f"the result of {call_key[:8]} is not durable")

    def resolved(self, session: str, call_key: str) -> None:
        """A verdict was answered."""
        self.hold("I1", call_key in self.durable(session).resolved, f"the verdict on {call_key[:8]} is not durable")

    def saw(self, session: str, seq: int, payload: bytes) -> None:
        """Somebody was shown a record: it is durable, and it is the same for everybody and for ever."""
        self.durable(session)
        frames = self.follower(session).frames
        there = seq < len(frames) and frames[seq].payload == payload
        self.hold("I10", there, f"record {seq} of {session!r} was shown and is not on the device like that")
        self._seen[session, seq] = payload

    def saw_event(self, session: str, event: Mapping[str, Any], before: int) -> None:
        """A reader was told of a record behind the one at `before`."""
        seq = event["seq"]
        self.hold("I10", seq == before + 1, f"a reader of {session!r} was told {seq} behind {before}")
        self.durable(session)
        frames = self.follower(session).frames
        there = seq < len(frames) and json.decode(frames[seq].payload) == event["record"]
        self.hold("I10", there, f"record {seq} of {session!r} was told and is not on the device like that")
        if there:
            self._seen[session, seq] = frames[seq].payload

    def rests(self, session: str, live: Session) -> None:
        """A run has come to rest: the state in memory is the fold of the device."""
        self.durable(session)
        follower = self.follower(session)
        folded = follower.states.get(live.head) or follower.opened()
        self.hold("I7", folded == live, f"the live state of {session!r} at {live.head} is not the fold of its log")

    def shown(self) -> Iterator[tuple[str, int, bytes]]:
        """All that anybody was shown."""
        for (session, seq), payload in self._seen.items():
            yield session, seq, payload


def fault_of(prompt: Prompt) -> str | None:
    """What a provider would refuse: it opens with the user, and each call is answered once, directly behind it, in order."""
    owed: list[str] = []
    for at, message in enumerate(prompt.messages):
        if isinstance(message, ToolMessage):
            if not owed or owed.pop(0) != message.tool_call_id:
                return f"message {at} answers {message.tool_call_id!r}, which is not what is owed"
            continue
        if owed:
            return f"in front of message {at} the calls {owed} are not answered"
        if isinstance(message, AssistantMessage):
            if at == 0:
                return "it opens with an answer"
            owed = [call.id for call in message.calls]
            if len(set(owed)) < len(owed):
                return f"message {at} has two calls of one id"
    return f"the calls {owed} are not answered" if owed else None
