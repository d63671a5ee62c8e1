"""The fold of a log that comes piece by piece is the fold of the log, wherever its bytes end."""

from pathlib import Path

import pytest

from semel import Agent, Runtime
from semel.adapters.memory.store import Medium
from semel.core.frame import incomplete, scan
from semel.core.open_log import Opening, state_of
from semel.core.reading import Reading
from semel.core.state import Session
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
