"""A command as a tool: what it is given, what its end means, what is shown of its output."""

import fcntl
import json
import os
import sys
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tool_support import DATA, SystemClock, a_call

from semel.adapters.tools.capture import Capture
from semel.adapters.tools.command import CommandTool, child_environment, command_tool
from semel.core.arguments import check_arguments
from semel.core.values import Effect
from semel.errors import BadAgent, CallNotSent, OutcomeUnknown, ToolFailed
from semel.ports.tool import Happened, Never, ProcessMark, StillUnknown

pytestmark = pytest.mark.anyio


def a_tool(*command: str, directory: Path = DATA, **table: Any) -> CommandTool:
    return command_tool("tool", {"command": list(command), **table}, directory=directory, clock=SystemClock())


def script(directory: Path, name: str, *lines: str) -> Path:
    path = directory / name
    path.write_text("#!/bin/sh\n" + "\n".join(lines) + "\n")
    path.chmod(0o755)
    return path


def python(code: str, **table: Any) -> CommandTool:
    return a_tool(sys.executable, "-c", code, **table)


async def test_exit_code_0_is_the_output() -> None:
    assert await a_tool("sh", "-c", "echo one; echo two").run({}, a_call()) == "one\ntwo"
    assert await a_tool("true").run({}, a_call()) == ""
    assert await a_tool("sh", "-c", "echo out; echo warning >&2").run({}, a_call()) == "out\n[stderr]\nwarning"


async def test_another_exit_code_is_a_definite_failure_with_what_was_said() -> None:
    with pytest.raises(ToolFailed) as caught:
        await a_tool("sh", "-c", "echo partly; echo 'no such order' >&2; exit 3").run({}, a_call())
    assert str(caught.value) == "the command ended with exit code 3"
    assert caught.value.output == "partly\n[stderr]\nno such order"


@pytest.mark.parametrize("signal_name", ["KILL", "TERM", "SEGV"])
async def test_a_command_that_is_signalled_leaves_its_outcome_unknown(signal_name: str) -> None:
    with pytest.raises(OutcomeUnknown, match=f"ended by SIG{signal_name}; it had said: oh"):
        await a_tool("sh", "-c", f"ulimit -c 0; echo oh >&2; kill -{signal_name} $$").run({}, a_call())


async def test_a_command_that_cannot_be_started_was_not_sent(tmp_path: Path) -> None:
    (tmp_path / "not-executable").write_text("#!/bin/sh\n")
    spawned: list[ProcessMark] = []
    never_started = [
        a_tool("no-such-program-at-all"),
        a_tool("./missing", directory=tmp_path),
        a_tool("./not-executable", directory=tmp_path),
        a_tool("true", directory=tmp_path / "gone"),
    ]
    for found in never_started:
        with pytest.raises(CallNotSent, match="could not be started"):
            await found.run({}, a_call(spawned=spawned.append))
    echo = a_tool("echo", "{text}", args={"text": "string"})
    for text in ("nul \0 inside", "x" * 4_000_000):
        with pytest.raises(CallNotSent, match="could not be started"):
            await echo.run({"text": text}, a_call(spawned=spawned.append))
    assert spawned == []


async def test_the_process_is_made_known_right_after_it_was_started() -> None:
    marks: list[ProcessMark] = []
    pid = await a_tool("sh", "-c", "echo $$").run({}, a_call("key-7", spawned=marks.append))
    assert [str(mark.pid) for mark in marks] == [pid]
    assert marks[0].started > 0
    assert marks[0].boot
    assert marks[0].call_key == "key-7"


async def test_each_placeholder_stays_within_its_item_and_no_shell_sees_it(tmp_path: Path) -> None:
    found = a_tool(
        sys.executable,
        "-c",
        "import json, sys; print(json.dumps(sys.argv[1:]))",
        "--order={order}",
        "{order}{cents}",
        "{rate}",
        "{dry}",
        "{call_key}",
        "{} {a b} $HOME {{cents}}",
        args={"order": "string", "cents": "integer", "rate": "number", "dry": "boolean"},
        directory=tmp_path,
    )
    for order in (
        "a b",
        "$(touch pwned)",
        "; touch pwned",
        "`touch pwned`",
        "'\"\n\t*",
        "-rf",
        "--all",
        "{call_key}",
        "{cents}",
        "",
    ):
        told = await found.run({"order": order, "cents": 5, "rate": 0.5, "dry": True}, a_call("key-3"))
        assert json.loads(str(told)) == [f"--order={order}", f"{order}5", "0.5", "true", "key-3", "{} {a b} $HOME {5}"]
    assert list(tmp_path.iterdir()) == []


