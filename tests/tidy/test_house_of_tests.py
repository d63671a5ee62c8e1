"""The tests' own house: nothing leaves the machine, nothing is skipped without a word, nothing is left for the next test."""

import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import network

ROOT = Path(__file__).parents[2]
OUTSIDE = ("192.0.2.1", 9)  # a block kept for documentation: no machine has it


def test_a_connection_to_another_machine_is_refused_before_a_byte_leaves() -> None:
    with socket.socket() as sock, pytest.raises(network.LeftThisMachine, match=r"192\.0\.2\.1"):
        sock.connect(OUTSIDE)
    with socket.socket(type=socket.SOCK_DGRAM) as sock, pytest.raises(network.LeftThisMachine):
        sock.sendto(b"x", OUTSIDE)
    with pytest.raises(network.LeftThisMachine):
        socket.getaddrinfo("semel.invalid", 80)
    assert len(network.take_strays()) == 3


def test_loopback_is_open() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        assert client.getpeername() == server.getsockname()


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("localhost", True),
        (b"localhost", True),
        (None, True),
        ("0.0.0.0", True),
        ("10.0.0.1", False),
        ("::ffff:10.0.0.1", False),
        ("fe80::1%eth0", False),
        ("169.254.169.254", False),
        ("semel.invalid", False),
    ],
)
def test_only_addresses_that_can_mean_nothing_else_are_local(host: object, local: bool) -> None:
    assert network.is_local(host) is local


SAMPLE = """
import contextlib, socket
import pytest
from semel.ports.roster import ROSTER
from tests.support import underway
from tests.support.notrun import not_run

def test_passes(): pass
def test_lacks_a_browser(): not_run("no browser here")
@pytest.mark.skip(reason="skipped by mark")
def test_marked(): pass
@pytest.mark.prove
def test_long(): pass
@pytest.mark.prove
def test_longer(): pass
def test_leaves_a_thread():
    underway.PATIENCE_SECONDS = 0.0
    ROSTER.enter("thread", "of a tool")
def test_swallows_the_refusal():
    with contextlib.suppress(OSError), socket.socket() as sock:
        sock.connect(("192.0.2.1", 9))
"""


def run_sample(place: Path, *options: str) -> str:
    """Run the sample under this suite's own conftest, in a process of its own."""
    (place / "test_sample.py").write_text(SAMPLE)
    (place / "pytest.ini").write_text(f"[pytest]\nmarkers = prove\npythonpath = '{ROOT}'\naddopts = -q -p no:cacheprovider\n")
    shutil.copy(ROOT / "tests/conftest.py", place)
    command = [sys.executable, "-m", "pytest", *options]
    return subprocess.run(command, cwd=place, capture_output=True, text=True, check=False).stdout


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> str:
    return run_sample(tmp_path_factory.mktemp("sample"))


def test_the_summary_names_every_skip_and_the_command_for_the_proofs(sample: str) -> None:
    _, _, section = sample.partition("not run on this machine")
    assert "no browser here: test_sample.py::test_lacks_a_browser" in section
    assert "skipped by mark: test_sample.py::test_marked" in section
    assert "long proofs: 2; `make prove` runs them" in section
    assert section.rstrip().splitlines()[-1].startswith("3 passed, 2 skipped, 2 deselected, 2 errors in ")


def test_a_swallowed_refusal_still_fails_the_test(sample: str) -> None:
    assert "tests talk to this machine only: [\"socket.connect to '192.0.2.1'\"]" in sample


def test_what_is_left_under_way_fails_the_test_that_left_it_and_no_other(sample: str) -> None:
    assert sample.count("the test has ended, and these go on: ['thread of a tool']") >= 1
    assert sample.count("ERROR at teardown of") == 2


def test_asked_for_proofs_run_and_are_not_listed(tmp_path: Path) -> None:
    said = run_sample(tmp_path, "--prove", "-m", "prove")
    assert "make prove" not in said
    assert "2 passed, 5 deselected" in said
