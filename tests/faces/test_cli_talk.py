"""What the command line says: nothing that commands a terminal (A20), no secret (A13), help with examples, a light start."""

import json
import os
import pty
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

from semel.faces.cli.main import COMMANDS, semel
from semel.faces.cli.output import one_line, visible
from semel.faces.cli.verbs import Verb
from semel.testing.model_server import serve_in_thread
from tests.faces.support import Shop, open_shop

ESC, BIDI, WIDTH = "\x1b", ["\u202a", "\u202b", "\u202c", "\u202d", "\u202e"], ["\u200b", "\u200c", "\u200d", "\u2060", "\ufeff"]
PAYLOADS = [
    *(chr(code) for code in range(0x20) if chr(code) not in "\n\t"),  # every C0: BEL flood, backspace, CR that overwrites
    *(chr(code) for code in (0x7F, 0x80, 0x84, 0x85, 0x8D, 0x90, 0x9B, 0x9C, 0x9D, 0x9E, 0x9F)),  # DEL and C1
    *BIDI,
    *("\u2066", "\u2067", "\u2068", "\u2069", "\u200e", "\u200f", "\u061c"),
    *WIDTH,
    *("\u00ad", "\u2028", "\u2029", "\u180e", "\U000e0041", "\ud800"),
    f"{ESC}[2J",
    f"{ESC}]8;;http://127.0.0.1/x{ESC}\\here{ESC}]8;;{ESC}\\",
    f"{ESC}]52;c;cm0gLXJmIC8=\x07",
    f"{ESC}]0;title\x07",
    f"{ESC}P1$q{ESC}\\",
    "\x9b31m",
]


@pytest.mark.parametrize("payload", PAYLOADS, ids=ascii)
def test_no_control_of_a_text_reaches_a_terminal(payload: str) -> None:
    for shown in (visible(f"a{payload}b"), one_line(f"a{payload}b")):
        assert shown.isprintable(), ascii(shown)
        assert "\\x" in shown or "\\u" in shown or "\\U" in shown


def test_there_are_at_least_64_payloads_and_each_would_do_harm() -> None:
    assert len(PAYLOADS) == 70
    assert not any(payload.isprintable() for payload in PAYLOADS)


def test_plain_text_in_any_script_stays_as_it_is() -> None:
    text = "Straße, 東京, עברית, 🙂 a\u00a0b\n\tindented"
    assert visible(text) == text
    assert one_line(text) == text.replace("\n", "\\n").replace("\t", "\\t")


NASTY = f"done{ESC}[2J{ESC}]52;c;eA==\x07\u202e\u200b\x9b1m\rover"


def on_terminal(shop: Shop, *words: str) -> str:
    """What a terminal gets of a command: stdin, stdout and stderr are one."""
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "semel", *words]
    environment = shop.environment({"TERM": "xterm-256color"})
    process = subprocess.Popen(command, cwd=shop.place, env=environment, stdin=slave, stdout=slave, stderr=slave)
    os.close(slave)
    said = b""
    while True:
        try:
            part = os.read(master, 65536)
        except OSError:  # the other side is closed
            part = b""
        if not part:
            break
        said += part
    os.close(master)
    process.wait()
    return said.decode()


