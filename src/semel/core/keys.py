"""The ids that derive from the log, and the digests that tell whether a key was used for the same thing (design 14).

None of them enters a request, so that the bytes of a run do not depend on the identity of its log.
"""

import hashlib
from collections.abc import Sequence
from functools import lru_cache

import msgspec

from semel.core.records import Content, Entry
from semel.core.values import DERIVED_DIGITS, JSON, Part, derived_id, digest_text


def run_id_of(lineage: str, key: str) -> str:
    """The run that a key starts."""
    return derived_id("run", lineage, key)


def batch_id_of(lineage: str, run_id: str, step_id: int) -> str:
    """The batch of a step."""
    return derived_id("batch", lineage, run_id, step_id)


def call_key_of(lineage: str, run_id: str, step_id: int, ordinal: int) -> str:
    """The stable public name of a call, and the idempotency key that its tool receives."""
    return derived_id("call", lineage, run_id, step_id, ordinal)


def ids_of_batch(lineage: str, run_id: str, step_id: int, count: int) -> tuple[str, list[str]]:
    """The batch of a step, and the keys of its first `count` calls."""
    batch, call = _within_run(lineage, run_id)
    batch, call = batch.copy(), call.copy()
    batch.update(b"%d" % step_id)
    call.update(b"%d\x1f" % step_id)
    keys: list[str] = []
    for ordinal in range(count):
        digest = call.copy()
        digest.update(b"%d" % ordinal)
        keys.append(digest.hexdigest()[:DERIVED_DIGITS])
    return batch.hexdigest()[:DERIVED_DIGITS], keys


@lru_cache(maxsize=64)
def _within_run(lineage: str, run_id: str) -> "tuple[hashlib._Hash, hashlib._Hash]":
    """The hashes of what the ids of all batches and calls of a run begin with; whoever goes on with them takes a copy."""
    batch, call = [hashlib.sha256(f"{kind}\x1f{lineage}\x1f{run_id}\x1f".encode()) for kind in ("batch", "call")]
    return batch, call


def answer_entry_of(lineage: str, run_id: str, step_id: int) -> str:
    """The entry that the answer of a step will be."""
    return derived_id("answer", lineage, run_id, step_id)


def input_entry_of(lineage: str, key: str) -> str:
    """The entry of the message that a key delivered."""
    return derived_id("input", lineage, key)


def definition(content: Content) -> Entry:
    """Content that later records name by its digest, so that a lineage stores it once (P10)."""
    return Entry(entry_id=digest_text(msgspec.json.encode(content).decode()), content=content)


def canonical(value: JSON) -> str:
    """JSON text with sorted keys and no spaces."""
    return msgspec.json.encode(value, order="sorted").decode()


def digests_of_delivery(text: str, context: JSON, parts: Sequence[Part] = ()) -> dict[str, str]:
    """What must be equal when a key is used again: the input with its files, and the context."""
    said = f"{text}\x1f{msgspec.json.encode(parts).decode()}" if parts else text
    return {"input_digest": digest_text(said), "context_digest": digest_text(canonical(context))}
