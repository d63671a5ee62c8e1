"""Whatever is done with a long log, memory holds a piece of it: a sound one, a damaged one, one with a tail of 1 GiB of NULs."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from semel.core.frame import Point, encode_frames, encode_lineage, good_frames
from semel.core.records import ApprovalResolved
from semel.ports.log import Payload
from tests.core.golden import encoded
from tests.core.scripts_calls import approval

pytestmark = [pytest.mark.prove, pytest.mark.timeout(1700)]
MIB = 1024 * 1024
LOG_BYTES, RECORD_BYTES = 320 * MIB, 60_000
OVER_MOST = 100 * MIB


def act(what: str, root: Path, target: Path | str | None = None, *, over_most: int = OVER_MOST) -> object:
    """Do it in a process of its own, and hold that to its memory."""
    command = [sys.executable, "-m", "tests.prove.programs.bounded", what, str(root), *([str(target)] if target else [])]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    print(f"{what:8} {found['over'] / MIB:6.1f} MiB over the start: {found['said']}")
    assert found["over"] < over_most, what
    return found["said"]


def long_log(root: Path, front: bytes = b"") -> tuple[Path, int]:
    """A log whose records behind `front` no build knows and every build passes over; returns it and its last seq."""
    place = root / "sessions" / "s"
    for level in (root, root / "sessions", place):
        level.mkdir(mode=0o700)
    log = place / "wal.log"
    _, point = good_frames(front, Point())
    note = Payload(json=json.dumps({"type": "note", "text": "x" * RECORD_BYTES}).encode())
    with log.open("wb") as file:
        file.write(front)
        while point.offset < LOG_BYTES:
            first = [] if point.seq else [Payload(json=encode_lineage("0" * 32, "s"), lineage=True)]
            encoding = encode_frames([*first, note], point, at_ms=10_000, fence=1, synced=max(point.seq - 1, 0))
            file.write(encoding.data)
            point = encoding.point
    log.chmod(0o600)
    return log, point.seq - 1


def test_a_long_log_is_verified_listed_opened_copied_and_restored_in_bounded_memory(tmp_path: Path) -> None:
    root = tmp_path / "state"
    log, head = long_log(root)
    size = log.stat().st_size
    assert act("verify", root) == ["clean", head, 0]
    assert act("listing", root) == [head, None]
    assert act("reopen", root) == head
    assert act("backup", root, tmp_path / "copy") == [head, size]
    assert act("restore", tmp_path / "copy", tmp_path / "restored") == [head, size]
    with log.open("r+b") as file:
        file.truncate(size + 1024 * MIB)  # sparse: it takes no room
    (log.parent / "status.json").unlink(missing_ok=True)
    (root / "index.db").unlink()
    assert act("verify", root) == ["torn", head, 0]
    assert act("listing", root) == [head, None]


@pytest.mark.parametrize(("at", "what"), [(200_000, b"~"), (400 * 512, bytes(512))], ids=["a byte", "a lost sector"])
def test_a_long_log_that_is_damaged_at_its_front_is_told_and_repaired_in_bounded_memory(
    at: int, what: bytes, tmp_path: Path
) -> None:
    root = tmp_path / "state"
    log, head = long_log(root)
    size = log.stat().st_size
    with log.open("r+b") as file:
        file.seek(at)
        file.write(what)
    assert act("verify", root) == ["damaged", 3, head - 3]
    assert act("listing", root) == [0, "log_damaged"]
    assert act("reopen", root) == "log_damaged"
    kept, lost, readable = act("repair", root)  # type: ignore[misc]  # three numbers
    assert (kept, readable) == (3, head - 3)
    assert log.stat().st_size + lost == size
    (aside,) = log.parent.glob("wal.damaged-*")
    assert aside.stat().st_size == lost


def test_a_long_log_is_shown_previewed_and_asked_for_an_answer_in_bounded_memory(tmp_path: Path) -> None:
    writes = approval().writes
    denied, approved, *_ = [one for write in writes for one in write.records if isinstance(one, ApprovalResolved)]
    root = tmp_path / "state"
    _, head = long_log(root, encoded(writes))
    code, runs, size = act("show", root)  # type: ignore[misc]  # three numbers
    assert (code, runs) == (0, 1)
    assert size < 10_000
    model, size = act("preview", root)  # type: ignore[misc]  # a name and a number
    assert model == "m"
    assert size < 10_000
    assert act("answered", root, denied.call_key[:12]) == "denied"
    assert act("answered", root, approved.call_key[:12]) == "approved"
    assert act("answered", root, "0" * 32) is None
    assert act("keep", root, over_most=2 * LOG_BYTES) == head + 1


def test_a_long_story_is_shown_in_bounded_memory_run_by_run(tmp_path: Path) -> None:
    root = tmp_path / "state"
    runs = act("tell", root, str(LOG_BYTES))
    code, shown, size = act("show", root)  # type: ignore[misc]  # three numbers
    assert (code, shown) == (0, runs)
    assert size > 500 * runs  # type: ignore[operator]  # a number


def test_reading_a_whole_log_at_once_is_caught(tmp_path: Path) -> None:
    log, _ = long_log(tmp_path / "state")
    code = "from tests.prove.programs.full_log import peak_bytes as p; b = p(); x = open({!r}, 'rb').read(); print(p() - b)"
    done = subprocess.run([sys.executable, "-c", code.format(str(log))], check=True, capture_output=True, text=True)
    assert int(done.stdout) > LOG_BYTES - MIB
