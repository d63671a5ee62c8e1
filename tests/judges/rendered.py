"""Keeps every request that this process renders or that a scripted peer of its tests receives, from whatever process.

The last test has all of them judged. What a peer receives is semel's where it says so by its user agent: the official clients
and the tests that speak HTTP by hand are nobody's to judge here.
"""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import NamedTuple

from semel.adapters.models.rendering import Renderer
from semel.testing.formats import FORMATS
from semel.testing.model_server import ModelServer

OURS = "semel"


class Asked(NamedTuple):
    """One request: its wire family, whether it only counts tokens, and its body."""

    family: str
    counts: bool
    body: bytes


RENDERED: dict[str, Asked] = {}
"""By digest: what this process rendered."""
RECEIVED: dict[str, Asked] = {}
"""By digest: what the peers of this process received, and those that left a journal."""


def keep() -> None:
    """From now on, keep what every renderer renders and what every peer receives."""
    if hasattr(Renderer.render, "__wrapped__"):
        return
    render, witness = Renderer.render, ModelServer._witness

    @wraps(render)
    def keeping(self, prompt):
        request = render(self, prompt)
        bundle = getattr(self._form, "_bundle", None)
        if bundle is not None:
            _keep_in(RENDERED, Asked(bundle.family, False, request.body))
        return request

    @wraps(witness)
    def witnessing(self, path, body, headers):
        if headers.get("user-agent") == OURS:
            received(path, body)
        return witness(self, path, body, headers)

    Renderer.render = keeping
    ModelServer._witness = witnessing


def received(path: str, body: bytes) -> None:
    """Keep a request that came to a peer under this path."""
    path = path.partition("?")[0]
    for family, served in FORMATS.items():
        counts = served.count_path is not None and served.count_path.fullmatch(path) is not None
        if counts or served.path.fullmatch(path):
            _keep_in(RECEIVED, Asked(family, counts, body))


def received_by(journal: Path, path: str) -> None:
    """Keep what a peer in a process of its own received, all of it under this path."""
    for line in journal.read_bytes().splitlines() if journal.exists() else ():
        received(path, json.loads(line)["body"].encode())


def from_elsewhere() -> list[Asked]:
    """What arrived and was rendered by another process."""
    return [asked for digest, asked in RECEIVED.items() if digest not in RENDERED and not asked.counts]


@contextmanager
def apart() -> Iterator[dict[str, Asked]]:
    """What is received meanwhile is not kept for the verdict, for faults that are planted."""
    before = dict(RECEIVED)
    RECEIVED.clear()
    found: dict[str, Asked] = {}
    try:
        yield found
    finally:
        found.update(RECEIVED)
        RECEIVED.clear()
        RECEIVED.update(before)


def _keep_in(kept: dict[str, Asked], asked: Asked) -> None:
    kept.setdefault(f"{asked.family} {asked.counts} {hashlib.sha256(asked.body).hexdigest()}", asked)