@pytest.fixture(scope="module")
def nasty(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    """A session whose model, tool name, arguments, error and id all try to command the terminal."""
    calls = [{"name": f"pay{NASTY}", "args": {"text": NASTY}}]
    shop = open_shop(tmp_path_factory.mktemp("nasty"), {"text": NASTY, "calls": calls}, {"text": NASTY}, {"text": NASTY})
    assert shop.semel("run", NASTY, "--session", f"s{NASTY}").exit == 0
    return shop


@pytest.mark.parametrize(
    "words",
    [
        ("ls",),
        ("ls", "--json"),
        ("show", f"s{NASTY}"),
        ("show", f"s{NASTY}", "--json"),
        ("tail", f"s{NASTY}"),
        ("tail", f"s{NASTY}", "--json"),
        ("preview", f"s{NASTY}"),
        ("verify",),
        ("inbox",),
        ("resume", f"s{NASTY}"),
        ("send", "again", "--session", f"s{NASTY}", "--key", NASTY),
        ("show", NASTY),
        ("run", "hi", "--agent", f"{NASTY}.toml"),
        ("resolve", NASTY, "--happened"),
        (NASTY,),
    ],
    ids=lambda words: " ".join(words)[:16] if words[0] != NASTY else "as a verb",
)
def test_what_others_wrote_is_shown_and_does_not_act(nasty: Shop, words: tuple[str, ...]) -> None:
    said = on_terminal(nasty, *words)
    for harmful in ("\x1b[2J", "\x1b]52", "\x07", "\u202e", "\u200b", "\x9b", "\rover"):
        assert harmful not in said
    if words[0] != "inbox":
        assert "\\x1b[2J" in said or "\\u001b[2J" in said


def test_data_in_a_pipe_is_as_the_model_wrote_it(nasty: Shop) -> None:
    assert f"{ESC}[2J" in nasty.semel("resume", f"s{NASTY}").out


def test_a_terminal_sees_limits_progress_and_the_end(tmp_path: Path) -> None:
    shop = open_shop(tmp_path)
    said = on_terminal(shop, "run", "Pay 17", "--session", "s")
    assert "limits: 50 steps, 5,000,000" in said
    assert "It is paid." in said
    assert "completed: 38 tokens" in said


CANARY = "sk-canary-8f2c1d"


def test_no_output_log_or_child_shows_a_key(tmp_path: Path) -> None:
    fault = {"kind": "status", "status": 401, "body": {"error": {"message": f"bad key {CANARY}"}}, "times": 1}
    answers = [{"text": "look", "calls": [{"name": "show_env", "args": {}}]}, {"text": "end", "fault": fault}]
    with serve_in_thread({"answers": answers}) as server:
        shop = open_shop(tmp_path, model=f"openai_chat:m@{server.url}")
        shop.variables = {"SEMEL_KEY_127_0_0_1": CANARY, "OPENAI_API_KEY": CANARY, "SEMEL_DEBUG": "1", "SHOP_OPEN": "declared"}
        agent = (tmp_path / "agent.toml").read_text()
        (tmp_path / "agent.toml").write_text(agent + '\n[tools.show_env]\ncommand = ["env"]\nenv = ["SHOP_OPEN"]\n')
        said = [shop.semel("run", "Hi", "--session", "s", "-v", "--json"), shop.semel("send", "Hi", "--session", "s", "-v")]
        said += [shop.semel(*words) for words in (("show", "s"), ("tail", "s", "--json"), ("preview", "s"), ("ls",), ("models",))]
        assert server.requests[0].headers["authorization"] == f"Bearer {CANARY}", "the key did travel where it belongs"
    everything = "".join(done.out + done.err for done in said)
    everything += "".join(path.read_text(errors="replace") for path in shop.state.rglob("*") if path.is_file())
    assert "SHOP_OPEN=declared" in everything, "what a tool prints is seen by this test"
    assert CANARY not in everything


def commands() -> dict[str, click.Command]:
    ctx = click.Context(semel)
    found = {name: semel.get_command(ctx, name) for name in semel.list_commands(ctx)}
    return {name: command for name, command in found.items() if command is not None}


@pytest.mark.parametrize("name", list(commands()))
def test_every_verb_has_help_with_an_example(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = commands()[name]
    with command.make_context(name, [], resilient_parsing=True) as ctx:
        text = command.get_help(ctx)
    assert command.name == name
    assert f"semel {name}" in text.partition("Example")[2], "an example of the verb itself"
    assert all(option.help for option in command.params if isinstance(option, click.Option))


def example_lines() -> list[str]:
    return [example for command in commands().values() if isinstance(command, Verb) for example in command.examples]


@pytest.mark.parametrize("example", example_lines())
def test_every_example_parses(example: str) -> None:
    words = shlex.split(example, comments=False)
    words = words[: words.index("|")] if "|" in words else words
    words = [word for word in words if not word.startswith("<")]
    assert words[0] == "semel"
    commands()[words[1]].make_context(words[1], words[2:]).close()


def test_an_example_with_a_typo_is_seen() -> None:
    with pytest.raises(click.NoSuchOption):
        commands()["run"].make_context("run", ["Hi", "--sessions", "s"])


def test_the_list_of_verbs_is_that_of_the_help() -> None:
    ctx = click.Context(semel, info_name="semel")
    listed = [
        line.split()[0] for line in semel.get_help(ctx).partition("Verbs:")[2].partition("Examples:")[0].splitlines() if line
    ]
    assert listed == semel.list_commands(ctx)
    assert set(listed) <= set(COMMANDS)
    assert len(listed) >= 13


def test_every_verb_has_a_row_on_the_page_of_commands() -> None:
    page = (Path(__file__).parents[2] / "docs/commands.md").read_text()
    assert [name for name in COMMANDS if f"| `{name}` |" not in page] == []


HEAVY = {"httpx2", "rich", "jsonschema_rs", "msgspec", "asyncio", "semel.engine", "semel.core", "semel.wiring"}


def loaded_by(*words: str) -> set[str]:
    start = f"from semel.faces.cli.main import main\nimport sys\ntry:\n    main({list(words)!r})"
    code = f"{start}\nfinally:\n    print(*sys.modules, file=sys.stderr)"
    environment = {**os.environ, "SEMEL_STATE": "/nonexistent"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    return set(done.stderr.splitlines()[-1].split())


def test_help_loads_nothing_heavy() -> None:
    assert loaded_by("--help") & HEAVY == set()
    assert loaded_by("ls") & HEAVY == {"msgspec", "asyncio", "semel.engine", "semel.core", "semel.wiring"}


def test_the_version_is_that_of_the_package() -> None:
    done = subprocess.run([sys.executable, "-m", "semel", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith(("semel 0.", "semel from a source tree"))


def test_init_writes_a_file_that_run_finds(tmp_path: Path) -> None:
    shop = open_shop(tmp_path, {"calls": [{"name": "today", "args": {}}]}, {"text": "It is that day."})
    (tmp_path / "agent.toml").unlink()
    wrote = shop.semel("init", "--model", "scripted:script.json", "--json")
    assert wrote.json == {"created": str(tmp_path / "agent.toml"), "model": "scripted:script.json"}
    done = shop.semel("run", "What day is it?", "--json")
    assert (done.exit, done.json["output"]) == (0, "It is that day.")
    assert json.loads(done.out)["agent"] == "assistant"
