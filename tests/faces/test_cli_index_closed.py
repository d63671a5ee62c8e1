"""An index that nobody may write to, or that is none: what is wrong is said, and what to do about it, and no log is kept back.

The read-only file system is a real mount, of a process that sees it alone; permissions are those of a user without privileges.
"""

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from semel.adapters.file import hindrance as hindrance_module
from semel.adapters.file.backup import back_up, restore
from semel.adapters.file.copies import UNFINISHED
from semel.core.features import KNOWN
from semel.errors import IndexUnavailable
from semel.faces.cli.main import _exit_code
from tests.faces.support import SRC, Done
from tests.storage.test_roll import listed, store_at, write
from tests.support.notrun import not_run

SESSIONS = ("bag", "box")
READ_ONLY = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && exec "$@"'
NO_PRIVILEGES = ("setpriv", "--securebits=+noroot")
MENDS_NOTHING = "remove it: nothing is written to a copy, so nothing mends it"
Run = Callable[..., Done]


def whole(_root: Path) -> None:
    """As it was listed."""


def gone(root: Path) -> None:
    (root / "index.db").unlink()


def damaged(root: Path) -> None:
    (root / "index.db").write_bytes(b"nonsense" * 1000)


INDEXES = (whole, gone, damaged)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for session in SESSIONS:
        write(tmp_path / "state", session)
    assert listed(store_at(tmp_path / "state")) == dict.fromkeys(SESSIONS)
    return tmp_path / "state"


def run(before: tuple[str, ...], root: Path, *words: str) -> Done:
    command = [*before, sys.executable, "-m", "semel", *words, "--state", str(root)]
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(SRC)}
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return Done(ran.returncode, ran.stdout, ran.stderr)


def works(*command: str) -> bool:
    """Whether this machine has such a command, and lets us use it."""
    return shutil.which(command[0]) is not None and subprocess.run(command, capture_output=True, check=False).returncode == 0


def read_only(root: Path, *words: str) -> Done:
    """A command to which the state directory is on a file system that is mounted read-only."""
    mounting = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c", READ_ONLY, str(root))
    if not works(*mounting, "true"):
        not_run("this machine lets no process mount a directory read-only for itself")
    return run(mounting, root, *words)


def without_permission(root: Path, *words: str) -> Done:
    """A command of a user who may read the state directory, and not write to it."""
    before = NO_PRIVILEGES if os.geteuid() == 0 else ()
    if before and not works(*before, "true"):
        not_run("nothing here takes the privileges from a process of root")
    root.chmod(0o500)
    try:
        return run(before, root, *words)
    finally:
        root.chmod(0o700)


def told_by(way: Run, root: Path) -> tuple[str, str]:
    """The reason and the remedy that a command names there."""
    if way is read_only:
        return "Read-only file system", f"Mount the file system of {root} writable, and try again"
    return "Permission denied", f"`chmod u+rwx {root}`, and try again"


@pytest.mark.parametrize("way", [read_only, without_permission])
@pytest.mark.parametrize("index", INDEXES)
def test_reindex_says_what_keeps_the_index_from_being_written_to_and_what_to_do(
    root: Path, index: Callable[[Path], None], way: Run
) -> None:
    index(root)
    reason, remedy = told_by(way, root)
    done = way(root, "reindex")
    assert done.exit == 1
    assert f"{root / 'index.db'} cannot be written to ({reason}). {remedy}" in done.err
    assert "Try again" not in done.err
    assert "a bug in semel" not in done.err
    assert len(done.err.splitlines()) == (1 if index is damaged else len(SESSIONS))
    done = way(root, "ls", "--json")  # a listing needs no more than the logs
    assert (done.exit, [line["error"] for line in done.lines]) == (0, [None, None])
    assert ("it testifies to nothing until a listing writes it anew" in done.err) == (index is damaged)  # which none does there
    assert run((), root, "reindex").exit == 0  # control: that was all


@pytest.mark.parametrize("way", [read_only, without_permission])
def test_an_index_that_cannot_be_put_right_there_refuses_with_the_same_words(root: Path, way: Run) -> None:
    """Behind a process that died within a change: what it says now may be half of that."""
    (root / "index.db-journal").write_bytes(hot_journal(root / "index.db"))
    (root / "index.db-journal").chmod(0o600)
    reason, remedy = told_by(way, root)
    done = way(root, "show", "box")
    assert done.exit == 1
    assert f"index.db cannot be asked ({reason}), and may know of records that a log has lost. {remedy}" in done.err
    assert run((), root, "show", "box").exit == 0  # control: who may write puts it right


@pytest.mark.parametrize(("mode", "verb", "said"), [(0o400, "reindex", "written to"), (0o000, "show", "asked")])
def test_an_index_whose_own_permissions_refuse_is_named_with_the_command_that_mends_it(
    root: Path, mode: int, verb: str, said: str
) -> None:
    index, words = root / "index.db", (verb, *(["box"] if verb == "show" else []))
    index.chmod(mode)
    before = NO_PRIVILEGES if os.geteuid() == 0 else ()
    if before and not works(*before, "true"):
        not_run("nothing here takes the privileges from a process of root")
    done = run(before, root, *words)
    assert done.exit == 1
    assert f"{index} cannot be {said} (Permission denied)" in done.err
    cure = f"chmod u+rw {index}"
    assert f"`{cure}`, and try again." in done.err
    subprocess.run(["sh", "-c", cure], check=True)
    assert run(before, root, *words).exit == 0


