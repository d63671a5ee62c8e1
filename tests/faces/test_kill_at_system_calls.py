"""T1 on the real binary: SIGKILL at its system calls, whichever they are, and a second start that comes to an end.

The kernel is the witness of what was durable, and stands outside: strace writes down what was written to the log and which sync
of it came back. Whatever was cut, the second start keeps all of that, and the payment is made at most once.
"""

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

from semel.core.frame import TailKind, scan
from tests.faces.support import Shop, open_shop
from tests.faces.test_strace import ptrace_works, start_traced
from tests.support.notrun import not_run

RUN = ("run", "Pay 17", "--session", "s", "--key", "k")
WITNESSED = ("write", "fdatasync")
CHANGING = (
    *("write", "pwrite64", "fdatasync", "fsync", "ftruncate", "renameat", "unlink", "mkdir", "mkdirat", "chmod", "fchmod"),
    *("fcntl", "bind", "listen", "pipe2", "vfork", "clone3", "wait4", "sendto"),
)
EVERY = 25
"""Of the calls that change nothing (they read, open, look and wait), one of so many is tried."""

pytestmark = [pytest.mark.prove, pytest.mark.timeout(3600)]


@pytest.fixture(autouse=True)
def traceable() -> None:
    if not ptrace_works():
        not_run("strace is not there, or may not trace: the binary was not killed at its system calls")


@dataclass(frozen=True)
class Life:
    """What the kernel saw of a run: its calls in order, how many bytes of the log were durable at its end, and its exit code."""

    calls: list[str]
    durable_bytes: int
    code: int


def lived(shop: Shop, *options: str) -> Life:
    """Run the binary under strace, which is told so much, to its end."""
    told, code = start_traced(shop, *options, words=RUN)
    calls = re.findall(r"^(\w+)\(", told, re.MULTILINE)
    written = durable = 0
    for line in told.splitlines():
        if match := re.match(r"write\(\d+<[^>]*/wal\.log>.* = (\d+)$", line):
            written += int(match[1])
        elif re.match(r"fdatasync\(\d+<[^>]*/wal\.log>\) += 0$", line):
            durable = written
    return Life(calls, durable, code)


def points(life: Life) -> list[tuple[str, int]]:
    """Where to kill: each call that changes something, and of the others one of so many, as the n-th of its name."""
    seen, found = Counter[str](), list[tuple[str, int]]()
    for at, call in enumerate(life.calls):
        seen[call] += 1
        if call in CHANGING or at % EVERY == 0:
            found.append((call, seen[call]))
    return found


def comes_to_rest(shop: Shop, durable: bytes) -> str:
    """Start it a second time and check all that must hold; how it ended."""
    again = shop.semel(*RUN)
    if again.exit not in (0, 3):
        again = shop.semel("resume", "s")
    assert again.exit in (0, 3), again
    log = shop.log("s").read_bytes()
    assert log.startswith(durable), "what was durable is there, byte for byte"
    found = scan(log)
    assert found.tail.kind is TailKind.CLEAN
    kinds = [re.match(rb'\{"type":"(\w+)"', frame.payload) for frame in found.frames]
    count = Counter(kind[1].decode() for kind in kinds if kind)
    assert count["run_started"] == count["run_finished"] == 1
    assert count["tool_dispatch_intent"] <= 1
    assert len(shop.ledger) <= 1, "paid at most once"
    assert len(shop.ledger) == 1 or again.exit == 3
    return "completed" if again.exit == 0 else "interrupted"


def killed(shop: Shop, call: str, nth: int) -> bytes | None:
    """Kill a run as it enters its n-th call of a name; what was durable of its log then. None if it had no such call."""
    traced = ",".join(dict.fromkeys((*WITNESSED, call)))
    life = lived(shop, "-e", f"trace={traced}", "-e", f"inject={call}:signal=KILL:when={nth}")
    if life.code == 0:
        return None
    assert life.code == -9, (call, nth, life.code)
    log = shop.log("s")
    left = log.read_bytes() if log.exists() else b""
    assert len(left) >= life.durable_bytes
    return left[: life.durable_bytes]


def opened(place: Path) -> Shop:
    place.mkdir()
    return open_shop(place)


def test_t1_a_binary_killed_at_any_system_call_loses_nothing_and_repeats_nothing(tmp_path: Path) -> None:
    assert lived(opened(tmp_path / "first")).code == 0  # one that finds no compiled modules writes them, and no later one does
    uncut = lived(opened(tmp_path / "uncut"))
    assert uncut.code == 0
    wanted, ends, cut = points(uncut), Counter[str](), Counter[str]()
    with_records = 0
    for call, nth in wanted:
        shop = opened(tmp_path / f"{call}-{nth}")
        durable = killed(shop, call, nth)
        if durable is None:
            ends["not reached"] += 1  # how often an interpreter waits or asks for memory differs from run to run
            continue
        ends[comes_to_rest(shop, durable)] += 1
        cut[call] += 1
        with_records += bool(durable)
    print(f"{len(uncut.calls)} system calls, killed at {cut.total()}: {dict(ends)}, {with_records} behind a durable record")
    print(dict(cut.most_common()))
    assert len(uncut.calls) > 4000
    assert cut.total() >= 250
    assert ends["not reached"] <= cut.total() // 10
    assert with_records >= 40
    assert min(cut["write"], cut["fdatasync"], cut["fsync"], cut["openat"]) >= 5
    assert min(cut["pwrite64"], cut["renameat"], cut["ftruncate"], cut["mkdirat"]) >= 2
    assert ends["completed"] >= 200
    assert ends["interrupted"] >= 10, "some kills fall between an intent and its result"


def test_a_run_that_forgets_what_was_durable_is_caught(tmp_path: Path) -> None:
    shop = opened(tmp_path / "paid")
    assert lived(shop).code == 0
    assert len(shop.ledger) == 1
    durable = shop.log("s").read_bytes()
    for name in ("wal.log", "status.json"):
        (shop.log("s").parent / name).unlink()
    (shop.state / "index.db").unlink(missing_ok=True)
    with pytest.raises(AssertionError):
        comes_to_rest(shop, durable)
