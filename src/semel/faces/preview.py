"""The next request of a session, rendered and not sent (P4): what its frozen bundle makes of its log."""

from dataclasses import dataclass

from semel import wiring
from semel.core.decide import seal, send
from semel.core.effects import CallModel, Decision, Send
from semel.core.fold import fold
from semel.core.frame import Frame, incomplete
from semel.core.open_log import state_of
from semel.core.prompt import prompt_of
from semel.core.recover import recover
from semel.core.state import Logged, Run, Session
from semel.core.values import Bundle, clean_text
from semel.engine.media import Loading
from semel.errors import OutcomePending, UnknownSession, need
from semel.faces.views import SessionView, view_of
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
    if state.run is not None:
        state, asks = _gone_on(state)
    ahead = state if asks else _next_run(view, state, text)
    run = need(ahead.run, "a state that asks the model has an open run")
    model = wiring.model_frozen(run.config.bundle, {}, clock)
    request = model.render(prompt_of(ahead, run, Loading(store.blobs(session))))
    return Preview(bundle=run.config.bundle, request=request, placeholder=not asks and text is None)


def _gone_on(state: Session) -> tuple[Session, bool]:
    """The state that a resume would bring about first, and whether it asks the model then."""
    run = need(state.run, "an open run goes on")
    if run.step is not None and run.step.answer is None and not run.aborting:
        return state, True
    decision = recover(state)
    ahead = _ahead(state, decision)
    if any(isinstance(effect, CallModel) for effect in decision.effects) or ahead.run is None:
        return ahead, ahead.run is not None
    end = Decision() if decision.effects else seal(ahead)  # a call is unknown: the next request is that of the next run
    if not end.records:
        raise OutcomePending(
            f"the next request of session {state.session!r} depends on calls of step {run.step.step_id if run.step else 0} that "
            f"are still open; `semel explain {state.session}` says what each waits for"
        )
    return _ahead(ahead, end), False


def _next_run(view: SessionView, state: Session, text: str | None) -> Session:
    """The state in which a next run, frozen like the last one, asks for the first time."""
    last = _last_run(view, state)
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
    return _ahead(state, send(state, command))


def _last_run(view: SessionView, state: Session) -> Run:
    """The newest run as it was before its end: what it was frozen to."""
    if view.state.run is not None:
        return view.state.run
    ended = state.ended.get(state.newest) if state.newest else None
    if ended is None:
        raise UnknownSession(f"session {state.session!r} has no run yet, so there is no request to show")
    frames: tuple[Frame, ...] = tuple(frame for frame in view.frames if frame.seq < ended.head)
    before = state_of(frames, incomplete(view.frames), state.session)
    return need(before.run, "a run is open until its end")


def _ahead(state: Session, decision: Decision) -> Session:
    at, fence = state.last_at_ms, state.last_fence
    return fold(
        (
            Logged(seq=state.head + place, at_ms=at, fence=fence, record=record)
            for place, record in enumerate(decision.records, start=1)
        ),
        state,
    )
