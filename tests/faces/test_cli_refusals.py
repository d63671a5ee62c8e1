"""Bad input (the issue's list and more): one line that says what, where and what to do; an exit code; nothing written."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from semel.core.frame import encode_frames, scan
from semel.ports.log import Payload
from semel.testing.model_server import serve_in_thread
from tests.faces.support import SRC, Done, Quiet, Shop, open_shop, tree
from tests.support.notrun import not_run


@pytest.fixture(scope="module")
def standing(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    """A shop that refusals leave as it is: a finished session `s`, one `u` with an unknown call, and `d` and `n` beyond use."""
    shop = open_shop(tmp_path_factory.mktemp("shop"))
    for session in ("s", "d", "n"):
        assert shop.semel("run", "Pay 17", "--session", session).exit == 0
    shop.interrupted("u")
    damage(shop.log("d"))
    make_newer(shop.log("n"))
    (shop.place / "typo.toml").write_text('name = "a"\nmodel = "scripted:script.json"\n[tools.pay]\ncommands = ["pay"]\n')
    (shop.place / "cost.toml").write_text('name = "a"\nmodel = "ollama:x"\nlimits = { cost = "1.00 USD" }\n')
    return shop


def damage(log: Path) -> None:
    """Flip one bit in the middle."""
    raw = bytearray(log.read_bytes())
    raw[len(raw) // 2] ^= 1
    log.write_bytes(raw)


def make_newer(log: Path) -> None:
    """Append an intact record that needs what this build lacks."""
    raw = log.read_bytes()
    found = scan(raw)
    batch = [Payload(json=b'{"type":"dream"}', requires=("dreams/v1",))]
    head = found.point.seq - 1
    log.write_bytes(raw + encode_frames(batch, found.point, at_ms=0, fence=found.point.fence, synced=head).data)


UNUSABLE = [("d", 6, "is damaged at byte"), ("n", 6, "needs dreams/v1: a newer semel wrote it")]
READERS = [("resume",), ("show",), ("tail",), ("preview",), ("tail", "--follow"), ("send", "Hi", "--session")]

REFUSED: list[tuple[tuple[str, ...], int, str]] = [
    *(((*words, "nobody"), 2, "there is no session 'nobody' here; `semel ls`") for words in READERS),
    *(((*words, session), code, said) for words in READERS for session, code, said in UNUSABLE),
    (("verify", "nobody"), 2, "'nobody' is no session here and no file"),
    (("run", "Hi", "--session", "d"), 6, "Nothing was changed"),
    (("run", "Hi", "--agent", "typo.toml"), 2, "typo.toml: tools.pay.commands is no key; did you mean command? allowed are"),
    (("run", "Hi", "--agent", "gone.toml"), 2, "gone.toml cannot be read: No such file"),
    (("run", "Hi", "--agent", "nomodule:agent"), 2, "the module nomodule cannot be imported: ModuleNotFoundError"),
    (("run", "Hi", "--agent", "cost.toml"), 2, "cost limit, but no price is known"),
    (("run", "Hi", "--model", "opnai:gpt-5"), 2, "is no provider; did you mean openai:gpt-5?"),
    (("run", "Hi", "--model", "gpt-5"), 2, "names no model; write provider:model"),
    (("run", "Hi", "--model", "openai:gpt-5"), 2, "set OPENAI_API_KEY"),
    (("run", "Hi", "--model", "scripted:none.json"), 2, "none.json cannot be opened"),
    (("run", "Hi", "--session", "x" * 201), 2, "a session id has 1 to 200 bytes"),
    (("run", "Hi", "--session", ""), 2, "a session id has 1 to 200 bytes"),
    (("run", " "), 2, "the message is empty. See `semel run --help`."),
    (("run",), 2, "Missing argument 'PROMPT'. See `semel run --help`."),
    (("run", "Hi", "--sessions", "s"), 2, "No such option '--sessions'"),
    (("mock", "script.json", "--journal", "/no/where.jsonl"), 2, "the journal /no/where.jsonl cannot be written"),
    (("run", "Hi", "--agent", "/dev/zero"), 2, "the agent file /dev/zero cannot be read: it is no regular file"),
    (("resolve", "ffff", "--happened", "--output", "/dev/zero"), 2, "/dev/zero cannot be read: it is no regular file"),
    (("run", "Hi", "--status", "no/where.json"), 2, "no is no directory"),
    (("rnu", "Hi"), 2, "No such command 'rnu'. See `semel --help`."),
    (("tail", "s", "--after", "soon"), 2, "'soon' is not a valid integer"),
    (("resolve", "ffff"), 2, "say what happened: --happened"),
    (("resolve", "ffff", "--happened"), 2, "no call whose outcome is unknown has a key that starts with 'ffff'"),
    (("resolve", "", "--happened"), 2, "name the call by its key or the start of it"),
    (("resolve", "ffff", "--abandon", "--output", "pay.sh"), 2, "--output goes with --happened only"),
    (("resolve", "ffff", "--happened", "--output", "gone.txt"), 2, "gone.txt cannot be read"),
    (("init",), 2, "agent.toml is there already; it was left alone"),
    (("mock", "gone.json"), 2, "there is no script at gone.json"),
]


@pytest.mark.parametrize(("words", "code", "said"), REFUSED, ids=[" ".join(words)[:60] for words, *_ in REFUSED])
def test_a_refusal_is_one_line_with_its_exit_code_and_writes_nothing(
    standing: Shop, words: tuple[str, ...], code: int, said: str
) -> None:
    before = tree(standing.place)
    done = standing.semel(*words)
    assert done.exit == code
    assert said in done.refusal()
    assert tree(standing.place) == before


def test_the_refusals_are_as_many_as_they_were() -> None:
    assert len(REFUSED) == 46


def test_the_tree_that_is_compared_sees_a_write(tmp_path: Path) -> None:
    shop = open_shop(tmp_path)
    before = tree(tmp_path)
    shop.semel("run", "Pay 17", "--session", "s")
    assert tree(tmp_path) != before


IN_USE = [
    ("send", "Hi", "--session", "s"),
    ("run", "Hi", "--session", "s"),
]


@pytest.mark.parametrize("words", IN_USE, ids=" ".join)
def test_a_message_without_delivery_is_refused_while_another_process_has_a_run_open(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    model = Quiet()
    with serve_in_thread(model) as server:
        shop = open_shop(tmp_path, model=f"openai_chat:m@{server.url}")
        holder = shop.start("run", "Pay 17", "--session", "s", "--key", "k")
        assert model.asked.wait(30)
        before = tree(tmp_path)
        done = shop.semel(*words)
        assert tree(tmp_path) == before
        holder.kill()
        holder.communicate()
    assert done.exit == 7
    assert "session 's' has an open run" in done.refusal()


def a_free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def test_a_missing_model_server_fails_the_run_with_its_cause_and_the_next_send_works(tmp_path: Path) -> None:
    port = a_free_port()
    shop = open_shop(tmp_path, model=f"openai_chat:m@http://127.0.0.1:{port}/v1")
    done = shop.semel("run", "Hi", "--session", "s", "--json")
    (line,) = done.err.splitlines()
    assert (done.exit, done.json["state"], done.json["error"]["code"]) == (1, "failed", "unreachable")
    assert f"127.0.0.1:{port}: no connection; check the address and that the server runs" in line
    with serve_in_thread({"answers": [{"text": "now"}]}, port=port):
        assert shop.semel("send", "Hi", "--session", "s").out == "now\n"


def test_a_model_that_the_server_does_not_have_fails_the_run_in_one_line(tmp_path: Path) -> None:
    body = {"error": {"message": "The model `m` does not exist", "code": "model_not_found"}}
    fault = {"kind": "status", "status": 404, "body": body, "times": None}
    with serve_in_thread({"answers": [{"fault": fault}]}) as server:
        shop = open_shop(tmp_path, model=f"openai_chat:m@{server.url}")
        done = shop.semel("run", "Hi", "--session", "s")
    assert done.exit == 1
    assert "The model `m` does not exist" in done.refusal()
    assert shop.status("s")["error"]["class"] == "model"


def stranded(place: Path) -> Shop:
    shop = open_shop(place)
    shop.kill(shop.start_and_pay("run", "Pay 17", "--session", "s"))
    return shop


@pytest.mark.parametrize("words", [("resume", "s"), ("send", "Hi", "--session", "s")])
def test_an_agent_that_is_gone_is_asked_for_and_nothing_is_written(tmp_path: Path, words: tuple[str, ...]) -> None:
    shop = stranded(tmp_path)
    agent = (tmp_path / "agent.toml").rename(tmp_path / "moved.toml")
    before = tree(tmp_path)
    done = shop.semel(*words)
    assert done.exit == 2
    assert "agent.toml, which is not there any more; pass it with `--agent FILE`" in done.refusal()
    assert tree(tmp_path) == before
    assert shop.semel(*words, "--agent", str(agent)).exit == 3


CHANGES = [
    ("name", '"clerk"', '"clark"', "the log needs the agent 'clerk'"),
    ("tool", "[tools.pay]", "[tools.paid]", "has no tool 'pay', which its open run needs"),
    ("schema", '"integer"', '"number"', "has another schema"),
    ("effect", '"once"', '"read"', "has another effect"),
]


@pytest.mark.parametrize(("what", "old", "new", "said"), CHANGES, ids=[what for what, *_ in CHANGES])
def test_an_agent_that_changed_too_much_is_refused_by_name(tmp_path: Path, what: str, old: str, new: str, said: str) -> None:
    shop = stranded(tmp_path)
    path = tmp_path / "agent.toml"
    path.write_text(path.read_text().replace(old, new))
    before = tree(tmp_path)
    done = shop.semel("resume", "s")
    assert done.exit == 2
    assert said in done.err.splitlines()[-1], what
    assert tree(tmp_path) == before


def test_a_changed_text_is_a_warning(tmp_path: Path) -> None:
    shop = stranded(tmp_path)
    path = tmp_path / "agent.toml"
    path.write_text(path.read_text().replace('"Pay."', '"Pay!"'))
    done = shop.semel("resume", "s")
    assert done.exit == 3
    assert done.err.count("agent.toml is not what it was when the run started") == 1
    assert "the description of tool 'pay' changed; it acts at the next run" in done.err


def test_a_log_of_somebody_else_is_not_trusted(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        not_run("only root can give a file away")
    shop = stranded(tmp_path)
    os.chown(shop.log("s"), 12345, -1)
    done = shop.semel("resume", "s")
    assert done.exit == 2
    assert "belongs to user 12345" in done.refusal()


def test_a_state_directory_that_everybody_may_write_to_is_refused(tmp_path: Path) -> None:
    shop = open_shop(tmp_path)
    shop.state.mkdir()
    shop.state.chmod(0o777)
    done = shop.semel("run", "Hi")
    assert done.exit == 2
    assert "may be written by everybody" in done.refusal()


def in_python(code: str, *words: str, **variables: str) -> Done:
    """Run the entry point after some preparation of its process."""
    whole = f"{code}\nfrom semel.faces.cli.main import main\nmain({list(words)!r})"
    environment = {"PYTHONPATH": str(SRC), "PATH": os.environ["PATH"], **variables}
    done = subprocess.run([sys.executable, "-c", whole], env=environment, capture_output=True, text=True, check=False)
    return Done(done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize("words", [("ls",), ("run", "Hi"), ("--help",), ()])
def test_windows_is_refused_before_anything_is_loaded(words: tuple[str, ...]) -> None:
    done = in_python("import click, sys; sys.platform = 'win32'", *words)
    assert (done.exit, done.refusal()) == (2, "semel: this is Windows, and semel runs on Linux and macOS; inside WSL it works")


def test_a_bug_is_one_line_too_and_its_traceback_is_for_those_who_ask(tmp_path: Path) -> None:
    broken = "import semel.faces.listing as it; it.glance_of = None"
    open_shop(tmp_path).semel("run", "Pay 17")
    state = str(tmp_path / ".semel")
    done = in_python(broken, "ls", "--state", state)
    assert done.exit == 1
    assert "a bug in semel: TypeError: 'NoneType' object is not callable. Set SEMEL_DEBUG=1" in done.refusal()
    assert "Traceback (most recent call last)" in in_python(broken, "ls", "--state", state, SEMEL_DEBUG="1").err
