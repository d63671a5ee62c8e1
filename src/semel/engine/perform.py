"""One effect through one port. Every exception becomes an outcome here; what cannot become one ends this process's run.

Nothing in this module decides: retries, limits and what an unknown means are `core`'s.
"""

import asyncio
import copy
import threading
from collections.abc import Callable, Coroutine
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, TypeVar

from msgspec import json
from msgspec.structs import replace

from semel.core.arguments import parse_arguments
from semel.core.details import bounded_details
from semel.core.effects import Answered, CallModel, Deferral, ExchangeFailed, Hold
from semel.core.limits import cut_output
from semel.core.outcomes import (
    Completed,
    DidNotHappen,
    Happening,
    NotSent,
    SentButOutcomeUnknown,
    Settlement,
    classify_exception,
    describe,
    lost,
    settle,
)
from semel.core.plan import offered
from semel.core.prompt import prompt_of
from semel.core.records import ModelAttemptFinished, ToolProcess
from semel.core.state import CallState, Run, Step
from semel.core.uncertainty import LostReason
from semel.core.values import JSON, Effect, ToolSpec, clean_json, clean_text, digest_text, printable
from semel.engine.barrier import Barrier
from semel.engine.cutting import Cut, CutSignal
from semel.engine.feed import Feed, Live
from semel.engine.hooks import Asker
from semel.engine.kit import Kit
from semel.engine.media import Gave, Loading, kept, outcome_of
from semel.engine.waiting import first_of
from semel.errors import InvariantBroken, StoreError, need
from semel.ports.model import Answer, Exchange, ModelFailed, Request
from semel.ports.tool import Call, Deferred, Done, Held, Never, ProcessMark, ToolPort
from semel.ports.tool import Happened as DidHappen
from semel.ports.world import Clock

