"""V31: failures and redelivery end to end: `semel run`, a real loopback server, exact sends, cause and exit (H1 to H3, H7)."""

import json
import os
import socket
import subprocess
import sys

import pytest
from wire_support import WIRES

from semel.testing.model_server import serve_in_thread

AGENT = """
name = "headless"
model = "{model}"
limits = {{ model_retries = 1 }}
model_options = {{ limits = {{ idle_ms = 300, first_content_ms = 600, progress_ms = 600 }} }}
"""
SAID = {"text": "It is done, all of it.", "chunk": 3}


def run(tmp_path, model: str) -> tuple[int, dict, str]:
    """The exit code, status.json and what was said on stderr."""
    (tmp_path / "agent.toml").write_text(AGENT.format(model=model))
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": ":".join(sys.path), "HOME": str(tmp_path)}
    command = [sys.executable, "-m", "semel", "run", "Do it", "--session", "s", "--json", "--status", "status.json"]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False, timeout=50)
    return done.returncode, json.loads((tmp_path / "status.json").read_text()), done.stderr


def again(fault: dict, times: int | None) -> dict:
    return {"answers": [{**SAID, "fault": {**fault, "times": times}}]}


long = pytest.mark.prove


@pytest.mark.parametrize("family", sorted(WIRES))
def test_a_redelivery_that_succeeds_exits_with_0_in_every_family(family, tmp_path):
    with serve_in_thread(again({"kind": "status", "status": 503}, 1)) as server:
        code, status, _ = run(tmp_path, f"{family}:m@{server.url}")
        assert (code, status["state"], len(server.requests)) == (0, "completed", 2)
        assert len({received.sha256 for received in server.requests}) == 1


TOO_LONG = {"kind": "status", "status": 429, "headers": {"retry-after": "9999"}}
CASES = {
    "429, then an answer": (again({"kind": "status", "status": 429}, 1), 0, 2, None),
    "429 for ever": (again({"kind": "status", "status": 429}, None), 1, 2, "rate_limit"),
    "500 for ever": (again({"kind": "status", "status": 500}, None), 1, 2, "server_error"),
    "400": (again({"kind": "status", "status": 400}, None), 1, 1, "invalid_request"),
    "401": (again({"kind": "status", "status": 401}, None), 4, 1, "auth"),
    "402": (again({"kind": "status", "status": 402}, None), 1, 1, "quota_exhausted"),
    "a wait that is too long": (again(TOO_LONG, None), 1, 1, "rate_limit"),
    "cut before output": (again({"kind": "cut", "at": 0, "how": "no_last_chunk"}, 1), 0, 2, None),
    "cut for ever": (again({"kind": "cut"}, None), 1, 2, "interrupted"),
    "a stall before output": (again({"kind": "stall", "at": 0}, 1), 0, 2, None),
    "a stall for ever behind output": (again({"kind": "stall", "at": 900}, None), 1, 2, "timeout"),
}  # fmt: skip


FIRST_CASES = {"500 for ever", "400", "a wait that is too long", "a stall for ever behind output"}


@pytest.mark.parametrize("name", [name if name in FIRST_CASES else pytest.param(name, marks=long) for name in CASES])
def test_a_failure_keeps_its_cause_its_sends_are_counted_and_the_lease_is_free_again(name, tmp_path):
    script, exit_code, sends, failure = CASES[name]
    with serve_in_thread(script) as server:
        code, status, said = run(tmp_path, f"openai_chat:m@{server.url}")
        assert (code, len(server.requests)) == (exit_code, sends), said
    if failure is None:
        assert status["state"] == "completed"
    else:
        state = "paused" if failure == "auth" else "failed"  # another key makes the same request good
        assert (status["state"], status["exit"], status["error"]["code"]) == (state, exit_code, failure)
        assert "127.0.0.1" in status["error"]["message"]  # the cause, not a storage error
    with serve_in_thread({"answers": [SAID, SAID]}) as server:  # the session is neither bricked nor held
        code, _, said = run(tmp_path, f"openai_chat:m@{server.url}")
        assert code == 0, said


def test_a_host_that_cannot_be_reached_is_told_so(tmp_path):
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        code, status, said = run(tmp_path, f"anthropic_messages:m@http://127.0.0.1:{held.getsockname()[1]}")
    assert (code, status["error"]["code"]) == (1, "unreachable")
    assert "no connection" in status["error"]["message"]
    assert "no connection" in said
