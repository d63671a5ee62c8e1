"""What can still be read behind damage is found in windows, whatever lies across their edges."""

from semel.core import behind as module
from semel.core.behind import LISTED_MOST, proven_behind
from semel.core.frame import line_of
from storage.logs import Log, build, lineage_payload, payload

WINDOW = module._WINDOW_BYTES


def reads(data: bytes) -> tuple[list[int], module.Read]:
    """A way to read these bytes, and how much was read at once."""
    sizes: list[int] = []

    def read(offset: int, limit: int) -> bytes:
        sizes.append(limit)
        return data[offset : offset + limit]

    return sizes, read


def long_log(*sizes: int) -> Log:
    return build([([lineage_payload(), *(payload(size) for size in sizes)], 7, True)])


def test_lines_across_the_edges_of_windows_are_found_once_and_whole() -> None:
    edge = WINDOW - len(long_log(100).data)
    for by in (-300, -200, -150, -90, -1, 0, 1, 200):
        log = long_log(100, edge + by - 250, 300, 200, WINDOW + 5000, 90)
        sizes, read = reads(b"\n" + log.data)
        found = proven_behind(read, 0)
        assert [header.seq for header in found.listed] == list(range(7))
        assert all(header.whole for header in found.listed)
        assert [header.offset - 1 for header in found.listed] == [frame.offset for frame in log.frames]
        assert (found.count, found.fence) == (7, 7)
        assert max(sizes) == WINDOW


def test_a_long_line_that_ends_too_early_too_late_or_not_at_all_is_not_whole() -> None:
    log = long_log(WINDOW + 5000, 60)
    line = line_of(log.frames[1])
    for spoilt in (line[:400] + b"\n" + line[401:], line[:-200] + b"\n" + line[-199:], line[:-1], line[:-1] + b"~" * WINDOW):
        _, read = reads(spoilt)
        first = proven_behind(read, 0).listed[0]
        assert (first.seq, first.whole) == (1, False)
    _, read = reads(line)
    assert proven_behind(read, 0).listed[0].whole


def test_only_the_first_are_listed_and_all_are_counted() -> None:
    log = long_log(*[20] * (LISTED_MOST + 50))
    _, read = reads(log.data)
    found = proven_behind(read, log.frames[10].offset)
    assert len(found.listed) == LISTED_MOST
    assert found.count == LISTED_MOST + 50 + 1 - 10
    assert proven_behind(read, len(log.data)).count == 0
