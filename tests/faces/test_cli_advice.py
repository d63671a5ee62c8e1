"""What a command advises can be pasted: it decides nothing by itself, and it goes to the state that was meant."""

import json
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from semel.core.codec import encode
from semel.core.frame import encode_frames, scan
from semel.core.records import TurnFinished
from semel.errors import StoreError
from semel.faces.agentfile import load_agent_file
from semel.faces.cli.carry import write_status
from semel.faces.cli.remedies import keep_state, with_state
from semel.ports.log import Payload
from semel.testing.model_server import serve_in_thread
from tests.faces.support import PAY, Shop, open_shop
from tests.faces.test_cli_refusals import damage, make_newer

TWICE = ({"calls": [PAY, PAY]}, {"text": "It is paid."}, {"text": "Still paid."})
AT_ONCE = 'echo "$1 $2" >> ledger.txt\nkill -9 $$\n'


def interrupted_twice(place: Path) -> tuple[Shop, list[str]]:
    """A session with two unknown calls: both tools were killed."""
    shop = open_shop(place, *TWICE)
    (place / "pay.sh").write_text(AT_ONCE)
    done = shop.semel("run", "Pay twice", "--session", "s", "--json")
    assert done.exit == 3
    return shop, [call["call_key"] for call in done.json["unknown_calls"]]


def test_advice_on_an_unknown_call_decides_nothing_when_it_is_pasted(tmp_path: Path) -> None:
    shop = open_shop(tmp_path)
    shop.interrupted()
    (item,) = shop.semel("inbox", "--json").lines
    shown = next(line.strip() for line in shop.semel("show", "s").out.splitlines() if "semel resolve" in line)
    assert shown == item["next"]
    records = shop.status("s")["head_seq"]
    pasted = shop.semel(*shlex.split(shown)[1:])
    assert pasted.exit == 2
    assert shop.semel("show", "s", "--json").json["head_seq"] == records
    meant = shown.replace("VERDICT", "--happened")
    assert shop.semel(*shlex.split(meant)[1:]).exit == 0, "the same line with a verdict does"


def test_advice_on_several_calls_names_all_and_goes_on_behind_the_last(tmp_path: Path) -> None:
    shop, keys = interrupted_twice(tmp_path)
    first, second = (key[:8] for key in keys)
    commands = [f"semel resolve {first} VERDICT", f"semel resolve {second} VERDICT --continue"]
    told = shop.semel("resume", "s").refusal()
    assert f"`{commands[0]}`, `{commands[1]}`, where VERDICT is" in told
    assert [line["next"] for line in shop.semel("inbox", "--json").lines] == commands
    assert [line.strip() for line in shop.semel("show", "s").out.splitlines() if "semel resolve" in line] == commands
    early = shop.semel("resolve", second, "--happened", "--continue")
    assert f"goes on while the outcome of pay ({first}) is still unknown" in early.err


def test_advice_keeps_the_state_directory_that_was_given(tmp_path: Path) -> None:
    shop = open_shop(tmp_path)
    key = shop.interrupted()
    shop.state.rename(tmp_path / "my state")
    given = ("--state", "my state")
    end = "--state 'my state'"
    assert f"`semel resolve {key[:8]} VERDICT --continue {end}`" in shop.semel("resume", "s", *given).refusal()
    assert f"semel resolve {key[:8]} VERDICT --continue {end}\n" in shop.semel("show", "s", *given).out
    assert shop.semel("inbox", "--json", *given).json["next"].endswith(end)
    assert f"`semel ls {end}` lists those" in shop.semel("show", "nobody", *given).refusal()


def test_a_verdict_is_shown_with_what_came_with_it_and_the_run_that_went_on(tmp_path: Path) -> None:
    shop = open_shop(tmp_path)
    key = shop.interrupted()
    (tmp_path / "receipt").write_text("receipt 5")
    assert shop.semel("resolve", key, "--happened", "--output", "receipt", "--note", "by phone", "--continue").exit == 0
    first, second = shop.semel("show", "s", "--json").json["runs"]
    (call,) = first["steps"][0]["calls"]
    assert (call["verdict"], call["verdict_output"], call["note"]) == ("happened", "receipt 5", "by phone")
    assert (first["continued_as"], second["continued_as"]) == (second["run_id"], None)
    text = shop.semel("show", "s").out
    assert "unknown, resolved as happened by operator (note: by phone): receipt 5" in text
    assert f"continued as {second['run_id'][:8]}" in text
    assert "Outcome unknown" not in text


def test_a_model_given_for_an_open_run_is_said_to_wait(tmp_path: Path) -> None:
    for words in (("resume", "s"), ("send", "Hi", "--session", "s")):
        place = tmp_path / words[0]
        place.mkdir()
        shop = open_shop(place)
        (place / "other.json").write_text((place / "script.json").read_text())
        shop.kill(shop.start_and_pay("run", "Pay 17", "--session", "s"))
        done = shop.semel(*words, "--model", "scripted:other.json")
        assert "the open run of session 's' keeps its frozen model" in done.err.splitlines()[0]
        assert "keeps its frozen model" not in shop.semel("resume", "s", "--model", "scripted:other.json").err


