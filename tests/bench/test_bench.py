"""`semel bench` measures what it says: its floors do the same bytes and syncs, and its lines keep their shape. No timings."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from semel.core.frame import TailKind, scan
from semel.core.limits import Limits
from semel.core.records import Record
from semel.engine.resume import Ground
from semel.faces.bench import floors, measures, work
from semel.faces.bench.figures import TABLE, figure
from semel.faces.bench.floors import RecordingDisk, read_hash_decode, write_and_sync
from semel.faces.bench.measures import Counts, fresh, recorded
from semel.faces.bench.work import CONTENT_BYTES, ground_at, play
from semel.faces.cli.bench import NAMES
from semel.faces.cli.main import semel
from tests.faces.test_strace import ptrace_works
from tests.support.notrun import not_run

TURNS = 4
SYNCS_OF_A_TURN = 2


class Tally:
    """Counts the plain calls of a floor, which it lets through."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.syncs: list[int] = []
        self.files: list[int] = []
        self.pending = 0
        write, sync = os.write, floors.plain_sync

        def counted_write(fd: int, data: memoryview) -> int:
            self.pending += (done := write(fd, data))
            return done

        def counted_sync(fd: int) -> None:
            sync(fd)
            self.syncs.append(self.pending)
            self.files.append(fd)
            self.pending = 0

        monkeypatch.setattr(os, "write", counted_write)
        monkeypatch.setattr(floors, "plain_sync", counted_sync)


def log_of(root: Path) -> bytes:
    return (root / "sessions" / "s0" / "wal.log").read_bytes()


def test_the_work_is_that_of_the_table(tmp_path: Path) -> None:
    play(ground_at(tmp_path / "s"), TURNS)
    found = scan(log_of(tmp_path / "s"))
    assert found.tail.kind is TailKind.CLEAN
    records = [json.loads(frame.payload) for frame in found.frames]
    answers = [record["assistant_message"]["content"]["blocks"] for record in records if record["type"] == "model_step_finished"]
    results = [record["output"]["text"] for record in records if record["type"] == "tool_result"]
    assert len(answers) == TURNS + 1  # and a last word
    for text, *calls in answers[:-1]:
        assert [len(text["text"]), *(len(call["arguments"]) for call in calls)] == [600, 200, 200, 200]
    assert [len(text) for text in results] == [1024] * 3 * TURNS
    assert CONTENT_BYTES == 600 + 3 * 200 + 3 * 1024


def test_no_limit_stops_a_run_however_alike_its_turns_are(tmp_path: Path) -> None:
    play(ground_at(tmp_path / "s"), 2 * Limits().repeated_calls)
    assert b'"reason":"completed"' in log_of(tmp_path / "s")


def test_a_turn_costs_two_syncs_at_the_disk_port(tmp_path: Path) -> None:
    assert len(recorded(tmp_path, 2 * TURNS)) - len(recorded(tmp_path, TURNS)) == SYNCS_OF_A_TURN * TURNS


def test_the_recorded_bytes_are_those_of_the_files(tmp_path: Path) -> None:
    disk = RecordingDisk()
    play(ground_at(tmp_path / "s", disk), TURNS)
    log = len(log_of(tmp_path / "s"))
    assert disk.pending == 0
    assert log < sum(disk.syncs) < log + 4096  # the lease, the floor and the status twice, which are small
    assert len(disk.syncs) == sum(call.startswith("sync") for call in disk.calls)


def test_the_floor_writes_the_same_bytes_with_the_same_syncs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    syncs = recorded(tmp_path, TURNS)
    tally = Tally(monkeypatch)
    write_and_sync(tmp_path, syncs)
    assert tally.syncs == syncs
    assert list(tmp_path.iterdir()) == []


def test_the_floor_of_many_gives_each_file_all_of_it_in_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tally = Tally(monkeypatch)
    write_and_sync(tmp_path, [100, 0, 7], files=3)
    assert tally.syncs == [100] * 3 + [0] * 3 + [7] * 3
    assert tally.files == tally.files[:3] * 3
    assert len(set(tally.files)) == 3


def test_a_floor_that_leaves_a_sync_out_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    syncs = recorded(tmp_path, TURNS)
    tally = Tally(monkeypatch)
    write_and_sync(tmp_path, syncs[1:])
    assert tally.syncs != syncs


def test_the_floor_of_reading_decodes_every_record_and_hashes_every_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    play(ground_at(tmp_path / "s"), TURNS)
    seen: list[bytes] = []
    hashed = 0
    decoder, sha256 = floors.json.Decoder(Record), floors.hashlib.sha256

    class Counting:
        def __init__(self, _type: object) -> None:
            pass

        def decode(self, payload: bytes) -> object:
            seen.append(payload)
            return decoder.decode(payload)

    class Hashing:
        def __init__(self, data: bytes) -> None:
            nonlocal hashed
            self._digest = sha256(data)
            hashed += len(data)

        def update(self, data: bytes) -> None:
            nonlocal hashed
            self._digest.update(data)
            hashed += len(data)

        def hexdigest(self) -> str:
            return self._digest.hexdigest()

    monkeypatch.setattr(floors.json, "Decoder", Counting)
    monkeypatch.setattr(floors.hashlib, "sha256", Hashing)
    read_hash_decode(tmp_path / "s" / "sessions" / "s0" / "wal.log")
    monkeypatch.undo()
    frames = scan(log_of(tmp_path / "s")).frames
    assert seen == [frame.payload for frame in frames[1:]]
    assert hashed == len(log_of(tmp_path / "s")) - 2 * len(
        frames
    )  # of a line, all but a space and the newline; of its digest, the one before


