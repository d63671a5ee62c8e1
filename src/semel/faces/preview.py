"""The next request of a session, rendered and not sent (P4): what its frozen bundle makes of its log."""

from collections.abc import Mapping
from dataclasses import dataclass

from semel import wiring
from semel.core.codec import decode
from semel.core.decide import seal, send
from semel.core.effects import CallModel, Decision, Send
from semel.core.fold import ahead
from semel.core.frame import Frame
from semel.core.open_log import Opening
from semel.core.places import FindRecord
from semel.core.prompt import prompt_of
from semel.core.records import Record
from semel.core.recover import recover
from semel.core.state import Run, Session
from semel.core.transcript import messages_of
from semel.core.values import Bundle, clean_text
from semel.engine.media import Loading
from semel.errors import OutcomePending, UnknownSession, command, need
from semel.faces.views import view_of
from semel.ports.log import SessionStore
from semel.ports.model import Request
from semel.ports.world import Clock

PLACEHOLDER = "<the next message>"
_KEY = "the next message\x00"  # no key that a caller may use


@dataclass(frozen=True, kw_only=True)
class Preview:
    """A request that was not sent. `placeholder` says that it stands for a message that nobody has given yet."""

    bundle: Bundle
    request: Request
    placeholder: bool


def preview_of(store: SessionStore, session: str, clock: Clock, text: str | None = None) -> Preview:
    """The next request: that of the open run, or of the next run with this message.

    Raises OutcomePending while it depends on a call that is open or waits for somebody, and what `view_of` raises.
    """
    view = view_of(store, session)
    state, asks = view.state, False
    told: dict[int, Record] = {}
    if state.run is not None:
        state, asks = _gone_on(state, told)
    coming = state if asks else _next_run(store, view.state, state, text, told)
    run = need(coming.run, "a state that asks the model has an open run")
    model = wiring.model_frozen(run.config.bundle, {}, clock)
    prompt = prompt_of(coming, run, _finding(store, coming, told), Loading(store.blobs(session)))
    request = model.render(prompt)
    return Preview(bundle=run.config.bundle, request=request, placeholder=not asks and text is None)


def _finding(store: SessionStore, coming: Session, told: Mapping[int, Record]) -> FindRecord:
    """Finds the records that the request shows: those of `told`, and of the log these alone, so that the rest is not kept."""
    shown = messages_of(coming, told.get).records
    kept: dict[int, Frame] = {}
    store.read(coming.session, take=lambda frames: kept.update((frame.seq, frame) for frame in frames if frame.seq in shown))
    return lambda seq: told[seq] if seq in told else decode(kept[seq])


def _gone_on(state: Session, told: dict[int, Record]) -> tuple[Session, bool]:
    """The state that a resume would bring about first, and whether it asks the model then. `told` gets the records of that."""
    run = need(state.run, "an open run goes on")
    if run.step is not None and run.step.answer is None and not run.aborting:
        return state, True
    decision = recover(state)
    coming = _ahead(state, decision, told)
    if any(isinstance(effect, CallModel) for effect in decision.effects) or coming.run is None:
        return coming, coming.run is not None
    end = Decision() if decision.effects else seal(coming)  # a call is unknown: the next request is that of the next run
    if not end.records:
        raise OutcomePending(
            f"the next request of session {state.session!r} depends on calls of step {run.step.step_id if run.step else 0} that "
            f"are still open; {command('explain', state.session)} says what each waits for"
        )
    return _ahead(coming, end, told), False


def _next_run(store: SessionStore, logged: Session, state: Session, text: str | None, told: dict[int, Record]) -> Session:
    """The state in which a next run, frozen like the last one, asks for the first time."""
    last = logged.run or _last_run(store, state)
    message = PLACEHOLDER if text is None else clean_text(text)
    command = Send(
        key=_KEY,
        text=message,
        agent=last.agent,
        config=last.config,
        instructions=last.instructions,
        tools=last.tools,
        context=last.context,
    )
    return _ahead(state, send(state, command), told)


def _last_run(store: SessionStore, state: Session) -> Run:
    """The newest run as it was before its end: what it was frozen to."""
    ended = state.ended.get(state.newest) if state.newest else None
    if ended is None:
        raise UnknownSession(f"session {state.session!r} has no run yet, so there is no request to show")
    before = Opening(state.session)
    store.read(state.session, take=lambda frames: before.take([frame for frame in frames if frame.seq < ended.head]))
    return need(before.state().run, "a run is open until its end")


def _ahead(state: Session, decision: Decision, told: dict[int, Record]) -> Session:
    told.update(enumerate(decision.records, start=state.head + 1))
    return ahead(state, decision.records)
