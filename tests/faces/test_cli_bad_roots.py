"""Whatever lies where semel's files should be: each verb says what is wrong, and none of them calls that a bug in semel."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from semel.adapters.file.store import FileStore
from semel.faces.cli.main import _exit_code
from tests.faces.support import open_shop

Spoil = Callable[[Path], None]
PLACES = (
    *("", "sessions", "sessions/s", "sessions/s/wal.log", "sessions/s/status.json", "sessions/s/lease", "sessions/s/blobs"),
    *("sessions/s/parking", "sessions/stray", "sessions/Not Ours", f"sessions/={'0' * 64}"),
    *("index.db", "wal-feature-floor", "wal-feature-floor.lock", "backup.json", "told"),
)
"""Where something else is put, below the state directory."""


def remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def file(path: Path) -> None:
    path.write_bytes(b"")


def link_to_itself(path: Path) -> None:
    path.symlink_to(path)


def link_to_nothing(path: Path) -> None:
    path.symlink_to("nothing")


def directory(path: Path) -> None:
    path.mkdir(0o700)


def directory_of_everybody(path: Path) -> None:
    path.mkdir()
    path.chmod(0o777)


def directory_of_nobody(path: Path) -> None:
    path.mkdir(0o000)


def pipe(path: Path) -> None:
    os.mkfifo(path, 0o600)


THINGS = (file, link_to_itself, link_to_nothing, directory, directory_of_everybody, directory_of_nobody, pipe)
WHOLE: tuple[tuple[str, ...], ...] = (("ls",), ("doctor",), ("verify",), ("backup", "{place}/copy"))
VERBS: tuple[tuple[str, ...], ...] = (
    *(*WHOLE, ("ls", "--json"), ("show", "s"), ("explain", "s"), ("preview", "s"), ("tail", "s"), ("inbox",)),
    *(("verify", "s"), ("verify", "{state}"), ("reindex",), ("repair", "s"), ("repair", "s", "--accept-loss")),
    *(
        ("restore", "{state}", "--state", "{place}/new"),
        ("restore", "{state}", "--state", "{state}"),
        ("resume",),
        ("resume", "s"),
    ),
    *(("backup", "{state}/sessions/s/wal.log"), ("restore", "{state}/sessions/s/wal.log", "--state", "{place}/new")),
    *(("cancel", "s"), ("steer", "s", "hi"), ("retract", "s", "k"), ("resolve", "abc", "--happened"), ("approve", "abc")),
    *(("deliver", "abc", "x"), ("send", "hi", "--session", "s")),
)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    shop = open_shop(tmp_path_factory.mktemp("shop"))
    shop.semel("run", "Pay 17", "--session", "s")
    shop.semel("ls")
    return shop.state


def called_a_bug(tmp_path: Path, root: Path, place: str, words: tuple[str, ...], capfd: pytest.CaptureFixture[str]) -> list[str]:
    """What a verb calls a bug in semel, over all that can be in that place."""
    found: list[str] = []
    for thing in THINGS:
        base = tmp_path / thing.__name__
        state = base / "state"
        shutil.copytree(root, state)
        remove(state / place)
        thing(state / place)
        filled = [word.format(state=state, place=base) for word in words]
        code = _exit_code(filled if "--state" in filled else [*filled, "--state", str(state)])
        err = capfd.readouterr().err
        if "bug in semel" in err or not 0 <= code <= 7:
            found.append(f"{thing.__name__} {' '.join(words)}: {code} {err}")
        shutil.rmtree(base)
    return found


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place or "state")
def test_whatever_is_in_the_place_of_a_file_no_verb_over_all_sessions_calls_it_a_bug(
    tmp_path: Path, root: Path, place: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert [bug for words in WHOLE for bug in called_a_bug(tmp_path, root, place, words, capfd)] == []


@pytest.mark.prove
@pytest.mark.parametrize("words", VERBS, ids=" ".join)
def test_whatever_is_in_the_place_of_a_file_no_verb_calls_it_a_bug(
    tmp_path: Path, root: Path, words: tuple[str, ...], capfd: pytest.CaptureFixture[str]
) -> None:
    assert [bug for place in PLACES for bug in called_a_bug(tmp_path, root, place, words, capfd)] == []


@pytest.mark.parametrize(
    "words", [("backup", "{state}/sessions/s/wal.log"), ("restore", "{state}/sessions/s/wal.log")], ids=" ".join
)
def test_a_file_in_place_of_a_backup_is_no_bug(
    tmp_path: Path, root: Path, words: tuple[str, ...], capfd: pytest.CaptureFixture[str]
) -> None:
    assert called_a_bug(tmp_path, root, "told", words, capfd) == []


@pytest.mark.parametrize("place", ["", "sessions", "sessions/s", "sessions/stray", f"sessions/={'0' * 64}"])
@pytest.mark.parametrize("thing", [file, link_to_itself, link_to_nothing, pipe], ids=lambda thing: thing.__name__)
def test_doctor_calls_it_a_problem_where_no_session_can_be(
    tmp_path: Path, root: Path, place: str, thing: Spoil, capfd: pytest.CaptureFixture[str]
) -> None:
    state = tmp_path / "state"
    shutil.copytree(root, state)
    remove(state / place)
    thing(state / place)
    assert _exit_code(["doctor", "--json", "--state", str(state)]) == 1
    findings = json.loads(capfd.readouterr().out)["findings"]
    (problem,) = [one for one in findings if one["weight"] == "problem"]
    assert (problem["about"], bool(problem["advice"])) == (str(state / place), True)


def test_doctor_has_no_problem_with_what_is_sound(tmp_path: Path, root: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The control; a state directory may be behind a link."""
    (tmp_path / "link").symlink_to(root)
    for state in (root, tmp_path / "link", tmp_path / "new"):
        assert _exit_code(["doctor", "--json", "--state", str(state)]) == 0
    assert '"problem"' not in capfd.readouterr().out


def test_an_error_that_nobody_turned_into_words_is_caught(
    tmp_path: Path, root: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: the raw error of a file that is no directory."""
    monkeypatch.setattr(FileStore, "strays", lambda _store: os.listdir(__file__))
    assert len(called_a_bug(tmp_path, root, "told", ("ls",), capfd)) == len(THINGS)
