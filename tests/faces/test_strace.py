"""The real binary with faults that the kernel reports, one at a time: strace fails or kills it at system calls (T1, T10, T11).

Nothing of semel's own seams is in the way here. Whatever happens, the payment is made at most once, the log verifies, and a
second start comes to an end or names what a person must do.
"""

import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from semel.adapters.file.disk import Disk
from tests.faces.support import Shop, open_shop
from tests.support.notrun import not_run

CALLS = ("fdatasync", "fsync", "write", "pwrite64", "rename,renameat,renameat2", "ftruncate")
ERRORS = ("EIO", "ENOSPC", "EDQUOT", "EROFS", "EFBIG", "ENOMEM")


def ptrace_works() -> bool:
    if shutil.which("strace") is None:
        return False
    return subprocess.run(["strace", "-o", "/dev/null", "true"], check=False, capture_output=True).returncode == 0


@pytest.fixture(autouse=True)
def traceable() -> None:
    if not ptrace_works():
        not_run("strace is not there, or may not trace: faults that the kernel reports were not injected")


def start_traced(shop: Shop, *options: str, words: tuple[str, ...]) -> tuple[str, int]:
    """Run a command of the binary under strace, to its end; what strace told, and the exit code."""
    told = shop.place / "trace"
    command = ["strace", "-y", "-qq", "-o", str(told), *options, sys.executable, "-m", "semel", *words]
    done = subprocess.run(command, cwd=shop.place, env=shop.environment({}), capture_output=True, text=True, check=False)
    if done.returncode == 1:
        assert done.stderr.startswith("semel: "), done.stderr
        assert "Traceback" not in done.stderr
    return told.read_text(), done.returncode


def traced(shop: Shop, fault: str, *words: str) -> tuple[int, bool]:
    """Run a command of the binary with a fault injected into its own process; its exit code, and whether the fault struck."""
    calls, _, what = fault.partition(":")
    told, code = start_traced(shop, "-e", f"trace={calls}", "-e", f"inject={calls}:{what}", words=words)
    return code, "(INJECTED)" in told or code == -9


def strikes(place: Path, fault: str) -> str | None:
    """Plant one fault in a run; how that and the next one ended, None if the fault never struck. Whatever it was, all holds."""
    place.mkdir()
    shop = open_shop(place)
    code, struck = traced(shop, fault, "run", "Pay 17", "--session", "s", "--key", "k")
    assert len(shop.ledger) <= 1
    again = shop.semel("run", "Pay 17", "--session", "s", "--key", "k")
    if again.exit not in (0, 3):
        again = shop.semel("resume", "s")
    assert again.exit in (0, 3), (fault, again)
    assert len(shop.ledger) <= 1, fault
    if again.exit == 0:
        assert len(shop.ledger) == 1, fault
    assert shop.semel("verify", "s").exit == 0
    return f"{code} then {again.exit}" if struck else None


def test_the_binary_survives_faults_that_the_kernel_reports(tmp_path: Path) -> None:
    faults = [
        "fdatasync:error=EIO:when=1",
        "fdatasync:error=EIO:when=3",
        "fdatasync:signal=KILL:when=3",
        "fsync:error=EIO:when=1",
    ]
    ends = Counter(strikes(tmp_path / str(number), fault) for number, fault in enumerate(faults))
    print(f"{ends.total()} injected faults: {dict(ends)}")
    assert ends.total() == 4
    assert ends[None] == 0


@pytest.mark.prove
@pytest.mark.timeout(1700)
def test_the_binary_survives_every_fault_at_every_sync_write_rename_and_cut(tmp_path: Path) -> None:
    """Each kind of fault at the first call, the second, and so on, until a run has no such call any more."""
    ends: Counter[str] = Counter()
    for call in CALLS:
        for what in (*(f"error={error}" for error in ERRORS), "signal=KILL"):
            at = 0
            while True:
                at += 1
                end = strikes(tmp_path / f"{call}-{what}-{at}", f"{call}:{what}:when={at}")
                if end is None:
                    break
                ends[end] += 1
    print(f"{ends.total()} injected faults: {dict(ends)}")
    assert ends.total() >= 120


def unsynced_way(trace: str, log: Path) -> set[str]:
    """The directories on the way to a log which the kernel was not asked to sync before the first write to it."""
    before = trace.partition("/wal.log>, ")[0]
    synced = set(re.findall(r"^fsync\(\d+<([^>]*)>\) += 0$", before, re.MULTILINE))
    return {str(directory) for directory in [log.parent, *Disk().above(log.parent)]} - synced


def test_w25_the_kernel_is_asked_to_sync_every_directory_above_a_log_before_it_is_written(tmp_path: Path) -> None:
    shop = open_shop(tmp_path)
    words = ("run", "Pay 17", "--session", "s", "--state", "new/and/deep/state")
    trace, code = start_traced(shop, "-e", "trace=write,fsync,fdatasync", words=words)
    log = tmp_path / "new" / "and" / "deep" / "state" / "sessions" / "s" / "wal.log"
    assert (code, "wal.log" in trace) == (0, True)
    assert len(Disk().above(log.parent)) >= 6
    assert unsynced_way(trace, log) == set()
    hasty = "\n".join(line for line in trace.splitlines() if not line.endswith(" 0") or f"<{tmp_path / 'new'}>" not in line)
    assert unsynced_way(hasty, log) == {str(tmp_path / "new")}, "one that is left out is caught"
