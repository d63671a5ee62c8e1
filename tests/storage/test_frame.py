"""The text frame: bytes that anybody can check with sha256sum (design 3 and 14)."""

from semel.core.frame import Lineage, Point, TailKind, encode_frames, encode_lineage, scan
from semel.ports.log import Payload

LINEAGE = "000102030405060708090a0b0c0d0e0f"
WORKED_EXAMPLE = (
    b"2 0 1767225600000 1 0 1 79 - 9a083638 74010b9e6e74fd1e14418a50638aead8d8544c078d3c04d7f1b103ba8965b72d "
    b'{"type":"lineage","lineage":"000102030405060708090a0b0c0d0e0f","session":"box"}\n'
    b"1 1 1767225600000 1 0 0 58 - 358779a4 aa3fbdc6f64edefdc1d5db603d650741837b85acc669fd3f2904d68e24cbd716 "
    b'{"type":"run_finished","run_id":"r1","reason":"completed"}\n'
)
BATCH = [
    Payload(json=encode_lineage(LINEAGE, "box"), lineage=True),
    Payload(json=b'{"type":"run_finished","run_id":"r1","reason":"completed"}'),
]


def test_the_worked_example_of_the_design_is_written_byte_for_byte() -> None:
    encoded = encode_frames(BATCH, Point(), at_ms=1767225600000, fence=1, synced=0)
    assert encoded.data == WORKED_EXAMPLE
    assert encoded.point.offset == len(WORKED_EXAMPLE)
    assert encoded.point.seq == 2


def test_the_worked_example_is_read_back_as_it_was_written() -> None:
    encoded = encode_frames(BATCH, Point(), at_ms=1767225600000, fence=1, synced=0)
    found = scan(WORKED_EXAMPLE)
    assert found.frames == encoded.frames
    assert found.point == encoded.point
    assert found.tail.kind is TailKind.CLEAN
    assert [frame.digest[:8] for frame in found.frames] == ["74010b9e", "aa3fbdc6"]
    assert found.point.lineage == Lineage(lineage=LINEAGE, session="box")
