"""P1, P2 on a file system that really drops what was not synced, below the kernel: real lives, SIGKILL, then the power goes.

The reference run is killed at its persistence calls, the file system loses what no sync covered (all of it, or sector by sector),
and the next life goes on from what is left. Whatever was acknowledged is there, and no once tool acts twice.
"""

import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.notrun import not_run
from tests.sweep.lives import KILLED, Lives, Uncut, check, kill_points

pytestmark = [pytest.mark.prove, pytest.mark.timeout(1700)]


SEEDS = 5  # the first loses all that was not synced
WRITES = """
import os, sys
os.chdir(sys.argv[1])
one, here = os.open("a", os.O_CREAT | os.O_RDWR, 0o600), os.open(".", os.O_RDONLY)
os.write(one, b"kept")
os.fsync(one)
os.fsync(here)
os.write(one, b"lost")
os.close(os.open("b", os.O_CREAT | os.O_RDWR, 0o600))
"""


class Mount:
    """The file system at a directory."""

    def __init__(self, place: Path, image: Path, seed: int, *, lying: bool) -> None:
        self.place = place
        words = [str(place), str(image), str(seed), *(["lying"] if lying else [])]
        command = [sys.executable, "-m", "tests.sweep.forgetful_fs", *words]
        self.server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._hear() == "mounted", "the file system is not there"

    def lose_power(self) -> int:
        """Drop what was not synced; returns how much that was. Whoever still uses it gets errors."""
        assert self.server.stdin is not None
        self.server.stdin.write("drop\n")
        self.server.stdin.flush()
        word, lost = self._hear().split()
        assert word == "dropped"
        return int(lost)

    def _hear(self) -> str:
        assert self.server.stdout is not None
        return self.server.stdout.readline().strip()

    def end(self) -> None:
        self.server.kill()
        self.server.communicate()
        subprocess.run(["fusermount3", "-u", "-q", "-z", str(self.place)], check=False)


@contextmanager
def mounted(place: Path, image: Path, seed: int = 0, *, lying: bool = False) -> Iterator[Mount]:
    mount = Mount(place, image, seed, lying=lying)
    try:
        yield mount
    finally:
        mount.end()


@pytest.fixture(autouse=True)
def fuse(tmp_path: Path) -> None:
    if not Path("/dev/fuse").exists() or shutil.which("fusermount3") is None:
        not_run("no /dev/fuse or no fusermount3: no file system that drops unsynced bytes was mounted")
    try:
        import mfusepy  # noqa: F401  it loads libfuse
    except (ImportError, OSError):
        not_run("no libfuse: no file system that drops unsynced bytes was mounted")
    (tmp_path / "try").mkdir()
    (tmp_path / "none").mkdir()
    try:
        with mounted(tmp_path / "try", tmp_path / "none"):
            pass
    except AssertionError:
        not_run("this process may not mount: no file system that drops unsynced bytes was mounted")


def test_the_file_system_keeps_what_was_synced_and_nothing_else(tmp_path: Path) -> None:
    place, image = tmp_path / "state", tmp_path / "image"
    place.mkdir()
    image.mkdir()
    with mounted(place, image) as mount:
        subprocess.run([sys.executable, "-c", WRITES, str(place)], check=True)
        assert (place / "a").read_bytes() == b"keptlost"
        assert mount.lose_power() == 2
    assert {path.name: path.read_bytes() for path in image.iterdir()} == {"a": b"kept"}


def test_p1_p2_a_power_loss_below_a_killed_life_loses_nothing_acknowledged_and_repeats_nothing(
    lives: Lives,
    uncut: Uncut,
    tmp_path: Path,
) -> None:
    ends: Counter[str] = Counter()
    dropped = 0
    points = kill_points(uncut.calls[1:])  # the state directory is there, so that making it is no call
    for seed in range(SEEDS):
        for point in points:
            code, lost = power_lost_at(point, lives, uncut, tmp_path / str(seed), seed=seed)
            ends["interrupted" if code == 3 else "completed"] += 1
            dropped += lost > 0
    print(f"{ends.total()} power losses below the kernel, {dropped} of which dropped something: {dict(ends)}")
    assert ends.total() == 108 * SEEDS == 540
    assert dropped >= 400


def power_lost_at(point: str, lives: Lives, uncut: Uncut, tmp_path: Path, seed: int, *, lying: bool = False) -> tuple[int, int]:
    """Kill a life at a point, lose the power, let the next one go on, check; its exit code, and how much was dropped."""
    root = tmp_path / point.replace(":", "-")
    place, image = root / "state", root / "image"
    place.mkdir(parents=True, mode=0o700)
    image.mkdir()
    lives.requests()
    with mounted(place, image, seed, lying=lying) as mount:
        assert lives.live(root, point) == KILLED, point
        lost = mount.lose_power()
    with mounted(place, image):
        code = lives.live(root)
        assert code in (0, 3), f"after {point} the next life ended with {code}"
        check(root, uncut, lives.requests())
    return code, lost


def test_a_device_that_says_that_it_synced_and_has_not_is_caught(
    lives: Lives,
    uncut: Uncut,
    tmp_path: Path,
) -> None:
    caught = 0
    for at in (30, 40, 50):
        with pytest.raises(AssertionError):
            power_lost_at(f"{at}:exit", lives, uncut, tmp_path, seed=0, lying=True)
        caught += 1
    assert caught == 3
