"""One effect through one port. Every exception becomes an outcome here; what cannot become one ends this process's run.

Nothing in this module decides: retries, limits and what an unknown means are `core`'s.
"""

import asyncio
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TypeVar

from msgspec import json
from msgspec.structs import replace

from semel.core.details import bounded_details
from semel.core.effects import Answered, CallModel, Deferral, ExchangeFailed, Hold
from semel.core.limits import cut_output
from semel.core.outcomes import (
    Completed,
    DidNotHappen,
    Happening,
    NeverSent,
    NotSent,
    SentButOutcomeUnknown,
    Settlement,
    describe,
    doubted,
    lost,
    settle,
)
from semel.core.plan import offered
from semel.core.prompt import prompt_of
from semel.core.records import ModelAttemptFinished
from semel.core.state import CallState, Run
from semel.core.uncertainty import LostReason
from semel.core.values import Effect, clean_json, clean_text, digest_text, printable
from semel.engine.barrier import Barrier
from semel.engine.cutting import Cut, CutSignal
from semel.engine.deaf import abandon
from semel.engine.feed import Feed, Live
from semel.engine.flight import Back, CameTo, Flight
from semel.engine.hooks import Asker
from semel.engine.kit import Kit
from semel.engine.line import Line
from semel.engine.media import Gave, Loading, kept, outcome_of
from semel.errors import InvariantBroken, StoreError
from semel.ports.model import Answer, Exchange, ModelFailed, Request
from semel.ports.roster import ROSTER
from semel.ports.tool import CANCEL_GRACE_SECONDS, Call, Deferred, Held, Never, ProcessMark, ToolPort
from semel.ports.tool import Happened as DidHappen
from semel.ports.world import Clock

BackT = TypeVar("BackT", bound=Back | None)
_answers = json.Decoder(Answer)
TOLD_CHARS = 400
HANDLE_CHARS_MOST = 200
HELD_REASON_CHARS_MOST = 200
UNSENT = settle(Effect.ONCE, NeverSent(), after_crash=False)
"""A call whose intent is durable and that no process let go."""
MODEL_BROKE = "model_broke"
"""The class of a failure in a model object that is no exchange's: it broke its contract."""


