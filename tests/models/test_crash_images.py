"""T28: from every image that a crash can leave, the next request is that of the run that did not crash, in every family (P4).

Three histories: text, parallel calls and provider state; a picture in the message and one that a tool shows; provider state that
the provider refuses in the middle and that is repaired. What is rendered after a resume comes from the log and its files alone.
P4 reads "given the same call outcomes": an image that tears the write of a batch settles its calls as never dispatched, and the
model is told so; such an image has other requests, which are counted and not compared.
"""

import asyncio
import base64
import json
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import pytest
from wire_support import WIRES

from semel import Agent, Completed, File, Runtime, tool
from semel.adapters.models.script import parse_script
from semel.adapters.models.script_steps import End, Head, ScriptServer, Send, Step
from semel.core import fold_run
from semel.engine.media import Loading
from semel.testing.formats import FORMATS
from semel.testing.model_server import ModelServer

pytestmark = pytest.mark.anyio
every_family = pytest.mark.parametrize("family", sorted(WIRES))
LONG, SHORT = 7, 3
REFUSED_AT = 2
"""The repaired history: the request that holds so many answers is refused while it shows what its provider thought."""
PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256))
SHOWN = b"\x89PNG\r\n\x1a\n" + bytes(reversed(range(256)))
SIGNATURE = "messages.1.content.0: Invalid `signature` in `thinking` block"
THOUGHT = {
    "anthropic_messages": b'"type":"thinking"',
    "bedrock_converse": b'"reasoningContent":',
    "gemini": b'"thoughtSignature":"',
    "openai_chat": b'"reasoning_content":"',
    "openai_responses": b'"encrypted_content":"',
}
REFUSAL = {
    "anthropic_messages": {"error": {"type": "invalid_request_error", "message": SIGNATURE}},
    "bedrock_converse": {"message": SIGNATURE},
    "gemini": {"error": {"code": 400, "message": "Corrupted thought signature.", "status": "INVALID_ARGUMENT"}},
    "openai_chat": {"error": {"message": SIGNATURE, "code": 400}},
    "openai_responses": {"error": {"message": "could not be verified", "code": "invalid_encrypted_content"}},
}


class History(NamedTuple):
    """How many turns with calls a run has, what comes with its message, what each turn calls, and whether it is refused once."""

    turns: int
    files: tuple[File, ...] = ()
    calls: tuple[str, ...] = ("look", "note")
    refused: bool = False

    def script(self) -> str:
        answers = [
            {
                "thinking": f"Thought {n}. 🌧",
                "text": f"Turn {n}: Grüße\u2028",
                "calls": [{"name": name, "raw": f'{{ "n" : {n}}}'} for name in self.calls],
                "usage": {"input": 10, "output": 5, "cache_read": 3},
            }
            for n in range(self.turns)
        ]
        return json.dumps({"answers": [*answers, {"text": "All done."}]})


PLAIN = History(LONG)
PICTURES = History(SHORT, files=(File(PNG, name="seen.png"),), calls=("look", "show"))
REPAIRED = History(SHORT, refused=True)


class Compared(NamedTuple):
    """How many images had the same outcomes, and the others; the requests that were equal; those with both pictures, those that
    were refused, and those that were asked again without what was refused.
    """

    same: int = 0
    other: int = 0
    sent: int = 0
    pictures: int = 0
    refused: int = 0
    repaired: int = 0


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

    @tool(effect="read")
    def show(n: int) -> list[str | File]:
        """Show."""
        return [f"picture {n}", File(SHOWN, name=f"shown{n}.png")]

    return Agent("images", model=model, instructions="Work.", tools=[look, note, show])


class Provider:
    """Answers by its history's script; refuses by what a request holds, so that a kill changes nothing."""

    def __init__(self, family: str, history: History) -> None:
        self._family, self._refuses = family, history.refused
        self._format = FORMATS[family].format
        self._script = ScriptServer(parse_script(history.script(), "s"), self._format)

    def place(self, body: bytes) -> tuple[int, bool]:
        """Which request of the conversation it is: how many answers it holds, and whether it is one that is refused."""
        answers = self._format.read(body).answers
        return answers, self._refuses and answers == REFUSED_AT and THOUGHT[self._family] in body

    def reply(self, body: bytes) -> Iterable[Step]:
        if not self.place(body)[1]:
            return self._script.reply(body)
        named = {"x-amzn-errortype": "ValidationException"} if self._family == "bedrock_converse" else {}
        refusal = json.dumps(REFUSAL[self._family]).encode()
        return [Head(status=400, headers={"content-type": "application/json", **named}), Send(body=refusal), End()]


async def live(place: Path, model: str, history: History) -> Completed[str]:
    """Run to the end, or go on to it from whatever lies in `place`."""
    agent = agent_at(model)
    async with Runtime(place, agents=[agent], recover="manual", inline_sync=True) as runtime:
        run = await runtime.session("s", agent=agent).send("Go.", key="k", files=history.files)
        result = await run.result()
    assert isinstance(result, Completed), result
    return result


def log_of(place: Path) -> Path:
    return place / "sessions" / "s" / "wal.log"


