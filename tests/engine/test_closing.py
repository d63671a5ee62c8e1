"""HAZ2: in every state that a log can end in, what closes the session takes no more room than the reserve of that state."""

from collections import Counter
from pathlib import Path

import pytest

from semel.core.ceiling import SESSION_TOO_LARGE, framed_bytes, reserve_bytes
from semel.core.closing import closings
from semel.core.codec import encode
from semel.core.effects import Decision
from semel.core.fold import fold
from semel.core.frame import incomplete
from semel.core.open_log import state_of
from semel.core.state import Logged, Session
from tests.engine.fakes import call, script_file
from tests.engine.test_parking import whole_log

pytestmark = pytest.mark.anyio


def applied(state: Session, decision: Decision) -> Session:
    places = (
        Logged(seq=state.head + at, at_ms=state.last_at_ms, fence=state.last_fence, record=record)
        for at, record in enumerate(decision.records, 1)
    )
    return fold(places, state)


def room(decision: Decision) -> int:
    return sum(framed_bytes(len(json), requires) for json, requires in map(encode, decision.records))


async def test_the_last_closing_of_every_prefix_fits_into_its_reserve_and_ends_the_run(tmp_path: Path) -> None:
    batch = {"calls": [call("pay"), call("look"), call("nothing"), call("pay")]}
    frames = await whole_log(script_file(tmp_path / "m.json", {"text": "half", **batch}, batch, {"text": "done"}))
    ends: Counter[str] = Counter()
    for kept in range(2, len(frames) + 1):
        torn = incomplete(frames[:kept])
        state = state_of(frames[:kept], torn, "s")
        rounds = 0
        while state.run is not None:
            rounds += 1
            *_, last = closings(state, None, None)
            after = applied(state, last)
            assert room(last) + reserve_bytes(after) <= reserve_bytes(state), (kept, rounds)
            state = after
        ended = state.ended[state.newest or ""]
        ends[f"{ended.reason}, {rounds} writes{', torn' if torn else ''}"] += 1
        if rounds:
            code = ended.error.code if ended.error else None
            assert (ended.reason, code) in {("error", SESSION_TOO_LARGE), ("interrupted", None)}
    print(f"{ends.total()} prefixes: {dict(ends)}")
    assert ends.total() >= 30
