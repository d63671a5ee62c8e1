"""Logs of earlier builds, kept as bytes: later ones read them as those did and write the same payloads (W40, V7)."""

import hashlib
import json
from pathlib import Path

import msgspec
import pytest

from semel.core.codec import decode, encode
from semel.core.features import KNOWN
from semel.core.frame import Scan, TailKind, incomplete, scan
from semel.core.open_log import finding, state_of
from semel.core.transcript import history_of
from semel.errors import NewerWriter
from tests.core.golden import HOME, TRANSCRIPTS

LOGS = sorted(HOME.glob("*.log"))
PROMPTS = json.loads(TRANSCRIPTS.read_text())


def frames_of(path: Path) -> Scan:
    found = scan(path.read_bytes())
    assert found.tail.kind is TailKind.CLEAN
    return found


def test_there_are_as_many_golden_logs_as_ever() -> None:
    assert len(LOGS) == len(PROMPTS) == 58
    assert sum(len(frames_of(path).frames) - 1 for path in LOGS) == 1187


def test_every_feature_of_this_build_is_in_some_golden_log() -> None:
    assert frozenset().union(*(frames_of(path).features for path in LOGS)) == KNOWN, "play a script that has it"


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_a_payload_of_an_earlier_build_keeps_its_bytes_and_its_features(path: Path) -> None:
    for frame in frames_of(path).frames[1:]:
        record = decode(frame)
        assert record is not None
        assert encode(record) == (frame.payload, frame.requires)


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_a_log_of_an_earlier_build_renders_the_transcript_that_it_did(path: Path) -> None:
    frames = frames_of(path).frames
    state = state_of(frames, incomplete(frames), "s")
    transcript = msgspec.json.encode(list(history_of(state, finding(frames))))
    assert hashlib.sha256(transcript).hexdigest() == PROMPTS[path.stem]


def read(found: Scan, known: frozenset[str]) -> None:
    for frame in found.frames[1:]:
        decode(frame, known=known)


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_v34_a_build_without_one_feature_of_a_log_refuses_it_by_that_name(path: Path) -> None:
    frames = frames_of(path)
    for missing in sorted(frames.features):
        with pytest.raises(NewerWriter, match=missing) as refused:
            read(frames, KNOWN - {missing})
        assert refused.value.features == (missing,)


def test_a_changed_payload_would_be_seen() -> None:
    frame = frames_of(HOME / "text.log").frames[1]
    record = decode(frame)
    assert record is not None
    payload, _ = encode(msgspec.structs.replace(record, context={"new": 1}))
    assert payload != frame.payload
