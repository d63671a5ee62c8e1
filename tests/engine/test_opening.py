"""The fold of a log that comes piece by piece is the fold of the log, wherever its bytes end."""

from pathlib import Path

import pytest

from semel import Agent, Runtime
from semel.adapters.memory.store import Medium
from semel.core.codec import encode_checked
from semel.core.frame import encode_frames, incomplete, scan
from semel.core.header import Point, encode_lineage
from semel.core.open_log import Opening, state_of
from semel.core.reading import Reading
from semel.core.records import Entry, HistorySupplied
from semel.core.state import Session
from semel.core.values import Media, UserMessage
from semel.ports.log import Payload
from tests.engine.fakes import call, counting, ground, script_file

pytestmark = pytest.mark.anyio


async def log_of_two_turns(path: Path) -> bytes:
    medium = Medium()
    batch = {"calls": [call("pay"), call("look"), call("pay")]}
    model = script_file(path, batch, batch, {"text": "done"})
    agent = Agent("a", model=model, tools=[counting("pay"), counting("look")])
    async with Runtime(agents=[agent], ground=ground(medium)) as runtime:
        await (await runtime.session("s", agent=agent).send("hi", key="k")).result()
    return bytes(medium.logs["s"].data)


def in_pieces(data: bytes, size: int) -> Session:
    reading, opening = Reading(), Opening("s")
    for at in range(0, len(data), size):
        opening.take(reading.feed(data[at : at + size]))
    return opening.state()


async def test_every_prefix_of_a_log_folds_to_the_same_state_in_pieces_and_at_once(tmp_path: Path) -> None:
    data = await log_of_two_turns(tmp_path / "m.json")
    prefixes, torn = 0, 0
    for length in range(0, len(data) + 1, 17):
        frames = scan(data[:length]).frames
        lost = incomplete(frames)
        assert in_pieces(data[:length], 700) == state_of(frames, lost, "s")
        prefixes, torn = prefixes + 1, torn + bool(lost)
    print(f"{prefixes} prefixes, {torn} of them with a torn write")
    assert prefixes >= 400
    assert torn >= 200


def log_of_pictures(names: list[str]) -> bytes:
    payloads = [Payload(json=encode_lineage("0" * 32, "s"), lineage=True)]
    for at, name in enumerate(names):
        said = UserMessage(text="", parts=(Media(media_type="image/png", sha256=name, size_bytes=3),))
        history = HistorySupplied(format="t", entries=(Entry(entry_id=f"e{at}", content=said),))
        payload, requires, _ = encode_checked(history)
        payloads.append(Payload(json=payload, requires=requires))
    return encode_frames(payloads, Point(), at_ms=1, fence=1, synced=0).data


def test_the_blobs_of_a_log_are_gathered_in_one_place_each_by_its_first_record() -> None:
    """Each piece adds what it names, and copies nothing of what is there: a log of many pictures opens in linear time."""
    names = [f"{at % 40:064x}" for at in range(60)]
    opening, reading, data = Opening("s"), Reading(), log_of_pictures(names)
    gathered, pieces = opening.blobs, 0
    for at in range(0, len(data), 500):
        opening.take(reading.feed(data[at : at + 500]))
        pieces += 1
        assert opening.blobs is gathered
    assert pieces > 20
    assert gathered == {name: names.index(name) + 1 for name in names}
