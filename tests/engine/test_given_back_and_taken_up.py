"""A session that was given back is taken up from where it was left, as far as its log goes on from there (STORE-8, P10).

What is counted are bytes at the Disk port: what a send costs must not depend on how long the session is.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from semel import Agent, Completed, Runtime
from semel.adapters.file.bookmark import FileBookmark
from semel.adapters.file.disk import Disk
from semel.adapters.memory.store import Medium
from semel.core.frame import Frame
from semel.core.open_log import Opening
from semel.engine import sessions
from semel.engine.session import SessionActor
from semel.errors import LogDamaged, SessionBusy
from semel.faces.views import view_of
from semel.ports.log import Payload
from tests.engine.fakes import events_of, ground, script_file
from tests.engine.slow import disk_ground

pytestmark = pytest.mark.anyio

SHORT, LONG = 5, 50
CONSTANT_BYTES = 64
"""What numbers with more digits may add to what is read."""


class CountingDisk(Disk):
    """Counts the bytes that are read of files."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def read(self, fd: int, offset: int = 0, limit: int | None = None) -> bytes:
        data = super().read(fd, offset, limit)
        self.bytes += len(data)
        return data


def talker(place: Path, answers: int) -> Agent[str]:
    place.mkdir(exist_ok=True)
    return Agent("a", model=script_file(place / "m.json", *[{"text": f"answer {at} " + "x" * 500} for at in range(answers)]))


def runtime_on(place: Path, disk: Disk | None = None) -> Runtime:
    return Runtime(ground=disk_ground(place / "s", disk), recover="manual")


async def say(runtime: Runtime, agent: Agent[str], text: str) -> None:
    assert isinstance(await (await runtime.session("s", agent=agent).send(text)).result(), Completed)


async def bytes_of_a_send_behind(turns: int, place: Path, meanwhile: Callable[[], Any] = lambda: None) -> int:
    disk, agent = CountingDisk(), talker(place, turns + 2)
    async with runtime_on(place, disk) as runtime:
        for at in range(turns):
            await say(runtime, agent, f"message {at}")
        if (work := meanwhile()) is not None:
            await work
        disk.bytes = 0
        await say(runtime, agent, "once more")
        return disk.bytes


async def test_p10_a_send_in_a_long_session_reads_no_more_than_one_in_a_short_session(tmp_path: Path) -> None:
    short = await bytes_of_a_send_behind(SHORT, tmp_path / "short")
    assert await bytes_of_a_send_behind(LONG, tmp_path / "long") < short + CONSTANT_BYTES


@pytest.mark.parametrize("forgotten", ["LEFT_SESSIONS_MOST", "RENDERED_BYTES_MOST"])
async def test_canary_a_send_of_a_process_that_forgets_reads_more_the_longer_its_session_is(
    forgotten: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, forgotten, 0)
    short = await bytes_of_a_send_behind(SHORT, tmp_path / "short")
    assert await bytes_of_a_send_behind(LONG, tmp_path / "long") > 3 * short


@pytest.mark.prove
async def test_p10_a_send_behind_2000_turns_reads_no_more_than_one_behind_10(tmp_path: Path) -> None:
    short, long = [await bytes_of_a_send_behind(turns, tmp_path / str(turns)) for turns in (10, 2000)]
    print(f"a send reads {short} B behind 10 turns, {long} B behind 2,000")
    assert long < short + CONSTANT_BYTES


@pytest.fixture
def folded(monkeypatch: pytest.MonkeyPatch) -> list[Frame]:
    """Every frame that an open hands out to be folded."""
    frames, take = list[Frame](), Opening.take

    def counted(self: Opening, some: Sequence[Frame]) -> None:
        frames.extend(some)
        take(self, some)

    monkeypatch.setattr(Opening, "take", counted)
    return frames


def log_of(place: Path) -> Path:
    return place / "s" / "sessions" / "s" / "wal.log"


async def test_of_a_session_that_another_process_had_meanwhile_all_is_verified_once_and_only_what_is_new_is_folded(
    tmp_path: Path, folded: list[Frame]
) -> None:
    front, folds = list[int](), list[int]()

    def another(place: Path) -> Callable[[], Any]:
        async def talk() -> None:
            front.append(log_of(place).stat().st_size)
            async with runtime_on(place) as other:
                await say(other, talker(place, LONG + 2), "from elsewhere")
            folded.clear()

        return talk

    read = []
    for turns, name in ((SHORT, "short"), (LONG, "long")):
        read.append(await bytes_of_a_send_behind(turns, tmp_path / name, another(tmp_path / name)))
        folds.append(len(folded))
        said = [event["record"]["entries"][-1]["content"]["text"] for event in events_of(disk_ground(tmp_path / name / "s").store)
                if event["type"] == "run_started"]  # fmt: skip
        assert said[-2:] == ["from elsewhere", "once more"]
    assert read[1] - front[1] < read[0] - front[0] + 2 * CONSTANT_BYTES, "behind what is verified nothing is read twice"
    assert read[0] > front[0] > 0
    assert folds[0] == folds[1] > 0