def test_syncs_of_a_turn_are_two_for_the_kernel_too(tmp_path: Path) -> None:
    if not ptrace_works():
        not_run("strace is not there, or may not trace: the syncs of a turn were not counted by the kernel")
    counted = [syncs_of_the_kernel(tmp_path / str(turns), turns) for turns in (TURNS, 2 * TURNS)]
    assert counted[1] - counted[0] == SYNCS_OF_A_TURN * TURNS


def syncs_of_the_kernel(root: Path, turns: int) -> int:
    code = f"from pathlib import Path\nfrom semel.faces.bench.work import *\nplay(ground_at(Path({str(root)!r})), {turns})"
    trace = root.with_suffix(".trace")
    calls = "fsync,fdatasync,sync_file_range,sync,syncfs,msync"
    subprocess.run(["strace", "-f", "-o", str(trace), "-e", f"trace={calls}", sys.executable, "-c", code], check=True)
    return trace.read_text().count("sync(")


SHAPE = {"figure", "what", "unit", "median", "least", "most", "rounds", "must", "goal", "verdict", "facts"}
FACTS = {
    "S": {"turns", "ms_a_turn", "floor_ms_a_turn", "syncs", "bytes"},
    "cpu": {"turns", "floor_ms_a_turn"},
    "syncs": {"turns"},
    "C": {"sessions", "turns", "turns_a_second", "floor_turns_a_second", "syncs", "bytes"},
    "G": {"turns", "window", "early_ms", "late_ms"},
    "R": {"turns", "bytes", "ms", "floor_ms"},
    "Sz": {"turns", "bytes_a_turn", "content_bytes"},
}


def bench(*words: str) -> str:
    done = CliRunner().invoke(semel, ["bench", *words], catch_exceptions=False, standalone_mode=False)
    assert done.exception is None
    return done.stdout


@pytest.fixture
def few_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measures, "SESSIONS", 3)


@pytest.mark.usefixtures("few_sessions")
def test_every_measure_prints_one_line_of_this_shape(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    state = tmp_path / "deep" / "state"
    bench("--turns", "4", "--rounds", "2", "--json", "--state", str(state))
    lines = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [line["figure"] for line in lines] == list(TABLE)
    for line in lines:
        assert set(line) == SHAPE
        assert set(line["facts"]) == FACTS[line["figure"]]
        assert line["least"] <= line["median"] <= line["most"]
        assert line["verdict"] in {"goal", "ok", "missed"}
        assert (line["must"], line["goal"]) == (TABLE[line["figure"]].must, TABLE[line["figure"]].goal)
    assert next(line for line in lines if line["figure"] == "syncs")["median"] == SYNCS_OF_A_TURN
    assert not state.parent.exists()  # nothing of it is left


def test_a_directory_that_was_there_keeps_what_was_in_it(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine").write_text("mine")
    bench("sz", "--turns", "2", "--state", str(tmp_path))
    head, row = capfd.readouterr().out.splitlines()
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
    assert head.split("\t")[1:6] == ["what", "median", "rounds", "must", "goal"]
    assert row.split("\t")[0] == "Sz"


def test_the_measures_are_those_that_can_be_asked_for() -> None:
    assert tuple(measures.MEASURES) == NAMES


def test_a_measure_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    def fails() -> None:
        with fresh(tmp_path) as directory:
            (directory / "x").write_text("x")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("key", "rounds", "verdict"),
    [
        ("S", (1.4, 1.5, 9.0), "goal"),
        ("S", (2.4, 2.5, 2.6), "ok"),
        ("S", (2.4, 2.6, 2.7), "missed"),
        ("C", (0.9, 0.95), "goal"),
        ("C", (0.6, 0.7), "ok"),
        ("C", (0.5, 0.6), "missed"),
    ],
)
def test_the_median_decides_whether_a_must_holds(key: str, rounds: tuple[float, ...], verdict: str) -> None:
    assert figure(key, rounds, {}).verdict == verdict


def test_as_many_turns_are_played_as_were_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    played: list[int] = []

    def noted(ground: Ground, turns: int, **more: Any) -> work.Taken:
        played.append(turns)
        return play(ground, turns, **more)

    monkeypatch.setattr(measures, "play", noted)
    list(measures.growth(tmp_path, Counts(turns=12, rounds=2)))
    assert played == [12, 11] * 2  # the last turn of a long run, and the one behind the tenth of a fresh run
