"""One real log of 1 GiB: it fills with ordinary turns, refuses, ends by name, and opens again in bounded memory (T14)."""

import json
import os
import pty
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from semel.core.ceiling import CEILING_BYTES

pytestmark = [pytest.mark.prove, pytest.mark.timeout(1500)]
MIB = 1024 * 1024
OPEN_BYTES_MOST = 150 * MIB


def program(*arguments: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.prove.programs.full_log", *arguments]
    found: dict[str, Any] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    print(arguments[0], {name: round(value, 2) if isinstance(value, float) else value for name, value in found.items()})
    return found


def verified_at_a_terminal(root: Path) -> tuple[str, str]:
    """What `semel verify` prints, and what it shows at a terminal meanwhile."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "semel", "verify", "--state", str(root)]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs, text=True)
    os.close(theirs)
    shown: list[bytes] = []

    def watch() -> None:
        try:
            while piece := os.read(ours, 4096):
                shown.append(piece)
        except OSError:
            pass  # a terminal whose last writer is gone ends like this

    watching = threading.Thread(target=watch)
    watching.start()
    printed = running.communicate()[0]
    watching.join()
    os.close(ours)
    return printed, b"".join(shown).decode()


def test_a_log_of_one_gibibyte_fills_refuses_closes_and_opens_again(tmp_path: Path) -> None:
    root = tmp_path / "state"
    filled = program("fill", str(root), str(CEILING_BYTES))
    assert filled["turns"] > 100_000
    assert 0 < CEILING_BYTES - filled["bytes"] < 64 * 1024
    assert (filled["reason"], filled["code"], filled["refused"]) == ("error", "session_too_large", True)
    log = root / "sessions" / "full" / "wal.log"
    assert log.stat().st_size == filled["bytes"]

    floor = program("floor", str(root))
    opened = program("open", str(root))
    print(f"open + verify takes {opened['seconds'] / floor['seconds']:.1f} x reading and hashing, {opened['over'] / MIB:.0f} MiB")
    assert opened["digest"] == filled["digest"]
    assert opened["over"] < OPEN_BYTES_MOST

    folded = program("fold", str(root))
    print(f"with the fold {folded['seconds'] / floor['seconds']:.1f} x, {folded['over'] / MIB:.0f} MiB")
    assert folded["head"] == opened["frames"] - 1
    assert folded["over"] < OPEN_BYTES_MOST
    kept = program("keep", str(root))
    print(f"a fold that keeps what is said takes {kept['over'] / MIB:.0f} MiB, which the bound notices")
    assert kept["over"] > OPEN_BYTES_MOST
    printed, shown = verified_at_a_terminal(root)
    print(shown.replace("\r", "\n").splitlines()[-1], printed)
    assert "clean" in printed
    assert "verifying" in shown