def test_an_inbox_that_could_not_look_everywhere_is_not_empty(tmp_path: Path) -> None:
    shop = open_shop(tmp_path)
    shop.semel("run", "Pay 17", "--session", "s")
    assert shop.semel("inbox").err == "the inbox is empty\n"
    damage(shop.log("s"))
    done = shop.semel("inbox")
    assert (done.exit, done.err) == (6, "")
    assert done.out.startswith("session s cannot be read")


@pytest.mark.parametrize("words", [("ls",), ("run", "Pay 17"), ("show", "s", "--json"), ("--help",)], ids=" ".join)
def test_a_stdout_that_is_full_is_one_line_and_exit_1(tmp_path: Path, words: tuple[str, ...]) -> None:
    shop = open_shop(tmp_path)
    shop.semel("run", "Pay 17", "--session", "s")
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "semel", *words]
        environment = shop.environment({})
        done = subprocess.run(command, cwd=tmp_path, env=environment, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    (line,) = done.stderr.splitlines()
    assert (done.returncode, line[:31]) == (1, "semel: stdout cannot be written")
    assert "No space left on device" in line


def test_a_refusal_with_json_is_an_object_too(tmp_path: Path) -> None:
    shop = open_shop(tmp_path)
    for words, code in ((("show", "nobody"), "unknown_session"), (("run",), "usage"), (("run", "Hi", "--stream"), "usage")):
        done = shop.semel(*words, "--json")
        (line,) = done.err.splitlines()
        assert done.json["error"] == {"code": code, "message": line.removeprefix("semel: "), "exit": 2}
        assert done.exit == 2
    assert shop.semel("show", "--", "--json").out == "", "there it is the name of a session"


def test_a_model_that_is_not_there_is_looked_up_under_models(tmp_path: Path) -> None:
    fault = {"kind": "status", "status": 404, "body": {"error": {"message": "no such model"}}, "times": None}
    with serve_in_thread({"answers": [{"fault": fault}]}) as server:
        done = open_shop(tmp_path, model=f"openai_chat:m@{server.url}").semel("run", "Hi")
    assert "Check the name of the model and its URL; `semel models` shows" in done.refusal()


def test_a_pipe_in_the_place_of_a_file_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    shop = open_shop(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    agent = tmp_path / "agent.toml"
    agent.write_text(agent.read_text().replace('"You pay invoices."', '"file:pipe"'))
    assert "pipe cannot be read: it is no regular file" in shop.semel("run", "Hi").refusal()
    assert "pipe cannot be read: it is no regular file" in shop.semel("run", "Hi", "--agent", "pipe").refusal()
    (tmp_path / "pipe").unlink()
    (tmp_path / "pipe").write_bytes(b"x" * (1 << 20))
    assert len(str(load_agent_file(agent).instructions)) == 1 << 20


def test_a_status_is_not_written_through_a_link_in_the_place_of_its_new_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    victim, link = tmp_path / "victim", tmp_path / ".status.json.guessed.new"
    victim.write_text("mine")
    link.symlink_to(victim)
    monkeypatch.setattr("secrets.token_hex", lambda _bytes: "guessed")
    with pytest.raises(StoreError, match="File exists"):
        write_status(tmp_path / "status.json", b"{}")
    assert victim.read_text() == "mine"
    assert link.is_symlink(), "what is not ours is left alone"


def test_a_status_file_is_not_written_through_a_link_that_lies_there(tmp_path: Path) -> None:
    shop = open_shop(tmp_path)
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (tmp_path / "status.json").symlink_to(victim)
    assert shop.semel("run", "Pay 17", "--status", "status.json").exit == 0
    assert victim.read_text() == "mine"
    assert json.loads((tmp_path / "status.json").read_bytes())["state"] == "completed"
    assert not list(tmp_path.glob(".status*"))


def test_leaving_at_once_gives_the_cursor_back(tmp_path: Path) -> None:
    shop = open_shop(tmp_path)
    for name in ("paid", "till"):
        os.mkfifo(tmp_path / name)
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "semel", "run", "Pay 17"]
    environment = shop.environment({"TERM": "xterm-256color"})
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stdin=slave, stdout=slave, stderr=slave) as process:
        os.close(slave)
        assert (tmp_path / "paid").read_text() == "paid\n"
        process.send_signal(signal.SIGINT)
        said = b""
        while b"stopping" not in said:
            said += read(master)
        process.send_signal(signal.SIGINT)
        while part := read(master):
            said += part
    os.close(master)
    shop.end_tool()
    assert b"left at once" in said
    assert said.rindex(b"\x1b[?25h") > said.rindex(b"\x1b[?25l")
    assert process.returncode == 130


