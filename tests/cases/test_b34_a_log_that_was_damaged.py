"""B34: logs that other programs left behind damaged. The damages themselves are in tests/storage/test_damage.py.

Here is what a person then does: the log is salvaged, and a call that was sent and has no result still counts as possibly sent.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from semel.adapters.file.store import FileStore
from semel.adapters.system import SystemClock
from semel.core.features import KNOWN
from semel.core.frame import Frame, scan
from semel.testing.conformance import records
from tests.faces.support import Shop, open_shop

Damage = Callable[[bytes, Frame, Frame], bytes]

DAMAGES: dict[str, Damage] = {
    "torn-then-appended": lambda data, at, _: data[: at.offset + 60] + data[at.offset :],
    "nul-block-mid": lambda data, at, _: data[: at.offset] + bytes(-at.offset % 512 + 512) + data[at.offset :],
    "raw-newline-inside": lambda data, _, after: data[: after.offset - 9] + b"\n" + data[after.offset - 9 :],
    "bad-middle": lambda data, at, after: data[: at.offset] + b"{not a frame}\n" + data[after.offset :],
    "dup-seq": lambda data, at, after: data[: after.offset] + data[at.offset :],
}


def paying(place: Path) -> tuple[Shop, int]:
    """A session that was killed while a payment was under way, with records behind that; and the seq of the first of those.

    The intent is durable, the result is not, and later records testify to the intent.
    """
    shop = open_shop(place)
    shop.kill(shop.start_and_pay("run", "Pay 17", "--session", "s"))
    assert len(shop.ledger) == 1
    assert b'"type":"tool_dispatch_intent"' in shop.log("s").read_bytes()

    async def more() -> int:
        writer = await FileStore(shop.state, SystemClock(), known=KNOWN).open("s")
        frames = [frame for text in "abc" for frame in await writer.append(records(text))]  # no build knows these; all skip them
        await writer.close()
        return frames[0].seq

    return shop, asyncio.run(more())


@pytest.mark.parametrize("name", DAMAGES)
def test_b34_after_a_salvage_a_call_without_a_result_still_counts_as_possibly_executed(name: str, tmp_path: Path) -> None:
    shop, seq = paying(tmp_path)
    data = shop.log("s").read_bytes()
    frames = scan(data).frames
    spoilt = DAMAGES[name](data, frames[seq], frames[seq + 1])
    shop.log("s").write_bytes(spoilt)
    assert shop.semel("resume", "s").exit == 6, "nothing goes on with a damaged log"
    assert shop.log("s").read_bytes() == spoilt
    told = shop.semel("repair", "s", "--json").json["loss"]
    assert told["readable_records"] >= 2, "what follows the damage can be read"
    done = shop.semel("repair", "s", "--accept-loss", "--json")
    (call,) = done.json["unknown"]
    (waiting,) = shop.semel("inbox", "--json").lines
    assert waiting["call_key"] == call
    assert shop.semel("resume", "s").exit == 3
    assert len(shop.ledger) == 1, "nothing is paid again"
    aside = shop.log("s").with_name(done.json["loss"]["kept_as"])
    assert spoilt.endswith(aside.read_bytes()), "no byte is gone"
