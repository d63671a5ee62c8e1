"""T28: from every image that a crash can leave, the next request is that of the run that did not crash, in every family (P4).

The answers hold text, parallel calls and provider state, so what is rendered after a resume comes from the log alone. P4 reads
"given the same call outcomes": an image that tears the write of a batch settles its calls as never dispatched, and the model is
told so; such an image has other requests, which are counted and not compared.
"""

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from wire_support import WIRES

from semel import Agent, Completed, Runtime, tool
from semel.testing.formats import FORMATS
from semel.testing.model_server import ModelServer

pytestmark = pytest.mark.anyio
TURNS = 7
SCRIPT = {
    "answers": [
        *(
            {
                "thinking": f"Thought {n}. 🌧",
                "text": f"Turn {n}: Grüße\u2028",
                "calls": [{"name": "look", "args": {"n": n}}, {"name": "note", "raw": f'{{ "n" : {n}}}'}],
                "usage": {"input": 10, "output": 5, "cache_read": 3},
            }
            for n in range(TURNS)
        ),
        {"text": "All done."},
    ]
}


def agent_at(model: str) -> Agent[str]:
    @tool(effect="read")
    async def look(n: int) -> str:
        """Look."""
        await asyncio.sleep(0)
        return f"seen {n}"

    @tool(effect="idempotent")
    async def note(n: int) -> str:
        """Note."""
        return "" if n == 2 else f"noted {n}"

    return Agent("images", model=model, instructions="Work.", tools=[look, note])


async def live(place: Path, model: str) -> Completed[str]:
    """Run to the end, or go on to it from whatever lies in `place`."""
    agent = agent_at(model)
    async with Runtime(place, agents=[agent], recover="manual", inline_sync=True) as runtime:
        run = await runtime.session("s", agent=agent).send("Go.", key="k")
        result = await run.result()
    assert isinstance(result, Completed), result
    return result


def log_of(place: Path) -> Path:
    return place / "sessions" / "s" / "wal.log"


def images(log: bytes) -> Iterator[int]:
    """Where a crash may have cut the log: behind each frame, and in the middle of each."""
    start = 0
    for line in log.splitlines(keepends=True):
        yield start + len(line) // 2
        start += len(line)
        yield start


def leave(place: Path, image: Path, size: int) -> None:
    """What a crash leaves: the log up to there, and nothing that was written behind it."""
    shutil.copytree(place, image)
    log = log_of(image)
    log.write_bytes(log.read_bytes()[:size])
    for name in ("status.json", "index.db"):
        for path in image.rglob(name):
            path.unlink()


async def compared(family: str, tmp_path: Path, step: int) -> tuple[int, int, int]:
    """Resume every `step`-th image: how many had the same outcomes, the others, and the requests that were equal."""
    format_ = FORMATS[family].format
    async with ModelServer(SCRIPT) as server:
        model = f"{family}:m@{server.url}"
        await live(tmp_path / "whole", model)
        wanted = [received.body for received in server.requests]
        assert len(wanted) == TURNS + 1
        assert [format_.read(body).answers for body in wanted] == list(range(TURNS + 1))
        sizes = list(images(log_of(tmp_path / "whole").read_bytes()))
        same = other = sent = 0
        for n, size in enumerate(sizes[::step]):
            before = len(server.requests)
            leave(tmp_path / "whole", tmp_path / f"image{n}", size)
            result = await live(tmp_path / f"image{n}", model)
            assert result.output == "All done."
            torn = b"never_dispatched" in log_of(tmp_path / f"image{n}").read_bytes()
            same, other = same + (not torn), other + torn
            for received in () if torn else server.requests[before:]:
                assert received.body == wanted[format_.read(received.body).answers], (size, n)
                sent += 1
            shutil.rmtree(tmp_path / f"image{n}")
    return same, other, sent


@pytest.mark.parametrize("family", sorted(WIRES))
async def test_some_crash_images_resume_with_the_bytes_of_the_run_that_did_not_crash(family, tmp_path):
    same, other, sent = await compared(family, tmp_path, 17)
    print(f"{family}: {same} images with the same outcomes, {other} others, {sent} requests equal")
    assert same >= 5
    assert sent >= 15


@pytest.mark.prove
@pytest.mark.timeout(900)
@pytest.mark.parametrize("family", sorted(WIRES))
async def test_all_crash_images_resume_with_the_bytes_of_the_run_that_did_not_crash(family, tmp_path):
    same, other, sent = await compared(family, tmp_path, 1)
    print(f"{family}: {same} images with the same outcomes, {other} others, {sent} requests equal")
    assert same >= 120


async def test_a_renderer_that_looks_at_the_clock_is_caught(tmp_path, monkeypatch):
    """Negative control: a moment in the request makes the resumed one differ."""
    from itertools import count

    from semel.adapters.models.gemini.render import GeminiForm

    moments, tail = count(), GeminiForm.tail
    monkeypatch.setattr(GeminiForm, "tail", lambda self, *given: tail(self, *given) + b" " * next(moments))
    with pytest.raises(AssertionError):
        await compared("gemini", tmp_path, 40)
