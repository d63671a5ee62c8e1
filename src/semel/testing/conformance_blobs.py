"""The contract of `ports.blobs` as checks that any adapter must pass, one per numbered line."""

import hashlib
from collections.abc import Callable, Mapping
from functools import partial
from typing import Protocol

from semel.errors import BlobDamaged, LeaseLost, must
from semel.ports.blobs import Blobs
from semel.testing.conformance_floor import refuses_now


class BlobBench(Protocol):
    """A fresh medium for the blobs of one session."""

    def owner(self) -> Blobs:
        """The blobs, as the process sees them that holds the lease."""

    def reader(self) -> Blobs:
        """The blobs, as a process sees them that does not."""

    def spoil(self, name: str) -> None:
        """Change the content of a blob behind everybody's back."""

    def lose_power(self) -> None:
        """Keep only what is durable."""


CONTENTS = (b"", b"x", b"\0" * 5000, "ünï".encode() * 40_000)


def _put_is_durable(bench: BlobBench) -> None:
    names = [bench.owner().put(content) for content in CONTENTS]
    must(names == [hashlib.sha256(content).hexdigest() for content in CONTENTS], "a blob is named by what it holds")
    bench.lose_power()
    must([bench.reader().get(name) for name in names] == list(CONTENTS), "what was put is there after a power loss")
    must(list(bench.reader().names()) == sorted(names), "and is listed")


def _get_is_verified(bench: BlobBench) -> None:
    name = bench.owner().put(b"content")
    bench.spoil(name)
    refuses_now(BlobDamaged, lambda: bench.reader().get(name))
    for missing in ("0" * 64, "", "../wal.log", "x" * 64):
        refuses_now(BlobDamaged, partial(bench.reader().get, missing))


def _put_again_repairs(bench: BlobBench) -> None:
    name = bench.owner().put(b"content")
    must(bench.owner().put(b"content") == name, "the same content has the same name")
    bench.spoil(name)
    bench.owner().put(b"content")
    bench.lose_power()
    must(bench.reader().get(name) == b"content", "a damaged one is replaced, durably")


def _only_the_owner_changes(bench: BlobBench) -> None:
    name = bench.owner().put(b"content")
    refuses_now(LeaseLost, lambda: bench.reader().put(b"other"))
    refuses_now(LeaseLost, lambda: bench.reader().collect(()))
    must(list(bench.reader().names()) == [name], "nothing was changed")


def _only_the_unnamed_is_collected(bench: BlobBench) -> None:
    kept, gone = bench.owner().put(b"kept"), bench.owner().put(b"gone")
    must(list(bench.owner().collect({kept})) == [gone], "what no record names is removed")
    must(list(bench.reader().names()) == [kept] and bench.reader().get(kept) == b"kept", "and nothing else")
    must(list(bench.owner().collect({kept})) == [], "once")


BLOB_CHECKS: Mapping[str, Callable[[BlobBench], None]] = {
    "BLOB-1": _put_is_durable,
    "BLOB-2": _get_is_verified,
    "BLOB-3": _put_again_repairs,
    "BLOB-4": _only_the_owner_changes,
    "BLOB-5": _only_the_unnamed_is_collected,
}


def check_blobs(make_bench: Callable[[], BlobBench]) -> None:
    """Hold an adapter to BLOB-1 to BLOB-5, each on a fresh bench; raises InvariantBroken where it differs."""
    for check in BLOB_CHECKS.values():
        check(make_bench())
