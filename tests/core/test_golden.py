"""Logs of the first build, kept as bytes: later builds read them as that one did and write the same payloads (W40, V7)."""

import hashlib
import json
from pathlib import Path

import msgspec
import pytest

from semel.core.codec import decode, encode
from semel.core.frame import Scan, TailKind, incomplete, scan
from semel.core.open_log import state_of

GOLDEN = Path(__file__).parents[1] / "golden" / "v1"
LOGS = sorted(GOLDEN.glob("*.log"))
PROMPTS = json.loads((GOLDEN / "transcripts.json").read_text())


def frames_of(path: Path) -> Scan:
    found = scan(path.read_bytes())
    assert found.tail.kind is TailKind.CLEAN
    return found


def test_there_are_as_many_golden_logs_as_ever() -> None:
    assert len(LOGS) == len(PROMPTS) == 21
    assert sum(len(frames_of(path).frames) - 1 for path in LOGS) == 365


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_a_payload_of_the_first_build_keeps_its_bytes_and_its_features(path: Path) -> None:
    for frame in frames_of(path).frames[1:]:
        record = decode(frame)
        assert record is not None
        assert encode(record) == (frame.payload, frame.requires)


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_a_log_of_the_first_build_renders_the_transcript_that_it_did(path: Path) -> None:
    frames = frames_of(path).frames
    state = state_of(frames, incomplete(frames), "s")
    transcript = msgspec.json.encode(list(state.transcript))
    assert hashlib.sha256(transcript).hexdigest() == PROMPTS[path.stem]


def test_a_changed_payload_would_be_seen() -> None:
    frame = frames_of(GOLDEN / "text.log").frames[1]
    record = decode(frame)
    assert record is not None
    payload, _ = encode(msgspec.structs.replace(record, context={"new": 1}))
    assert payload != frame.payload