@dataclass(frozen=True, kw_only=True)
class Performer:
    """Performs the effects of one run."""

    barrier: Barrier
    feed: Feed
    clock: Clock
    kit: Kit
    cut: CutSignal = field(default_factory=CutSignal)
    handles: set[str] = field(default_factory=set)
    line: Line = field(init=False)

    def __post_init__(self) -> None:
        """The line of its calls is made with it."""
        object.__setattr__(self, "line", Line(self.barrier, self.feed, self.clock, self.kit.deps))

    async def ask(self, run: Run, effect: CallModel) -> Answered | ExchangeFailed:
        """Wait as long as the effect says, send one request, and tell what came of it. Live text goes to the feed."""
        await self._wait(effect, run.limits.retry_wait_ms)
        self.barrier.check_tenure()
        live = Live(live="text", run_id=run.run_id, step_id=effect.step_id, attempt=effect.attempt, http_attempt=effect.used)
        request: Request | None = None
        try:
            loading = Loading(self.barrier.blobs)
            request = self.kit.model.render(prompt_of(self.barrier.state, run, self.barrier.record, loading))
            answer = await self._stream(request, live)
        except ModelFailed as failure:
            self.feed.publish(_with(live, "discarded"))
            if failure.retryable and effect.used < run.limits.model_retries:
                self.feed.publish(_with(live, "progress", printable(str(failure), limit=TOLD_CHARS)))
            return ExchangeFailed(
                attempt=self._attempt(effect, request, failure.exchange, str(failure.failure)),
                failure=str(failure.failure),
                message=str(failure),
                retryable=failure.retryable,
                used=effect.used,
                retry_after_ms=failure.retry_after_ms,
                provider_code=failure.provider_code,
                details=bounded_details(failure.details),
            )
        except StoreError:
            raise  # the log, or a file of the conversation, cannot be read: the run stays open, for when it is back
        except asyncio.CancelledError:
            self.feed.publish(_with(live, "discarded"))  # what was shown of a request that is given up is withdrawn
            raise
        except Exception as error:  # noqa: BLE001  a model object is foreign code; its run ends with the cause by name
            self.feed.publish(_with(live, "discarded"))
            attempt = self._attempt(effect, request, Exchange(), MODEL_BROKE)
            return ExchangeFailed(
                attempt=attempt, failure=MODEL_BROKE, message=describe(error), retryable=False, used=effect.used
            )
        answered = Answered(
            attempt=self._attempt(effect, request, answer.exchange, "completed"),
            blocks=answer.blocks,
            stop=answer.stop,
            usage=answer.usage,
            raw_stop=answer.raw_stop,
        )
        if not self.kit.hooks.post_assistant and not self.kit.hooks.pre_tool:
            return answered
        hooked = await self._asker(run, effect.step_id).answer(answered, offered(run))
        if hooked.blocks != answered.blocks:
            self.feed.publish(_with(live, "discarded"))  # what was shown as it arrived is not what the log has
        return hooked

    @property
    def is_cut(self) -> bool:
        """Whether no more calls may leave: all was cut short, or a cancel is durable that is about to do that."""
        run = self.barrier.state.run
        return self.cut.reason is not None or (run is not None and run.aborting_now)

    async def send(self, flight: Flight) -> CameTo | None:
        """Run the tool of a call, in this task, to its end; None leaves the call open in the log.

        Then the process is stopping, and what became of the call is for a resume to find out. A known outcome is kept even where
        it comes behind a cancellation.
        """
        self.barrier.check_tenure()
        spec, told = flight.spec, self.line.call(flight, flight.cancelled)
        tool = self.kit.tools[spec.name]
        arguments = told.arguments if isinstance(told.arguments, dict) else {}
        time = None if spec.timeout_ms is None else asyncio.ensure_future(self.clock.sleep(spec.timeout_ms / 1000))
        back = await flight.through(lambda: tool.run(arguments, told), time)
        return self._as_ended(flight, back) if flight.cancelled.is_set() else back

    async def give_up(self, flight: Flight) -> CameTo | None:
        """What is told of a call whose tool is deaf. Its processes are ended before anybody asks what became of it (design 6)."""
        ending = asyncio.ensure_future(self.end_leftovers(flight.call))
        await asyncio.wait({ending}, timeout=2 * CANCEL_GRACE_SECONDS)
        if not ending.done() or ending.exception() is not None:
            ending.cancel()  # what cannot be ended stays in doubt with its call, which is unknown by now
        return self._as_ended(flight, lost(LostReason.TIMEOUT, "the tool did not end when it was told to"))

    def _as_ended(self, flight: Flight, back: CameTo) -> CameTo | None:
        """What a call that was told to end came to, in words that say why it was."""
        if not isinstance(back, SentButOutcomeUnknown):
            return back
        if flight.timed_out:
            return lost(LostReason.TIMEOUT, f"{flight.spec.timeout_ms} ms")
        if self._is_left_open(flight):
            return None
        if self.cut.reason is Cut.CANCELLED:
            return lost(LostReason.CANCELLED, Cut.CANCELLED.value)
        return lost(LostReason.TIMEOUT, (self.cut.reason or Cut.TIME_UP).value)

    def _is_left_open(self, flight: Flight) -> bool:
        """Whether a call that is lost stays open in the log, for a resume to find out about.

        Not a once call for which something still works here: the next process cannot know that, and would believe an answer
        which that makes wrong.
        """
        once = flight.spec.effect is Effect.ONCE
        return self.cut.reason is Cut.LEAVING and not (once and ROSTER.works_for(flight.call.planned.call_key))

    def waits(self, flight: Flight, back: CameTo | None) -> bool:
        """Whether more has to be waited for before what came back is settled: an answer about the call, files, hooks."""
        return (
            isinstance(back, Gave) or bool(self.kit.hooks.post_tool) or (flight.asks and isinstance(back, SentButOutcomeUnknown))
        )

    async def conclude(self, flight: Flight, back: CameTo | None) -> Back | None:
        """Settle what a call came to. A once call that is lost is asked about first, if it can be.

        Where this process leaves before there is an answer, the call stays open, and a resume asks.
        """
        if flight.asks and isinstance(back, SentButOutcomeUnknown):
            back = await self._reconciled(flight, back)
            if isinstance(back, SentButOutcomeUnknown) and self._is_left_open(flight):
                return None
        if isinstance(back, Gave):
            back = await self._kept(flight.run, back)
        return await self._hooked(flight, self.settle(flight, back))

    def settle(self, flight: Flight, back: CameTo | None) -> Back | None:
        """Settle what came back where nothing more has to be waited for."""
        match back:
            case None:
                return None
            case Held():
                return self._hold(back)
            case Gave():
                raise InvariantBroken("files are kept before their call is settled")
            case Deferred():
                refused = self._handle_refused(back)
                if refused is None:
                    return Deferral(handle=back.handle, text=clean_text(back.text))
                back = refused
        again = False
        if flight.call.reruns and isinstance(back, NotSent):  # this time; a process that died may have sent it before
            again, back = True, lost(LostReason.CRASHED, f"run again, it was not sent: {back.text}")
        return _bounded(settle(flight.spec.effect, back, after_crash=again), flight.run)

    def kept_back(self, flight: Flight) -> Settlement | None:
        """What is told of a call that is kept from leaving behind its durable intent: nothing happened, if it never left before.

        One that was to run again may have been sent by the process that died. Where this one is stopping, too, that stays open.
        """
        if not flight.call.reruns:
            return UNSENT
        if self.cut.reason is Cut.LEAVING:
            return None
        return settle(flight.spec.effect, lost(LostReason.CRASHED), after_crash=True)

    async def reconcile(self, flight: Flight) -> Settlement | None:
        """Ask what became of a call that a dead process left behind; it is not sent."""
        happening = await self._reconciled(flight, lost(LostReason.CRASHED))
        if isinstance(happening, SentButOutcomeUnknown) and self._is_left_open(flight):
            return None
        settled = settle(flight.spec.effect, await self._kept(flight.run, happening), after_crash=True)
        return await self._hooked(flight, _bounded(settled, flight.run))

    async def _hooked(self, flight: Flight, back: BackT) -> BackT | Settlement:
        """As the post-tool hooks leave it, within the limit on results."""
        if not isinstance(back, Settlement) or not self.kit.hooks.post_tool:
            return back
        run, step, planned = flight.run, flight.step, flight.call.planned
        arguments = step.arguments(planned.ordinal)
        hooked = await self._asker(run, step.step_id).result(planned.ordinal, planned.tool, arguments, back)
        return _bounded(hooked, run)

    def _asker(self, run: Run, step_id: int) -> Asker:
        session = self.barrier.state.session
        return Asker(
            hooks=self.kit.hooks, clock=self.clock, session=session, context=run.context, run_id=run.run_id, step_id=step_id
        )

    async def end_leftovers(self, call: CallState) -> bool:
        """End what a dead process left running for this call; True if something was ended.

        A process that died right behind the start of another has written nothing down: then the key of the call is all there is.
        """
        process, tool, key = call.process, self.kit.tools.get(call.planned.tool), call.planned.call_key
        if tool is None:
            return False
        mark = self.line.processes.get(key) or ProcessMark(pid=0, started=0, boot="", call_key=key)
        if process is not None:
            mark = ProcessMark(pid=process.pid, started=process.started, boot=process.boot, call_key=key)
        return await tool.end_leftovers(mark)

    def _hold(self, held: Held) -> Hold:
        """As it is recorded; interim content never is (R29)."""
        return Hold(
            module="tool",
            reason=printable(str(held.reason), limit=HELD_REASON_CHARS_MOST),
            held_at_ms=self.clock.now_ms(),
            detail_digest=None if held.detail is None else digest_text(json.encode(clean_json(held.detail)).decode()),
            until_ms=None if held.until is None else int(held.until * 1000),
        )

    def _handle_refused(self, deferred: Deferred) -> Completed | None:
        """A handle names one call of its session: two calls under one would make the later result anybody's."""
        handle = deferred.handle
        fits = isinstance(handle, str) and 0 < len(handle) <= HANDLE_CHARS_MOST and handle == clean_text(handle)
        if fits and handle not in self.barrier.state.handles and handle not in self.handles:
            self.handles.add(handle)
            return None
        why = "is used by another call" if fits else f"is no text of 1 to {HANDLE_CHARS_MOST} characters"
        return Completed(text=f"The tool ran, but its result cannot be awaited: the handle {why}.", is_error=True)

    async def _wait(self, effect: CallModel, most_ms: int) -> None:
        """No wait is decided that is longer than `most_ms`, so a clock that was set back since then cannot make it longer."""
        due_ms = 0 if effect.not_before_ms is None else min(effect.not_before_ms - self.clock.now_ms(), most_ms)
        wait_ms = max(effect.delay_ms, due_ms)
        if wait_ms > 0:
            await self.clock.sleep(wait_ms / 1000)

    async def _stream(self, request: Request, live: Live) -> Answer:
        async with aclosing(self.kit.model.stream(request)) as chunks:
            async for chunk in chunks:
                if isinstance(chunk, Answer):
                    return _answers.decode(json.encode(chunk))  # raises here what no log could hold
                self.feed.publish(_with(live, "text", chunk.text))
        raise InvariantBroken(f"the stream of {self.kit.model.bundle.model} ended with neither an answer nor an error")

    def _attempt(self, effect: CallModel, request: Request | None, exchange: Exchange, outcome: str) -> ModelAttemptFinished:
        return ModelAttemptFinished(
            step_id=effect.step_id,
            attempt=effect.attempt,
            http_attempt=effect.used,
            request_body_len=len(request.body) if request else 0,
            request_body_sha256=request.sha256 if request else "",
            response_body_len=exchange.response_body_len,
            outcome=outcome,
            ts_ms=self.clock.now_ms(),
            response_body_sha256=exchange.response_body_sha256,
            http_status=exchange.http_status,
            content_type=exchange.content_type,
        )

    async def _kept(self, run: Run, happening: Happening | Gave) -> Happening:
        """With its files kept, where it has some: behind the call, so that no timeout of it cuts that short."""
        if isinstance(happening, Gave):
            return await kept(happening, self.barrier.blobs, run.limits.result_bytes)
        return happening

    async def _reconciled(self, flight: Flight, unknown: SentButOutcomeUnknown) -> Happening | Gave:
        """What the outside says of the call; what it cannot say, in time or at all, stays unknown.

        That it never happened is not believed where something could still act for the call when that was asked: it may yet come.
        That it did happen is believed: nothing that comes later undoes it, and the call is not sent again.
        """
        tool = self.kit.tools.get(flight.spec.name)
        if tool is None or self.cut.leaving.done():
            return unknown  # a run that is closed without its agent, or a process that asks nothing any more
        works = ROSTER.works_for(flight.call.planned.call_key)
        asking = asyncio.ensure_future(_answer(tool, self.line.call(flight, asyncio.Event())))
        timer = asyncio.ensure_future(self.clock.sleep(flight.run.limits.reconcile_ms / 1000))
        try:
            await asyncio.wait((asking, timer, self.cut.leaving), return_when=asyncio.FIRST_COMPLETED)
            found = asking.result() or unknown if asking.done() else unknown
            return doubted(unknown) if works and isinstance(found, DidNotHappen) else found
        finally:
            timer.cancel()
            asking.cancel()
            await asyncio.wait({asking}, timeout=CANCEL_GRACE_SECONDS)
            abandon(asking, f"reconcile of tool {flight.spec.name}")


async def _answer(tool: ToolPort, call: Call[object]) -> Happening | Gave | None:
    """None where the outside cannot tell; an error while asking tells nothing either."""
    try:
        found = await tool.reconcile(call)
    except BaseException:  # noqa: BLE001  a failed question leaves the outcome as unknown as it was
        return None
    match found:
        case DidHappen(output=output):
            return outcome_of(output)
        case Never():
            return DidNotHappen()
        case _:
            return None


def _bounded(settled: Settlement, run: Run) -> Settlement:
    text = cut_output(settled.text, run.limits.result_bytes)
    return settled if text is settled.text else replace(settled, text=text)


def _with(live: Live, kind: str, text: str = "", call_key: str | None = None) -> Live:
    return replace(live, live=kind, text=text, call_key=call_key)