async def test_p7_damage_in_front_is_found_when_a_session_is_taken_up_behind_another_process(tmp_path: Path) -> None:
    async def another() -> None:
        async with runtime_on(tmp_path) as other:
            await say(other, talker(tmp_path, SHORT + 2), "from elsewhere")
        log_of(tmp_path).write_bytes(log_of(tmp_path).read_bytes().replace(b"message 1", b"message 7"))

    with pytest.raises(LogDamaged):
        await bytes_of_a_send_behind(SHORT, tmp_path, another)


async def test_p4_the_requests_of_a_process_that_remembers_are_those_of_one_that_reads_the_log(tmp_path: Path) -> None:
    digests = []
    for name, lives in (("one", 1), ("many", 4)):
        agent, on = talker(tmp_path / name, 4), disk_ground(tmp_path / name / "s")
        for life in range(lives):
            async with Runtime(ground=on, recover="manual") as runtime:
                for at in range(4 // lives):
                    await say(runtime, agent, f"message {life + at}")
        digests.append([e["record"]["request_body_sha256"] for e in events_of(on.store) if e["type"] == "model_attempt_finished"])
    assert digests[0] == digests[1]
    assert len(set(digests[0])) == 4


async def test_a_session_that_is_busy_when_it_is_asked_for_is_still_known_when_it_is_free(
    tmp_path: Path, folded: list[Frame]
) -> None:
    read, folds = [], []
    for turns, name in ((SHORT, "short"), (LONG, "long")):
        disk, agent = CountingDisk(), talker(tmp_path / name, turns + 1)
        async with runtime_on(tmp_path / name, disk) as runtime:
            for at in range(turns):
                await say(runtime, agent, f"message {at}")
            writer = await disk_ground(tmp_path / name / "s").store.open("s")
            with pytest.raises(SessionBusy):
                await say(runtime, agent, "too early")
            await writer.append([Payload(json=b'{"type":"of no meaning"}')])
            await writer.close()
            front = log_of(tmp_path / name).stat().st_size
            disk.bytes, folded[:] = 0, []
            await say(runtime, agent, "once more")
        read.append(disk.bytes - front)
        folds.append(len(folded))
    assert read[1] < read[0] + 2 * CONSTANT_BYTES
    assert folds == [1, 1]


@pytest.mark.parametrize("by", ["cut", "changed"])
async def test_p7_damage_that_was_done_while_nobody_held_the_session_is_found_when_it_is_taken_up(
    by: str, tmp_path: Path
) -> None:
    def damage() -> None:
        log = log_of(tmp_path)
        left, data = log.stat().st_mtime_ns, log.read_bytes()
        cut, changed = data[: len(data) // 2], data.replace(b"message 1", b"message 7")
        while log.stat().st_mtime_ns == left:  # the clock of a file system has ticks
            log.write_bytes(cut if by == "cut" else changed)

    with pytest.raises(LogDamaged):
        await bytes_of_a_send_behind(SHORT, tmp_path, damage)


async def test_p7_canary_a_bookmark_that_looks_at_nothing_writes_behind_a_damaged_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FileBookmark, "stands", lambda *_: True)
    log = log_of(tmp_path)
    await bytes_of_a_send_behind(
        SHORT, tmp_path, lambda: log.write_bytes(log.read_bytes().replace(b"message 1", b"message 7")) and None
    )
    with pytest.raises(LogDamaged):
        view_of(disk_ground(tmp_path / "s").store, "s")


async def test_the_state_that_is_gone_on_with_is_the_fold_of_the_log(tmp_path: Path) -> None:
    medium, agent, states = Medium(), talker(tmp_path, 6), []
    async with (
        Runtime(ground=ground(medium), recover="manual") as one,
        Runtime(ground=ground(medium), recover="manual") as two,
    ):
        for runtime in (one, one, two, one, two):
            await say(runtime, agent, "hello")

            async def look(actor: SessionActor) -> None:
                states.append((actor.state, view_of(ground(medium).store, "s").state))

            await runtime._keeper.enter("s", look)
    assert len(states) == 5
    assert all(kept == folded for kept, folded in states)


@pytest.mark.parametrize(("most", "value"), [("LEFT_SESSIONS_MOST", 2), ("LEFT_RECORDS_MOST", 11)])
async def test_a_process_remembers_no_more_sessions_than_it_says(
    most: str, value: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, most, value)
    agent = talker(tmp_path, 2)
    async with Runtime(ground=ground(), recover="manual") as runtime:
        for name in ("s0", "s1", "s2", "s1"):
            await (await runtime.session(name, agent=agent).send("hello")).result()
        assert list(runtime._keeper.sessions._left) == ["s2", "s1"]