async def test_an_argument_with_a_default_may_be_left_out() -> None:
    found = a_tool("echo", "{limit}", "{names}", args={"limit": {"type": "integer", "default": 10}, "names": {"type": "array"}})
    schema = json.loads(found.spec.parameters)
    assert schema["required"] == ["names"]
    assert await found.run({"names": ["a", 1]}, a_call()) == '10 ["a",1]'
    assert await found.run({"names": [], "limit": 3}, a_call()) == "3 []"


def test_the_table_of_an_agent_file_becomes_the_spec() -> None:
    found = a_tool(
        "./refund",
        "{order_id}",
        "{cents}",
        args={"order_id": "string", "cents": "integer"},
        effect="idempotent",
        reconcile=["./refund-status", "{call_key}"],
        timeout=30,
        sequential=True,
        interruptible=False,
    ).spec
    assert (found.effect, found.reconciles, found.timeout_ms) == (Effect.IDEMPOTENT, True, 30_000)
    assert (found.sequential, found.interruptible) == (True, False)
    assert found.description == "Runs refund"
    assert json.loads(found.parameters) == {
        "type": "object",
        "properties": {"order_id": {"type": "string"}, "cents": {"type": "integer"}},
        "required": ["order_id", "cents"],
        "additionalProperties": False,
    }
    assert check_arguments(found.parameters, {"order_id": "17", "cents": "5"}) is not None


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({}, "missing required field `command`"),
        ({"command": []}, "needs a program"),
        ({"command": "ls -l"}, "Expected `array`"),
        ({"command": ["ls"], "shell": True}, "unknown field `shell`"),
        ({"command": ["{program}"], "args": {"program": "string"}}, "cannot depend on an argument"),
        ({"command": ["ls", "{path}"]}, "{path} is not an argument; there are call_key"),
        ({"command": ["ls"], "reconcile": ["status", "{key}"]}, "{key} is not an argument"),
        ({"command": ["ls"], "args": {"path": "string"}}, "'path' is not used"),
        ({"command": ["ls", "{call_key}"], "args": {"call_key": "string"}}, "the call's own key"),
        ({"command": ["ls", "{path}"], "args": {"path": "text"}}, "not 'text'"),
        ({"command": ["ls", "{path}"], "args": {"path": {"type": "text"}}}, "schema is not valid"),
        ({"command": ["ls"], "effect": "maybe"}, "Invalid enum value 'maybe' - at `$.effect`"),
        ({"command": ["ls"], "timeout": -1}, "timeout"),
        ({"command": ["ls"], "output_bytes_max": 1}, "output_bytes_max"),
    ],
)
def test_a_wrong_table_is_refused_by_the_name_of_what_is_wrong(table: dict[str, Any], said: str) -> None:
    with pytest.raises(BadAgent) as caught:
        command_tool("refund", table, directory=DATA, clock=SystemClock())
    assert said in str(caught.value)
    assert "'refund'" in str(caught.value)


async def test_a_relative_program_and_the_working_directory_are_those_of_the_agent_file(tmp_path: Path) -> None:
    home = tmp_path / "agent"
    (home / "bin").mkdir(parents=True)
    script(home / "bin", "where", "pwd")
    assert await a_tool("./bin/where", directory=home).run({}, a_call()) == str(home)
    assert await a_tool("bin/where", directory=home).run({}, a_call()) == str(home)
    relative = Path(os.path.relpath(home))
    assert await a_tool("./bin/where", directory=relative).run({}, a_call()) == str(home)


REPORT = (
    "import json, os\n"
    "def is_open(number):\n"
    "    try: os.fstat(number)\n"
    "    except OSError: return False\n"
    "    return True\n"
    "numbers = [number for number in map(int, os.listdir('/proc/self/fd')) if is_open(number)]\n"
    "print(json.dumps({'env': dict(os.environ), 'fds': sorted(numbers), 'pid': os.getpid(), 'session': os.getsid(0),\n"
    "                  'group': os.getpgid(0), 'stdin': os.read(0, 10).decode()}))\n"
)


