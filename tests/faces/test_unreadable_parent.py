"""W26: a directory above the state that cannot be read, so that nothing in it can be made durable, is named with its cure."""

import ctypes
import os
import subprocess
import sys
from pathlib import Path

from tests.faces.support import Done, Shop, open_shop

PR_CAPBSET_DROP, CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH = 24, 1, 2


def _bound_by_modes() -> None:
    """Let the modes of files hold for this process, also if it is root's."""
    if os.geteuid() == 0:
        for capability in (CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH):
            ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)


def semel(shop: Shop, *words: str) -> Done:
    done = subprocess.run(
        [sys.executable, "-m", "semel", *words],
        cwd=shop.place,
        env=shop.environment({}),
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=_bound_by_modes,
    )
    return Done(done.returncode, done.stdout, done.stderr)


def test_w26_a_directory_above_that_may_not_be_read_is_named_with_its_cure(tmp_path: Path) -> None:
    shop = open_shop(tmp_path)
    above = tmp_path / "way in"
    (above / "sub").mkdir(parents=True)
    given = ("--state", "way in/sub/state")
    above.chmod(0o311)
    try:
        refused = semel(shop, "run", "Pay 17", "--session", "s", *given)
        told = semel(shop, "doctor", *given)
    finally:
        above.chmod(0o700)
    assert refused.exit == 1
    assert f"Permission denied: {above}" in refused.err
    assert f"`chmod u+r '{above}'`" in refused.err
    assert len(shop.ledger) == 0
    assert told.exit == 1
    assert f"PROBLEM {above}: may not be read" in told.out
    assert f"`chmod u+r '{above}'`" in told.out
    assert semel(shop, "doctor", *given).exit == 0, "control: with the mode that it advises there is nothing to find"
    assert semel(shop, "run", "Pay 17", "--session", "s", *given).exit == 0
    assert len(shop.ledger) == 1
