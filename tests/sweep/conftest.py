"""One model server, one forker and one uncut run for all sweeps."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.judges import rendered
from tests.sweep import reference, talk
from tests.sweep.lives import Lives, Uncut, view
from tests.sweep.reference import PERSISTED


@pytest.fixture(scope="package")
def lives(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lives]:
    yield from lives_of(tmp_path_factory.mktemp("sweep"), reference.SCRIPT)


@pytest.fixture(scope="package")
def talking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lives]:
    yield from lives_of(tmp_path_factory.mktemp("talk"), talk.SCRIPT)


def lives_of(place: Path, told: object) -> Iterator[Lives]:
    """A model server that tells this script, and a forker."""
    script, journal = place / "script.json", place / "journal.jsonl"
    script.write_text(json.dumps(told))
    server = subprocess.Popen(
        [sys.executable, "-m", "semel.testing.model_server", str(script), "--journal", str(journal)],
        stdout=subprocess.PIPE,
        text=True,
    )
    forker = subprocess.Popen(
        [sys.executable, "-m", "tests.sweep.forker"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout is not None
        yield Lives(forker=forker, url=server.stdout.readline().strip(), journal=journal)
    finally:
        for process in (forker, server):
            process.kill()
            process.communicate()
        rendered.received_by(journal, "/v1/chat/completions")


@pytest.fixture(scope="package")
def uncut(lives: Lives, tmp_path_factory: pytest.TempPathFactory) -> Uncut:
    place = tmp_path_factory.mktemp("uncut")
    lives.requests()
    assert lives.live(place) == 0
    calls = json.loads((place / PERSISTED).read_text().splitlines()[-1])
    return Uncut(calls=calls, requests=lives.requests(), records=view(place).state.head)
