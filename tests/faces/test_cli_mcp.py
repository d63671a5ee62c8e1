"""MCP servers from an agent file, through the command line: what a run says, and what is left of a run that was killed."""

import json
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from tests.faces.support import Shop

HOSTILE = Path(__file__).parents[1] / "tools/data/mcp_hostile.py"
ANSWERS = ({"calls": [{"name": "mcp__bank__act", "args": {}}]}, {"text": "It is done."})
READY_SECONDS_MOST = 30

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc: what is left of a server is found there")


def open_bank(place: Path, mode: str, *more: str) -> Shop:
    """A shop whose one tool is a server of that mode; it writes a line for each call that reaches it."""
    argv = [sys.executable, "-I", "-S", str(HOSTILE), mode, "calls.txt"]
    lines = ['name = "clerk"', 'model = "scripted:script.json"', "[tools.bank]", f"mcp = {json.dumps(argv)}", *more]
    (place / "agent.toml").write_text("\n".join(lines) + "\n")
    (place / "script.json").write_text(json.dumps({"answers": ANSWERS}))
    return Shop(place)


def calls_of(shop: Shop) -> list[str]:
    path = shop.place / "calls.txt"
    return path.read_text().splitlines() if path.exists() else []


def of_run(run_id: str) -> set[int]:
    """The processes that carry the mark of a run's server and still run; looked up apart from semel."""
    found = set()
    for entry in Path("/proc").iterdir():
        try:
            if f"SEMEL_CALL_KEY={run_id}:bank\0".encode() in (entry / "environ").read_bytes():
                found.add(int(entry.name))
        except OSError:
            continue
    return found


def kill_within_the_call(shop: Shop) -> str:
    """Start a run, kill the runtime by SIGKILL when its call has reached the server, and return the run's id."""
    process = shop.start("run", "Go", "--session", "s")
    deadline = time.monotonic() + READY_SECONDS_MOST
    while not calls_of(shop) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert calls_of(shop)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    return str(shop.status("s")["run_id"])


def test_a_run_calls_a_tool_of_a_server(tmp_path: Path) -> None:
    shop = open_bank(tmp_path, "answers", "trust_hints = true")
    done = shop.semel("run", "Go", "--session", "s")
    assert (done.exit, done.out) == (0, "It is done.\n"), done.err
    assert len(calls_of(shop)) == 1
    assert of_run(str(shop.status("s")["run_id"])) == set()
    (intent,) = [line for line in shop.log("s").read_bytes().splitlines() if b'"type":"tool_dispatch_intent"' in line]
    assert intent.split(b" ")[7] == b"dispatch-module/v1"
    assert b'"module_id":"mcp:bank"' in intent
    assert b'"semantics":"read"' in intent
    assert shop.semel("verify").exit == 0


@linux
def test_p2_a_once_call_of_a_killed_runtime_is_unknown_and_its_server_that_lives_on_is_ended_and_named(tmp_path: Path) -> None:
    shop = open_bank(tmp_path, "lives on without its input")
    run_id = kill_within_the_call(shop)
    left = of_run(run_id)
    assert {int(pid) for pid in calls_of(shop)} <= left, "it outlives its runtime"
    done = shop.semel("resume", "s")
    assert done.exit == 3
    assert "ended what a dead process had left running of call " in done.err
    assert of_run(run_id) == set()
    assert len(calls_of(shop)) == 1, "the call was not sent again"
    (unknown,) = shop.status("s")["unknown_calls"]
    assert unknown["tool"] == "mcp__bank__act"


@linux
def test_b37_what_a_server_left_behind_is_found_when_the_server_itself_is_gone(tmp_path: Path) -> None:
    shop = open_bank(tmp_path, "leaves a child behind")
    run_id = kill_within_the_call(shop)
    deadline = time.monotonic() + READY_SECONDS_MOST
    while {int(pid) for pid in calls_of(shop)} & of_run(run_id) and time.monotonic() < deadline:
        time.sleep(0.01)  # it reads the end of its input
    assert len(of_run(run_id)) == 1
    done = shop.semel("resume", "s")
    assert done.exit == 3
    assert "ended what a dead process had left running of call " in done.err
    assert of_run(run_id) == set()


@linux
def test_an_idle_server_of_a_killed_runtime_is_ended_when_its_run_comes_to_rest(tmp_path: Path) -> None:
    shop = open_bank(tmp_path, "lives on, idle")
    steps = [{"calls": [{"name": "mcp__bank__act", "args": {}}]}, {"text": "It is done.", "delay_ms": 60_000}]
    (tmp_path / "script.json").write_text(json.dumps({"answers": steps}))
    process = shop.start("run", "Go", "--session", "s")
    while b'"type":"turn_finished"' not in (shop.log("s").read_bytes() if shop.log("s").exists() else b""):
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    run_id = str(shop.status("s")["run_id"])
    assert of_run(run_id)
    (tmp_path / "script.json").write_text(json.dumps({"answers": ANSWERS}))
    assert shop.semel("resume", "s").exit == 0
    assert of_run(run_id) == set()
    assert len(calls_of(shop)) == 1


@linux
def test_a_read_call_of_a_killed_runtime_goes_to_a_new_server(tmp_path: Path) -> None:
    shop = open_bank(tmp_path, "hangs the first time", "trust_hints = true")
    run_id = kill_within_the_call(shop)
    done = shop.semel("resume", "s")
    assert done.exit == 0, done.err
    assert of_run(run_id) == set()
    first, second = calls_of(shop)
    assert first != second


def test_a_server_that_is_not_there_is_one_line_and_nothing_is_written(tmp_path: Path) -> None:
    shop = open_bank(tmp_path, "answers")
    text = (tmp_path / "agent.toml").read_text().replace(sys.executable, "mcp-server-bank")
    (tmp_path / "agent.toml").write_text(text)
    done = shop.semel("run", "Go", "--session", "s")
    line = done.refusal()
    assert done.exit == 2
    assert f"{tmp_path}/agent.toml: tools.bank: the MCP server 'mcp-server-bank' cannot be used: it could not be started" in line
    assert "Start it by hand to see why" in line
    assert not shop.log("s").exists()


def test_a_server_that_says_why_it_does_not_start_is_heard(tmp_path: Path) -> None:
    done = open_bank(tmp_path, "start: exits").semel("run", "Go")
    assert done.exit == 2
    assert "it ended with exit code 2; it had said: no token: set BANK_TOKEN" in done.refusal()


def test_a_rule_on_an_argument_that_no_tool_of_the_server_has_is_refused_before_the_run(tmp_path: Path) -> None:
    rule = ["[[policy]]", 'decision = "ask"', 'tool = "mcp__bank__*"', 'when = "cent > 5"']
    done = open_bank(tmp_path, "answers", *rule).semel("run", "Go", "--session", "s")
    assert done.exit == 2
    assert "the tool mcp__bank__echo, of which it speaks too, has no argument cent; there are text" in done.refusal()


def test_a_planted_leftover_is_seen(tmp_path: Path) -> None:
    """The look-up that the tests above trust finds what is there."""
    shop = open_bank(tmp_path, "lives on without its input")
    run_id = kill_within_the_call(shop)
    found = of_run(run_id)
    for pid in found:
        os.kill(pid, signal.SIGKILL)
    assert found
