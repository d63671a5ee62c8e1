"""The played golden logs: `python -m tests.core.golden` adds one for each script that has none yet, and changes no other.

The first 21 were left behind by the first build. A log is never written again with other bytes: what one build wrote, every
later one reads as that one did.
"""

import hashlib
import json
from pathlib import Path

import msgspec

from semel.core.codec import encode_checked
from semel.core.frame import encode_frames, good_frames
from semel.core.header import Point, encode_lineage
from semel.ports.log import Payload
from tests.core.machine import LINEAGE
from tests.core.said import said
from tests.core.scripts import SCRIPTS
from tests.core.writes import Write, folded, logged_of

HOME = Path(__file__).parents[1] / "golden" / "v1" / "played"
TRANSCRIPTS = HOME / "transcripts.json"


def encoded(writes: list[Write]) -> bytes:
    """The bytes of a log with these commits; of one that is torn, the frames that survived."""
    point, data = Point(), b""
    for number, write in enumerate(writes):
        payloads = [Payload(json=payload, requires=requires) for payload, requires, _ in map(encode_checked, write.records)]
        if number == 0:
            payloads.insert(0, Payload(json=encode_lineage(LINEAGE, "s"), lineage=True))
        more = payloads if write.whole else [*payloads, payloads[-1]]
        encoding = encode_frames(more, point, at_ms=1000 + number, fence=write.fence, synced=max(point.seq - 1, 0))
        kept = b"".join(encoding.data.splitlines(keepends=True)[: len(payloads)])
        _, point = good_frames(kept, point)
        data += kept
    return data


def main() -> None:
    """Add what is not there."""
    transcripts = json.loads(TRANSCRIPTS.read_text())
    for name, script in SCRIPTS.items():
        path = HOME / f"script-{name}.log"
        if path.exists():
            continue
        writes = script().writes
        path.write_bytes(encoded(writes))
        transcripts[path.stem] = hashlib.sha256(msgspec.json.encode(said(folded(writes), logged_of(writes)))).hexdigest()
    TRANSCRIPTS.write_text(json.dumps(transcripts, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
