"""A13: the key that the whole suite runs with is found wherever it would show; the suite itself shows it nowhere."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from semel.adapters.models.catalog import build_model
from semel.adapters.tools.command import CALL_KEY_VARIABLE
from semel.testing.model_server import ModelServer
from tests.models.models_support import HandClock, ask, outcome
from tests.support import canary


def test_a_child_that_prints_the_key_is_caught() -> None:
    program = "import os, sys; print(os.environ['OPENAI_API_KEY']); print(os.environ['XAI_API_KEY'], file=sys.stderr)"
    subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, env=dict(os.environ))
    assert [leak.split(" of ")[0] for leak in canary.take_leaks()] == ["the stdout", "the stderr"]


def test_a_command_line_and_a_tool_that_get_the_key_are_caught() -> None:
    subprocess.run([sys.executable, "-c", "", canary.KEY], check=True)
    assert len(canary.take_leaks()) == 1
    subprocess.run([sys.executable, "-c", ""], check=True, env={**os.environ, CALL_KEY_VARIABLE: "k"})
    (leak,) = canary.take_leaks()
    assert leak.startswith("the environment of a tool's process")


def test_a_file_that_holds_the_key_is_caught_and_others_are_not(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "wal.log").write_text(f"x {canary.KEY} y")
    (tmp_path / "deep" / "cut").write_text(f"x {canary.KEY[:8]}…")
    (tmp_path / "empty").touch()
    (tmp_path / "other").write_text(canary.KEY[:7])
    assert sorted(canary.leaks_in(tmp_path)) == [tmp_path / "deep" / "cut", tmp_path / "deep" / "wal.log"]
    for name in ("cut", "wal.log"):
        (tmp_path / "deep" / name).unlink()


@pytest.mark.anyio
async def test_every_request_of_the_suite_to_this_machine_carries_the_key() -> None:
    async with ModelServer({"answers": [{"text": "hi"}]}) as server:
        model = build_model(f"openai_chat:m@{server.url}", clock=HandClock(), environ=os.environ)
        await outcome(model, ask())
        await model.close()
        assert server.requests[0].headers["authorization"] == f"Bearer {canary.KEY}"
