"""A legal log whose records name blobs, and a state directory that holds it with them."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from semel.core.records import Entry, RunStarted
from semel.core.values import Media, Text, UserMessage
from storage.conftest import plant
from storage.golden_logs import RUN, SESSION, _answer, _end, _start, encoded

PICTURES = (b"one picture", b"another picture" * 1000)
NAMES = tuple(hashlib.sha256(picture).hexdigest() for picture in PICTURES)


def media_log(names: Sequence[str] = NAMES) -> bytes:
    """A session `golden` whose first message shows these pictures; they are named by record 1."""
    from semel.core.records import TurnFinished

    started, step = _start()
    assert isinstance(started, RunStarted)
    parts = tuple(Media(media_type="image/png", sha256=name, size_bytes=1) for name in names)
    shown = Entry(entry_id=started.input[0], content=UserMessage(text="look", parts=parts))
    writes = [
        [replace(started, entries=(*started.entries[:-1], shown)), step],
        [_answer(Text(text="seen")), TurnFinished(run_id=RUN, step_id=1), _end("completed")],
    ]
    return encoded(writes)


def blob_place(root: Path) -> Path:
    return root / "sessions" / SESSION / "blobs"


def plant_media(root: Path, pictures: Sequence[bytes] = PICTURES) -> Path:
    """A state directory with that session; returns where its blobs are."""
    plant(root, media_log(), SESSION)
    place = blob_place(root)
    place.mkdir(mode=0o700)
    for picture in pictures:
        (place / hashlib.sha256(picture).hexdigest()).write_bytes(picture)
    return place
