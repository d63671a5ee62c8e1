"""A small shop for tests of the command line: an agent file, a scripted model, a ledger, and real processes."""

import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from semel.adapters.models.script import parse_script
from semel.adapters.models.script_chat import ChatFormat
from semel.adapters.models.script_steps import Head, ScriptServer, Silence, Step
from semel.core.values import JSON

SRC = Path(__file__).parents[2] / "src"
PAY = {"name": "pay", "args": {"cents": 125}}
ANSWERS: tuple[JSON, ...] = (
    {"text": "I will pay it.", "calls": [PAY], "usage": {"input": 10, "output": 5}},
    {"text": "It is paid.", "usage": {"input": 20, "output": 3}},
)
AGENT = """\
name = "clerk"
model = "{model}"
instructions = "You pay invoices."
limits = {{ model_retries = 0 }}

[tools.pay]
description = "Pay."
command = ["sh", "./pay.sh", "{{cents}}", "{{call_key}}"]
args = {{ cents = "integer" }}
effect = "{effect}"
"""
# The bank writes the payment, says that it has, and waits for the till, where a test has put the two pipes for that.
PAY_SH = """\
echo $$ > teller
echo "$1 $2" >> ledger.txt
if [ -p paid ]; then echo paid > paid; read _ < till; fi
echo "paid $1 cents"
"""
READY_SECONDS_MOST = 30


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    exit: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """The last line of stdout as JSON."""
        return json.loads(self.out.splitlines()[-1])

    @property
    def lines(self) -> list[dict[str, Any]]:
        """Every line of stdout as JSON."""
        return [json.loads(line) for line in self.out.splitlines()]

    def refusal(self) -> str:
        """The one line of a refusal; nothing is on stdout."""
        (line,) = self.err.splitlines()
        assert line.startswith("semel: ")
        assert self.out == ""
        return line


@dataclass
class Shop:
    """A directory with an agent in it, and the command line in that directory."""

    place: Path
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def state(self) -> Path:
        return self.place / ".semel"

    @property
    def ledger(self) -> list[str]:
        path = self.place / "ledger.txt"
        return path.read_text().splitlines() if path.exists() else []

    def log(self, session: str) -> Path:
        return self.state / "sessions" / session / "wal.log"

    def status(self, session: str) -> dict[str, Any]:
        return json.loads((self.state / "sessions" / session / "status.json").read_bytes())

    def semel(self, *words: str, stdin: str = "", **variables: str) -> Done:
        """Run a command to its end."""
        process = self.start(*words, **variables)
        out, err = process.communicate(stdin)
        return Done(process.returncode, out, err)

    def start(self, *words: str, **variables: str) -> "subprocess.Popen[str]":
        """Start a command."""
        return subprocess.Popen(
            [sys.executable, "-m", "semel", *words],
            cwd=self.place,
            env=self.environment(variables),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def environment(self, variables: Mapping[str, str]) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        return {**kept, "PYTHONPATH": str(SRC), **self.variables, **variables}

    def start_and_pay(self, *words: str, stdin: str = "") -> "subprocess.Popen[str]":
        """Start a command that pays, and return when the payment is in the ledger and its tool still runs."""
        for name in ("paid", "till"):
            if not (self.place / name).exists():
                os.mkfifo(self.place / name)
        reader = os.open(self.place / "paid", os.O_RDONLY | os.O_NONBLOCK)
        process = self.start(*words)
        if stdin and process.stdin is not None:
            process.stdin.write(stdin)
            process.stdin.flush()
        ended = os.pidfd_open(process.pid)
        try:
            ready, _, _ = select.select([reader, ended], [], [], READY_SECONDS_MOST)
            assert ready == [reader], process.communicate()
        finally:
            os.close(reader)
            os.close(ended)
        return process

    def let_pay(self) -> None:
        """Let the tool that waits at the till come back; later ones do not wait."""
        (self.place / "paid").unlink()
        with (self.place / "till").open("w") as till:
            till.write("\n")

    def kill(self, process: "subprocess.Popen[str]") -> None:
        """End it by SIGKILL; later payments do not wait."""
        process.send_signal(signal.SIGKILL)
        process.communicate()
        self.end_tool()

    def end_tool(self) -> None:
        """End what a dead process left of the tool, whether its log tells of it or not."""
        (self.place / "paid").unlink()
        with suppress(ProcessLookupError):
            os.kill(int((self.place / "teller").read_text()), signal.SIGKILL)

    def interrupted(self, session: str = "s") -> str:
        """Make a session whose payment is unknown; returns the key of the call."""
        self.kill(self.start_and_pay("run", "Pay 17", "--session", session))
        assert self.semel("resume", session).exit == 3
        return str(self.status(session)["unknown_calls"][0]["call_key"])


def open_shop(place: Path, *answers: JSON, model: str = "scripted:script.json", effect: str = "once") -> Shop:
    """Write the files of the shop."""
    (place / "agent.toml").write_text(AGENT.format(model=model, effect=effect))
    (place / "pay.sh").write_text(PAY_SH)
    (place / "script.json").write_text(json.dumps({"answers": answers or ANSWERS}))
    return Shop(place)


class Quiet:
    """A model that never answers its first request, and then gives the answers of a script; `asked` is set by the first."""

    def __init__(self, *answers: JSON) -> None:
        self.asked = threading.Event()
        self._script = ScriptServer(parse_script(json.dumps({"answers": answers}), "of a test"), ChatFormat())

    def __call__(self, body: bytes) -> Iterable[Step]:
        if self.asked.is_set():
            return self._script.reply(body)
        self.asked.set()
        return (Head(status=200, headers={"content-type": "text/event-stream"}), Silence())


def tree(place: Path) -> dict[str, str]:
    """Every file below a directory with a digest of its content, and every directory."""
    return {
        path.relative_to(place).as_posix(): sha256(path.read_bytes()).hexdigest() if path.is_file() else "directory"
        for path in sorted(place.rglob("*"))
        if "__pycache__" not in path.parts
    }