def hot_journal(path: Path) -> bytes:
    """What a change that is under way keeps beside an index."""
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("PRAGMA cache_size = 1")
    db.execute("BEGIN IMMEDIATE")
    db.execute("UPDATE summary SET content = zeroblob(20000)")
    kept = path.with_name("index.db-journal").read_bytes()
    db.execute("ROLLBACK")
    db.close()
    return kept


def test_a_read_only_file_system_is_told_by_what_the_system_says_of_it(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same without a mount."""
    connect = sqlite3.connect

    def refusing(where: str, **given: object) -> sqlite3.Connection:
        return connect(where.replace("mode=rw", "mode=ro"), **given)  # type: ignore[call-overload,no-any-return]  # passed on

    monkeypatch.setattr(sqlite3, "connect", refusing)
    with pytest.raises(IndexUnavailable, match="Try again; if it stays so"):  # control: nothing says that this will last
        store_at(root).index.remember("box", "mark", b"{}")
    monkeypatch.setattr(hindrance_module.os, "statvfs", lambda _path: SimpleNamespace(f_flag=os.ST_RDONLY))
    with pytest.raises(IndexUnavailable, match=r"\(Read-only file system\). Mount the file system of .* writable, and try again"):
        store_at(root).index.remember("box", "mark", b"{}")


def finding(root: Path, way: Run, capfd: pytest.CaptureFixture[str]) -> tuple[str, str, str]:
    """How doctor weighs the index, what it says of it, and its advice."""
    if way is _exit_code:
        _exit_code(["doctor", "--json", "--state", str(root)])
        found = json.loads(capfd.readouterr().out)
    else:
        found = way(root, "doctor", "--json").json
    (one,) = [one for one in found["findings"] if one["about"] == str(root / "index.db")]
    return one["weight"], one["what"], one.get("advice", "")


@pytest.mark.parametrize("kind", ["emptied", "restored"])
def test_doctor_of_a_directory_to_work_in_says_when_an_index_is_made(
    root: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], kind: str
) -> None:
    if kind == "restored":
        back_up(store_at(root), tmp_path / "copy", 1)
        root = tmp_path / "restored"
        restore(tmp_path / "copy", store_at(root).root, KNOWN)
    else:
        gone(root)
    assert finding(root, _exit_code, capfd) == ("fine", "is not there; it is made when a session is listed", "")
    assert not (root / "index.db").exists()
    assert _exit_code(["ls", "--state", str(root)]) == 0
    assert (root / "index.db").exists()  # control: so it is


@pytest.mark.parametrize("kind", ["backup", "unfinished"])
def test_doctor_of_a_copy_does_not_promise_an_index(
    root: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], kind: str
) -> None:
    copy = tmp_path / "copy"
    if kind == "backup":
        back_up(store_at(root), copy, 1)
    else:
        gone(root)
        shutil.copytree(root, copy)
        (copy / UNFINISHED).write_bytes(b"{}")
        (copy / UNFINISHED).chmod(0o600)
    said = "is not there; nothing is written to a copy, so listings read every log"
    assert finding(copy, _exit_code, capfd) == ("fine", said, "")
    assert _exit_code(["ls", "--state", str(copy)]) == 0
    assert not (copy / "index.db").exists()
    damaged(copy)
    (copy / "index.db").chmod(0o600)
    capfd.readouterr()
    weight, what, advice = finding(copy, _exit_code, capfd)
    assert (weight, "is damaged" in what, advice) == ("note", True, MENDS_NOTHING)


@pytest.mark.parametrize("way", [read_only, without_permission])
def test_doctor_of_what_cannot_be_written_to_does_not_promise_an_index(
    root: Path, capfd: pytest.CaptureFixture[str], way: Run
) -> None:
    reason, remedy = told_by(way, root)
    cure = remedy[0].lower() + remedy.partition(",")[0][1:]
    (root / "index.db-journal").write_bytes(hot_journal(root / "index.db"))
    weight, what, advice = finding(root, way, capfd)
    assert (weight, f"cannot be asked ({reason})" in what) == ("problem", True)
    assert advice.startswith(f"{cure}; as a last resort")
    (root / "index.db-journal").unlink()
    damaged(root)
    weight, what, advice = finding(root, way, capfd)
    assert (weight, "is damaged" in what) == ("note", True)
    assert advice.startswith(f"{cure}; then `semel reindex")
    gone(root)
    said = f"is not there, and cannot be made ({reason}), so listings read every log"
    assert finding(root, way, capfd) == ("note", said, cure)


@pytest.mark.parametrize("thing", ["directory", "link"])
def test_doctor_of_something_else_in_its_place_does_not_promise_an_index(
    root: Path, capfd: pytest.CaptureFixture[str], thing: str
) -> None:
    gone(root)
    if thing == "directory":
        (root / "index.db").mkdir(0o700)
    else:
        (root / "index.db").symlink_to("nowhere")
    weight, what, advice = finding(root, _exit_code, capfd)
    assert (weight, what) == ("note", "is no plain file, so nothing is remembered, and listings read every log")
    assert advice == "move it away; the next listing makes an index"


@pytest.mark.parametrize(("verb", "names"), [("ls", "{} cannot be read"), ("inbox", "session {} cannot be read")])
def test_what_a_listing_says_to_do_about_a_session_goes_to_the_state_directory_that_was_given(
    root: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], verb: str, names: str
) -> None:
    os.link(root / "index.db", tmp_path / "another name")
    assert _exit_code([verb, "--state", str(root)]) == 6
    told = "".join(capfd.readouterr())
    for session in SESSIONS:
        (line,) = [line for line in told.splitlines() if line.startswith(names.format(session))]
        assert f"see `semel doctor --state {root}`" in line
