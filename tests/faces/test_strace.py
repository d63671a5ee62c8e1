"""The real binary with faults that the kernel reports, one at a time: strace fails or kills it at system calls (T1, T10, T11).

Nothing of semel's own seams is in the way here. Whatever happens, the payment is made at most once, the log verifies, and a
second start comes to an end or names what a person must do.
"""

import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.faces.support import Shop, open_shop
from tests.support.notrun import not_run

CALLS = ("fdatasync", "fsync", "pwrite64", "rename,renameat,renameat2", "ftruncate")
ERRORS = ("EIO", "ENOSPC")


def ptrace_works() -> bool:
    if shutil.which("strace") is None:
        return False
    return subprocess.run(["strace", "-o", "/dev/null", "true"], check=False, capture_output=True).returncode == 0


@pytest.fixture(autouse=True)
def traceable() -> None:
    if not ptrace_works():
        not_run("strace is not there, or may not trace: faults that the kernel reports were not injected")


def traced(shop: Shop, fault: str, *words: str) -> int:
    """Run a command of the binary with a fault injected into its own process; returns its exit code."""
    command = ["strace", "-o", "/dev/null", "-e", f"inject={fault}", sys.executable, "-m", "semel", *words]
    done = subprocess.run(command, cwd=shop.place, env=shop.environment({}), capture_output=True, text=True, check=False)
    if done.returncode == 1:
        assert done.stderr.startswith("semel: "), done.stderr
        assert "Traceback" not in done.stderr
    return done.returncode


def sweep(place: Path, faults: list[str]) -> Counter[str]:
    ends: Counter[str] = Counter()
    for number, fault in enumerate(faults):
        (place / str(number)).mkdir()
        shop = open_shop(place / str(number))
        code = traced(shop, fault, "run", "Pay 17", "--session", "s", "--key", "k")
        assert len(shop.ledger) <= 1
        again = shop.semel("run", "Pay 17", "--session", "s", "--key", "k")
        if again.exit not in (0, 3):
            again = shop.semel("resume", "s")
        assert again.exit in (0, 3), (fault, again)
        assert len(shop.ledger) <= 1, fault
        if again.exit == 0:
            assert len(shop.ledger) == 1, fault
        assert shop.semel("verify", "s").exit == 0
        ends[f"{code} then {again.exit}"] += 1
    return ends


def test_the_binary_survives_faults_that_the_kernel_reports(tmp_path: Path) -> None:
    faults = [
        "fdatasync:error=EIO:when=1",
        "fdatasync:error=EIO:when=3",
        "fdatasync:signal=KILL:when=3",
        "fsync:error=EIO:when=1",
    ]
    ends = sweep(tmp_path, faults)
    print(f"{ends.total()} injected faults: {dict(ends)}")
    assert ends.total() == 4


@pytest.mark.prove
@pytest.mark.timeout(1700)
def test_the_binary_survives_every_fault_at_every_sync_write_and_rename(tmp_path: Path) -> None:
    faults = [f"{call}:error={error}:when={at}" for call in CALLS for error in ERRORS for at in range(1, 9)]
    faults += [f"{call}:signal=KILL:when={at}" for call in CALLS for at in range(1, 9)]
    ends = sweep(tmp_path, faults)
    print(f"{ends.total()} injected faults: {dict(ends)}")
    assert ends.total() == 120