def images(log: bytes, step: int) -> list[int]:
    """Where a crash may have cut the log: behind each frame and in the middle of each, every `step`-th of these places.

    Those around the record of a repair are always among them.
    """
    start, sizes, always = 0, list[int](), set[int]()
    for line in log.splitlines(keepends=True):
        if b'"type":"opaque_state_voided"' in line:
            always |= {len(sizes) + at for at in range(-1, 3)}
        sizes += [start + len(line) // 2, start + len(line)]
        start += len(line)
    return [size for at, size in enumerate(sizes) if at % step == 0 or at in always]


def leave(place: Path, image: Path, size: int) -> None:
    """What a crash leaves: the log up to there and the files that were kept before it, and nothing that was written behind it."""
    shutil.copytree(place, image)
    log = log_of(image)
    log.write_bytes(log.read_bytes()[:size])
    for name in ("status.json", "index.db"):
        for path in image.rglob(name):
            path.unlink()


def wanted_of(provider: Provider, history: History, bodies: list[bytes]) -> dict[tuple[int, bool], bytes]:
    """The requests of the run that did not crash, by their place in the conversation."""
    wanted = {provider.place(body): body for body in bodies}
    places = [(answers, False) for answers in range(history.turns + 1)]
    if history.refused:
        places.insert(REFUSED_AT, (REFUSED_AT, True))
    assert [provider.place(body) for body in bodies] == places == list(wanted)
    return wanted


async def compared(family: str, tmp_path: Path, step: int, history: History = PLAIN) -> Compared:
    """Resume every `step`-th image."""
    provider, found = Provider(family, history), Compared()
    both = [base64.b64encode(content) for content in (PNG, SHOWN)]
    async with ModelServer(provider.reply, formats=[family]) as server:
        model = f"{family}:m@{server.url}"
        await live(tmp_path / "whole", model, history)
        wanted = wanted_of(provider, history, [received.body for received in server.requests])
        for n, size in enumerate(images(log_of(tmp_path / "whole").read_bytes(), step)):
            before = len(server.requests)
            image = tmp_path / f"image{n}"
            leave(tmp_path / "whole", image, size)
            assert (await live(image, model, history)).output == "All done."
            torn = b"never_dispatched" in log_of(image).read_bytes()
            bodies = [received.body for received in server.requests[before:]]
            places = [provider.place(body) for body in bodies]
            if not torn:
                for place, body in zip(places, bodies, strict=True):
                    assert body == wanted[place], (size, n, place)
            found = Compared(
                same=found.same + (not torn),
                other=found.other + torn,
                sent=found.sent + len(bodies) * (not torn),
                pictures=found.pictures + sum(all(one in body for one in both) for body in bodies) * (not torn),
                refused=found.refused + sum(refused for _, refused in places) * (not torn),
                repaired=found.repaired + places.count((REFUSED_AT, False)) * (not torn) * history.refused,
            )
            shutil.rmtree(image)
    print(f"{family}: {found}")
    return found


@every_family
async def test_some_crash_images_resume_with_the_bytes_of_the_run_that_did_not_crash(family, tmp_path):
    found = await compared(family, tmp_path, 17)
    assert found.same >= 5
    assert found.sent >= 15


@every_family
async def test_some_crash_images_with_pictures_resume_with_the_same_bytes(family, tmp_path):
    found = await compared(family, tmp_path, 13, PICTURES)
    assert found.same >= 5
    assert found.pictures >= 8


@every_family
async def test_some_crash_images_around_a_repair_resume_with_the_same_bytes(family, tmp_path):
    found = await compared(family, tmp_path, 17, REPAIRED)
    assert found.same >= 5
    assert found.repaired > found.refused >= 2  # from some images the refusal comes again, from some it stands in the log


@pytest.mark.prove
@pytest.mark.timeout(900)
@every_family
async def test_all_crash_images_resume_with_the_bytes_of_the_run_that_did_not_crash(family, tmp_path):
    found = await compared(family, tmp_path, 1)
    assert found.same >= 120


@pytest.mark.prove
@pytest.mark.timeout(900)
@every_family
async def test_all_crash_images_with_pictures_and_around_a_repair_resume_with_the_same_bytes(family, tmp_path):
    pictures = await compared(family, tmp_path / "pictures", 1, PICTURES)
    repaired = await compared(family, tmp_path / "repaired", 1, REPAIRED)
    assert pictures.same >= 70
    assert pictures.pictures >= 140
    assert repaired.same >= 70
    assert repaired.repaired > repaired.refused >= 40


async def test_a_renderer_that_looks_at_the_clock_is_caught(tmp_path, monkeypatch):
    """Negative control: a moment in the request makes the resumed one differ."""
    from itertools import count

    from semel.adapters.models.gemini.render import GeminiForm

    moments, tail = count(), GeminiForm.tail
    monkeypatch.setattr(GeminiForm, "tail", lambda self, *given: tail(self, *given) + b" " * next(moments))
    with pytest.raises(AssertionError):
        await compared("gemini", tmp_path, 40)


@pytest.fixture
def resuming(monkeypatch) -> Callable[[], bool]:
    """Whether a run of this test is one that goes on from an image; for faults that are planted in those alone."""
    lives, first = 0, live

    async def counted(*given):
        nonlocal lives
        lives += 1
        return await first(*given)

    monkeypatch.setitem(globals(), "live", counted)
    return lambda: lives > 1


async def test_a_resume_that_shows_other_bytes_of_a_picture_is_caught(tmp_path, monkeypatch, resuming):
    """Negative control: what a resumed process renders must hold the pictures themselves."""
    load = Loading.__getitem__
    monkeypatch.setattr(Loading, "__getitem__", lambda self, name: load(self, name)[: -1 if resuming() else None])
    with pytest.raises(AssertionError):
        await compared("gemini", tmp_path, 40, PICTURES)


async def test_a_resume_that_forgets_a_repair_is_caught(tmp_path, monkeypatch, resuming):
    """Negative control: provider state that was refused once stays away for good."""
    without = fold_run.without_opaque
    monkeypatch.setattr(fold_run, "without_opaque", lambda state, why: state if resuming() else without(state, why))
    with pytest.raises(AssertionError):
        await compared("gemini", tmp_path, 40, REPAIRED)