async def test_a_child_gets_a_short_list_of_variables_and_three_descriptors(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CANARY_SECRET", "canary-5f1c")
    monkeypatch.setenv("STRIPE_KEY", "declared")
    monkeypatch.setenv("LC_TIME", "C")
    monkeypatch.setenv("LANG", "() { :; }; echo pwned")
    monkeypatch.setenv("SEMEL_CALL_KEY", "of an outer call")
    with (tmp_path / "open").open("w") as inherited:
        os.set_inheritable(inherited.fileno(), True)
        fcntl.flock(inherited, fcntl.LOCK_EX)
        told = await python(REPORT, env=["STRIPE_KEY", "NOT_SET"]).run({}, a_call("key-5"))
    assert "canary" not in str(told)
    report = json.loads(str(told))
    allowed = {"HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER", "TMPDIR"}
    assert {name for name in report["env"] if name not in allowed and not name.startswith("LC_")} == {
        "SEMEL_CALL_KEY",
        "STRIPE_KEY",
    }
    assert report["env"]["SEMEL_CALL_KEY"] == "key-5"
    assert report["env"]["PATH"] == os.environ["PATH"]
    assert report["fds"] == [0, 1, 2]
    assert report["pid"] == report["session"] == report["group"]
    assert report["stdin"] == ""


def test_the_environment_of_a_child_is_a_pure_choice_from_ours() -> None:
    ours = {"HOME": "/h", "AWS_SECRET": "s", "LC_ALL": "C", "LCX": "no", "TERM": "() { x; }", "MINE": "yes", "PATHS": "no"}
    assert child_environment(ours, ["MINE"]) == {"HOME": "/h", "LC_ALL": "C", "MINE": "yes"}


async def test_b19_bytes_that_are_not_text_are_shown_as_far_as_they_are() -> None:
    told = await a_tool("cat", "B19-tool-output.bin").run({}, a_call())
    assert told == "latin1 \ufffd bytes, utf-8 emoji \U0001f600, cut emoji at end \ufffd"
    json.dumps(told, ensure_ascii=False).encode()


async def test_nul_in_the_output_is_replaced() -> None:
    assert await a_tool("printf", r"a\000b").run({}, a_call()) == "a\ufffdb"


async def test_a_flood_of_output_is_kept_at_both_ends_and_cut_in_the_middle() -> None:
    code = "import sys\nfor number in range(400_000): print(number)\nprint('the end', file=sys.stderr)"
    told = str(await python(code, output_bytes_max=4096).run({}, a_call()))
    lines = told.split("\n")
    assert lines[:3] == ["0", "1", "2"]
    assert lines[-3:] == ["399999", "[stderr]", "the end"]
    assert "bytes cut ...]" in told
    assert len(told) < 4096 + 100


@settings(max_examples=300, deadline=None)
@given(chunks=st.lists(st.binary(max_size=60) | st.text(max_size=20).map(str.encode), max_size=12), bytes_max=st.integers(2, 80))
def test_a_capture_is_bounded_clean_and_honest_about_what_it_cut(chunks: list[bytes], bytes_max: int) -> None:
    capture = Capture(bytes_max)
    for chunk in chunks:
        capture.add(chunk)
    data = b"".join(chunks)
    text = capture.text
    text.encode()
    assert "\0" not in text
    if len(data) <= bytes_max // 2 * 2:
        assert text == data.decode("utf-8", "replace").replace("\0", "\ufffd").rstrip("\r\n")
    else:
        assert "bytes cut ...]" in text
        assert len(text) <= bytes_max + len(f"\n[... {len(data)} bytes cut ...]\n")


def test_a_cut_never_splits_a_code_point() -> None:
    for bytes_max in range(8, 40):
        capture = Capture(bytes_max)
        for _ in range(50):
            capture.add("\U0001f600".encode())
        assert {c for c in capture.text if unicodedata.category(c) == "So"} <= {"\U0001f600"}
        assert "\ufffd" not in capture.text


def test_a_capture_holds_no_more_than_it_keeps() -> None:
    capture = Capture(1000)
    for _ in range(2_000):
        capture.add(b"x" * 65_536)
    assert len(capture._head) + len(capture._tail) <= 2_000


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        (["echo refunded $1"], Happened(output="refunded key-1")),
        (["exit 1"], Never()),
        (["echo 'Traceback: connection refused' >&2", "exit 1"], StillUnknown()),
        (["exit 2"], StillUnknown()),
        (["kill -9 $$"], StillUnknown()),
    ],
)
async def test_a_reconcile_command_answers_by_its_exit_code(tmp_path: Path, lines: list[str], found: Any) -> None:
    script(tmp_path, "status", *lines)
    asked = a_tool("true", reconcile=["./status", "{call_key}"], directory=tmp_path)
    assert await asked.reconcile(a_call("key-1")) == found


async def test_a_reconcile_command_that_cannot_be_started_has_found_out_nothing(tmp_path: Path) -> None:
    asked = a_tool("true", reconcile=["./gone", "{call_key}"], directory=tmp_path)
    assert await asked.reconcile(a_call()) == StillUnknown()


async def test_a_reconcile_command_may_use_the_arguments_of_the_call(tmp_path: Path) -> None:
    asked = a_tool("true", "{order}", args={"order": "string"}, reconcile=["echo", "{order}"], directory=tmp_path)
    assert await asked.reconcile(a_call(arguments={"order": "17"})) == Happened(output="17")