def read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # the other side is closed
        return b""


def test_verify_counts_what_is_good_before_what_it_cannot_read(tmp_path: Path) -> None:
    shop = open_shop(tmp_path)
    for session in ("newer", "corrupt"):
        shop.semel("run", "Pay 17", "--session", session)
    head = shop.status("newer")["head_seq"]
    sizes = [shop.log(session).stat().st_size for session in ("corrupt", "newer")]
    digests = [shop.status(session)["head_digest"] for session in ("corrupt", "newer")]
    make_newer(shop.log("newer"))
    append_contradiction(shop.log("corrupt"))
    logs = shop.semel("verify", "--json").json["logs"]
    assert [log["verdict"] for log in logs] == ["corrupt", "newer"]
    assert [(log["records"], log["head_seq"], log["seq"]) for log in logs] == [(head, head, head + 1)] * 2
    assert [log["offset"] for log in logs] == sizes
    assert [log["head_digest"] for log in logs] == digests
    assert "Nothing was changed" not in shop.semel("verify").out


def append_contradiction(log: Path) -> None:
    """Append an intact record that belongs to no open run."""
    raw = log.read_bytes()
    point = scan(raw).point
    payload, requires = encode(TurnFinished(run_id="0" * 32, step_id=1))
    batch = [Payload(json=payload, requires=requires)]
    log.write_bytes(raw + encode_frames(batch, point, at_ms=0, fence=point.fence, synced=point.seq - 1).data)


ODD = "a;touch pwn`touch pwned`'"


def odd_shop(place: Path) -> Shop:
    """A state directory that is not where one is looked for, with an open run, and a session whose name a shell would run."""
    shop = open_shop(place)
    shop.kill(shop.start_and_pay("run", "Pay 17", "--session", "s"))
    assert shop.semel("run", "Hi", "--session", ODD).exit == 0
    odd = next(path for path in (shop.state / "sessions").iterdir() if path.name != "s")
    (odd / "status.json").unlink()
    shop.state.rename(place / "my state")
    return shop


def advised(text: str) -> list[str]:
    """The commands that a text names, as a shell would get them."""
    return [match[0].strip("`") for match in re.finditer(r"""`semel (?:'[^']*'|"[^"]*"|[^`])*`""", text)]


def test_what_doctor_advises_goes_to_the_state_that_was_given_and_can_be_pasted_into_a_shell(tmp_path: Path) -> None:
    shop = odd_shop(tmp_path)
    given = ("--state", "my state")
    found = shop.semel("doctor", "--json", *given).json["findings"]
    told = {one["about"]: one["advice"] for one in found if "advice" in one}
    (odd,), (open_run,) = advised(told[ODD]), advised(told["s"])
    assert shlex.split(odd) == ["semel", "resume", ODD, *given]
    assert shlex.split(open_run) == ["semel", "resume", "s", *given]
    assert odd in shop.semel("doctor", *given).out
    pasted = subprocess.run(
        ["sh", "-c", odd.replace("semel", f"{sys.executable} -m semel", 1)],
        cwd=tmp_path,
        env=shop.environment({}),
        capture_output=True,
        text=True,
        check=False,
    )
    assert pasted.returncode == 0, pasted.stderr
    assert not list(tmp_path.glob("pwn*"))
    careless = f"semel resume {ODD} --state 'my state'"
    subprocess.run(["sh", "-c", careless.rstrip("'")], cwd=tmp_path, capture_output=True, check=False)
    assert list(tmp_path.glob("pwn*")), "control: a name that is not quoted runs"


def test_what_a_session_that_must_be_closed_advises_goes_to_the_state_that_was_given(tmp_path: Path) -> None:
    """It names the one command that destroys something."""
    shop = odd_shop(tmp_path)
    given = ("--state", "my state")
    for directory in (tmp_path / "my state" / "sessions").iterdir():
        (directory / "parking").touch(mode=0o600)
    for session in (ODD, "s"):
        wanted = ["semel", "repair", session, "--accept-loss", *given]
        (told,) = advised(shop.semel("resume", session, *given).refusal())
        assert shlex.split(told) == wanted
        findings = shop.semel("doctor", "--json", *given).json["findings"]
        assert wanted in [
            shlex.split(line) for one in findings if one["about"] == session for line in advised(one.get("advice", ""))
        ]


def test_a_command_that_names_its_own_state_keeps_it() -> None:
    keep_state("mine")
    try:
        assert with_state("see `semel restore bk --state NEW`") == "see `semel restore bk --state NEW`"
        assert with_state("see `semel doctor`, then `semel show 'a`b'`") == (
            "see `semel doctor --state mine`, then `semel show 'a`b' --state mine`"
        )
    finally:
        keep_state(None)
