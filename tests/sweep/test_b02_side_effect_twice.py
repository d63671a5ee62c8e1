"""B02: a side effect that a resume repeats. At each of the points B to E it happens at most once. (A needs approvals.)

B: the intent is durable, nothing was sent. C: the tool has acted, its result is not recorded. D: the record of the result is half
written. E: the result is durable, and the model was not asked yet.
"""

from pathlib import Path

import pytest

from semel.adapters.file.store import FileStore
from semel.adapters.system import SystemClock
from semel.core.features import KNOWN
from tests.sweep.lives import KILLED, Lives, Uncut, check, facts, view
from tests.sweep.reference import ACTIONS, SESSION

# Behind the floor's unlock the log's own calls follow: write and sync of the intents, of the first return, of the commit.
INTENTS_SYNCED, RETURN_WRITTEN, COMMIT_SYNCED = 2, 3, 6


def charges(place: Path) -> int:
    return sum(fact["tool"] == "charge" for fact in facts(place / ACTIONS))


@pytest.mark.parametrize(
    ("point", "behind_floor", "when", "acted", "end"),
    [
        ("B", INTENTS_SYNCED, "exit", 0, 3),
        ("C", RETURN_WRITTEN, "entry", 1, 3),
        ("E", COMMIT_SYNCED, "exit", 1, 0),
    ],
)
def test_b02_the_effect_happens_at_most_once(
    point: str, behind_floor: int, when: str, acted: int, end: int, lives: Lives, uncut: Uncut, tmp_path: Path
) -> None:
    at = uncut.calls.index("unlock") + 1 + behind_floor
    lives.requests()
    assert lives.live(tmp_path, f"{at}:{when}") == KILLED
    assert charges(tmp_path) == acted, point
    assert lives.live(tmp_path) == end
    assert charges(tmp_path) == acted
    check(tmp_path, uncut, lives.requests())
    assert [call.tool for call in view(tmp_path).state.unknown] == (["charge"] if end == 3 else [])


def test_b02_d_a_half_written_result_is_cut_and_the_outcome_is_unknown(lives: Lives, uncut: Uncut, tmp_path: Path) -> None:
    lives.requests()
    assert lives.live(tmp_path) == 0
    log = FileStore(tmp_path / "state", SystemClock(), known=KNOWN).log_path(SESSION)
    data = log.read_bytes()
    returned = data.index(b'{"type":"tool_call_returned"')
    log.write_bytes(data[: returned + 40])  # as if the process had died within this write
    log.with_name("status.json").unlink()  # which no later witness contradicts
    assert lives.live(tmp_path) == 3
    assert charges(tmp_path) == 1
    assert [call.tool for call in view(tmp_path).state.unknown] == ["charge"]
    torn = list(log.parent.glob("wal.torn-*"))
    assert [path.read_bytes() for path in torn] == [data[data.rindex(b"\n", 0, returned) + 1 : returned + 40]]