T = TypeVar("T")
_answers = json.Decoder(Answer)
CANCEL_GRACE_SECONDS = 5.0
"""How long a cancelled tool may take to end before it is abandoned and its outcome is unknown (Q13)."""
TOLD_CHARS = 400
HANDLE_CHARS_MOST = 200
HELD_REASON_CHARS_MOST = 200
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
    processes: dict[str, ProcessMark] = field(default_factory=dict)
    handles: set[str] = field(default_factory=set)

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
        hooked = await self._asker(run, effect.step_id).answer(answered, offered(run))
        if hooked.blocks != answered.blocks:
            self.feed.publish(_with(live, "discarded"))  # what was shown as it arrived is not what the log has
        return hooked

    async def call(self, run: Run, step: Step, call: CallState) -> Settlement | Deferral | Hold | None:
        """Dispatch one call and settle what became of it. A once call that is lost is asked about first, if it can be.

        None leaves the call open in the log: the process is stopping, and what became of it is for a resume to find out.
        """
        spec = self._spec(run, call)
        self.barrier.check_tenure()
        back = await self._dispatch(run, step, call, spec)
        match back:
            case None:
                return None
            case Held():
                return self._hold(back)
            case Deferred():
                refused = self._handle_refused(back)
                if refused is None:
                    return Deferral(handle=back.handle, text=clean_text(back.text))
                happening: Happening | Gave = refused
            case _:
                happening = back
        if isinstance(happening, SentButOutcomeUnknown) and spec.effect is Effect.ONCE and spec.reconciles:
            happening = await self._reconciled(run, step, call, happening)
        again = False
        if call.reruns and isinstance(happening, NotSent):  # this time; a process that died may have sent it before
            again, happening = True, lost(LostReason.CRASHED, f"run again, it was not sent: {happening.text}")
        settled = settle(spec.effect, await self._kept(run, happening), after_crash=again)
        return await self._shown(run, step, call, settled)

    async def reconcile(self, run: Run, step: Step, call: CallState) -> Settlement | None:
        """Ask what became of a call that a dead process left behind; it is not sent."""
        happening = await self._reconciled(run, step, call, lost(LostReason.CRASHED))
        if isinstance(happening, SentButOutcomeUnknown) and self.cut.reason is Cut.LEAVING:
            return None
        settled = settle(self._spec(run, call).effect, await self._kept(run, happening), after_crash=True)
        return await self._shown(run, step, call, settled)

    async def _shown(self, run: Run, step: Step, call: CallState, settled: Settlement) -> Settlement:
        """As the model is to read it: within the limit on results, and as the post-tool hooks leave it."""
        settled = _bounded(settled, run)
        if not self.kit.hooks.post_tool:
            return settled
        at = call.planned.ordinal
        hooked = await self._asker(run, step.step_id).result(at, call.planned.tool, step.arguments(at), settled)
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
        mark = self.processes.get(key) or ProcessMark(pid=0, started=0, boot="", call_key=key)
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

    def _spec(self, run: Run, call: CallState) -> ToolSpec:
        return need(run.tool(call.planned.tool), "a dispatchable call names an offered tool")

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

    async def _dispatch(self, run: Run, step: Step, call: CallState, spec: ToolSpec) -> Happening | Gave | Deferred | Held | None:
        """Run the tool to its end, its timeout, or the cut. A known outcome is kept even where it comes behind a cancellation."""
        tool = self.kit.tools[spec.name]
        cancelled = asyncio.Event()
        told = self._told(run, step, call, spec, cancelled)
        arguments = told.arguments if isinstance(told.arguments, dict) else {}
        running = asyncio.create_task(_guarded(tool.run(arguments, told)))
        try:
            timed_out = await self._within(running, spec.timeout_ms)
            if not running.done() and not spec.interruptible:
                await asyncio.wait({running})  # a tool that may not be interrupted is waited for (Q12)
            elif not running.done():
                cancelled.set()
                running.cancel()
                await asyncio.wait({running}, timeout=CANCEL_GRACE_SECONDS)
        except asyncio.CancelledError:
            cancelled.set()
            running.cancel()
            await asyncio.wait({running}, timeout=CANCEL_GRACE_SECONDS)
            raise
        if running.done():
            happening = running.result()
        else:
            await self._end_abandoned(call)
            happening = lost(LostReason.TIMEOUT, "the tool did not end when it was told to")
        if not cancelled.is_set() or not isinstance(happening, SentButOutcomeUnknown):
            return happening
        if not timed_out and self.cut.reason is Cut.LEAVING:
            return None
        if not timed_out and self.cut.reason is Cut.CANCELLED:
            return lost(LostReason.CANCELLED, Cut.CANCELLED.value)
        return lost(LostReason.TIMEOUT, f"{spec.timeout_ms} ms" if timed_out else Cut.TIME_UP.value)

    async def _end_abandoned(self, call: CallState) -> None:
        """End the processes of a tool that is deaf, before anybody asks what became of its call (design 6)."""
        ending = asyncio.ensure_future(self.end_leftovers(call))
        await asyncio.wait({ending}, timeout=2 * CANCEL_GRACE_SECONDS)
        if not ending.done() or ending.exception() is not None:
            ending.cancel()  # what cannot be ended stays in doubt with its call, which is unknown by now

    async def _within(self, running: "asyncio.Future[Any]", timeout_ms: int | None) -> bool:
        """Wait until it ends, its time is up, or everything is cut short. True if its own time is what is up."""
        cut = self.cut.told
        waiting: list[asyncio.Future[Any]] = [running, cut]
        timer = None if timeout_ms is None else asyncio.ensure_future(self.clock.sleep(timeout_ms / 1000))
        if timer is not None:
            waiting.append(timer)
        try:
            await first_of(waiting)
            return timer is not None and timer.done() and not cut.done()
        finally:
            if timer is not None:
                timer.cancel()

    def _told(self, run: Run, step: Step, call: CallState, spec: ToolSpec, cancelled: asyncio.Event) -> Call[object]:
        planned = call.planned
        parsed = parse_arguments(step.arguments(planned.ordinal)) if step.answer else {}

        def progress(text: str) -> None:
            live = Live(live="progress", run_id=run.run_id, step_id=step.step_id, attempt=step.attempt)
            self.feed.publish(_with(live, "progress", text, planned.call_key))

        def spawned(mark: ProcessMark) -> None:
            batch_id = step.batch.batch_id if step.batch else ""
            self.processes[planned.call_key] = mark
            self.barrier.note(
                ToolProcess(batch_id=batch_id, ordinal=planned.ordinal, pid=mark.pid, started=mark.started, boot=mark.boot)
            )

        return Call(
            key=planned.call_key,
            tool=planned.tool,
            session=self.barrier.state.session,
            run_id=run.run_id,
            step_id=step.step_id,
            ordinal=planned.ordinal,
            context=None if run.context is None else copy.deepcopy(run.context),  # a tool cannot change what the next one sees
            deps=self.kit.deps,
            arguments=parsed if isinstance(parsed, dict) else {},
            deadline=None if spec.timeout_ms is None else self.clock.monotonic() + spec.timeout_ms / 1000,
            cancelled=cancelled,
            progress=_in_loop(progress),
            spawned=_in_loop(spawned),
        )

    async def _reconciled(self, run: Run, step: Step, call: CallState, unknown: SentButOutcomeUnknown) -> Happening | Gave:
        """What the outside says of the call; what it cannot say, in time or at all, stays unknown."""
        spec = self._spec(run, call)
        tool = self.kit.tools.get(spec.name)
        if tool is None:
            return unknown  # a run that is closed without its agent
        asking = asyncio.ensure_future(_answer(tool, self._told(run, step, call, spec, asyncio.Event())))
        try:
            await self._within(asking, run.limits.reconcile_ms)
            return asking.result() or unknown if asking.done() else unknown
        finally:
            asking.cancel()
            await asyncio.wait({asking}, timeout=CANCEL_GRACE_SECONDS)


def _in_loop(act: Callable[[T], None]) -> Callable[[T], None]:
    """A plain function runs in a thread of its own: what it tells is handed to the event loop, which wakes up for it."""
    loop, home = asyncio.get_running_loop(), threading.get_ident()

    def told(fact: T) -> None:
        if threading.get_ident() == home:
            act(fact)
        else:
            loop.call_soon_threadsafe(act, fact)

    return told


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


async def _guarded(
    running: "Coroutine[object, object, JSON | Done | Deferred | Held]",
) -> Happening | Gave | Deferred | Held:
    """What a tool's coroutine came to. It runs in a task of its own, which BaseExceptions of the tool may not escape from."""
    try:
        value = await running
    except BaseException as error:  # noqa: BLE001  the one place where whatever a tool raises becomes an outcome
        return classify_exception(error)
    match value:
        case Deferred() | Held():
            return value
        case Done():
            return outcome_of(value.value, terminate=True)
        case _:
            return outcome_of(value)


def _bounded(settled: Settlement, run: Run) -> Settlement:
    text = cut_output(settled.text, run.limits.result_bytes)
    return settled if text is settled.text else replace(settled, text=text)


def _with(live: Live, kind: str, text: str = "", call_key: str | None = None) -> Live:
    return replace(live, live=kind, text=text, call_key=call_key)
