"""From frames to the state: what a log is refused with is what is wrong with its first record that is (W15, D6)."""

from collections.abc import Sequence
from typing import Any

import pytest

from semel.core.codec import encode
from semel.core.frame import Frame, Point, encode_frames, encode_lineage, scan
from semel.core.open_log import Opening, state_of
from semel.core.records import Record
from semel.errors import CorruptLog, NewerWriter, SemelError
from semel.ports.log import Payload
from tests.core.machine import LINEAGE, Script, call, say, tool, whole_run

BROKEN = b'{"type":"turn_finished","run_id":5}'
GATED = (BROKEN, ("future/v9",))
PICTURE = (BROKEN, ("media-content/v1",))  # what names blobs is looked at before it is folded
NEST = b"[" * 5000 + b"]" * 5000
DEEP, DEEP_UNKNOWN = b'{"type":"turn_finished","x":%b}' % NEST, b'{"type":"from_the_future","x":%b}' % NEST


def records() -> list[Record]:
    script = Script(answers=[call("pay"), say("done")], tools=[tool("pay")])
    return [one.record for one in whole_run(script).logged() if one.record is not None]


def frames(payloads: Sequence[bytes | tuple[bytes, tuple[str, ...]] | Record]) -> tuple[Frame, ...]:
    """A log of these payloads, each a write of its own: bytes as they are, records encoded."""
    framed = [Payload(json=encode_lineage(LINEAGE, "s"), lineage=True)]
    for one in payloads:
        json, requires = (one, ()) if isinstance(one, bytes) else one if isinstance(one, tuple) else encode(one)
        framed.append(Payload(json=json, requires=requires))
    data, point = b"", Point()
    for payload in framed:
        encoded = encode_frames([payload], point, at_ms=1, fence=1, synced=0)
        data, point = data + encoded.data, encoded.point
    return scan(data).frames


def refusals(log: Sequence[Frame]) -> set[str]:
    """What a log is refused with: all of it at once, and piece by piece."""
    found: set[str] = set()
    for size in (len(log), 1, 2, 5):
        opening = Opening("s")
        for at in range(0, len(log), size):
            opening.take(log[at : at + size])
        with pytest.raises(SemelError) as told:
            opening.state()
        found.add(f"{type(told.value).__name__}: {told.value}")
    with pytest.raises(SemelError) as told:
        state_of(log, frozenset(), "s")
    found.add(f"{type(told.value).__name__}: {told.value}")
    return found


KINDS = ["broken", "gated", "picture", "deep", "deep and unknown"]


@pytest.mark.parametrize("broken", [BROKEN, GATED, PICTURE, DEEP, DEEP_UNKNOWN], ids=KINDS)
def test_a_record_that_contradicts_the_log_is_told_before_a_later_one_that_does_not_decode(broken: Any) -> None:
    start, *rest = records()
    (told,) = refusals(frames([start, start, broken, *rest]))
    assert told.startswith(CorruptLog.__name__)
    assert "record 2" in told


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        (BROKEN, "(turn_finished) does not decode"),
        (GATED, "needs future/v9"),
        (PICTURE, "(turn_finished) does not decode"),
        (DEEP, "is nested too deep to be read"),
        (DEEP_UNKNOWN, "(its type cannot be told) does not decode"),
    ],
    ids=KINDS,
)
def test_a_record_that_does_not_decode_is_told_before_a_later_one_that_contradicts_the_log(broken: Any, why: str) -> None:
    start, *rest = records()
    (told,) = refusals(frames([start, broken, start, *rest]))
    assert told.startswith(NewerWriter.__name__)
    assert f"record 2 of session 's' {why}" in told


def test_of_two_records_that_this_build_cannot_read_the_first_is_told_and_a_missing_feature_before_any_content() -> None:
    start, *rest = records()
    (told,) = refusals(frames([start, GATED, BROKEN, *rest]))
    assert "record 2 of session 's' needs future/v9" in told
    (told,) = refusals(frames([start, BROKEN, GATED, *rest]))
    assert "record 2 of session 's' (turn_finished) does not decode" in told


def test_a_log_without_a_fault_comes_to_the_same_state_whole_and_in_pieces() -> None:
    """The negative control: what is refused above is refused for its fault."""
    log = frames(records())
    whole = state_of(log, frozenset(), "s")
    assert len(whole.ended) == 1
    for size in (1, 2, 5):
        opening = Opening("s")
        for at in range(0, len(log), size):
            opening.take(log[at : at + size])
        assert opening.state() == whole
