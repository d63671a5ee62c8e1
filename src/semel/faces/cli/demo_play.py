"""The demo's play: real processes, a real HTTP server, real kills. What it finds is measured, not assumed."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from semel.core.values import JSON, Frozen
from semel.errors import InvariantBroken
from semel.faces.cli import demo_files

SESSION = "demo"
WAIT_SECONDS_MOST = 20.0
SLOW_BANK = "60"


class Findings(Frozen, frozen=True, kw_only=True):
    """What the play came to; the last line of `semel demo --json`."""

    kills: int
    payments: int
    request_identical: bool
    resume_exit: int
    state: str
    next_send_state: str
    retry_loop_payments: int
    records: int
    session: str
    state_dir: str


@dataclass
class Stage:
    """The place of the play: a directory with the agent, its ledger and its state, and the model server's address."""

    place: Path
    url: str
    kills: int = 0
    children: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @property
    def state(self) -> Path:
        """The state directory."""
        return self.place / "state"

    def lines(self, name: str) -> list[str]:
        """The lines of a file, none if it is not there yet."""
        path = self.place / name
        return path.read_text(encoding="utf-8").splitlines() if path.exists() else []

    def semel(self, *words: str) -> tuple[int, list[dict[str, JSON]]]:
        """Run the command line to its end: exit code, and the JSON objects that it printed."""
        done = _run(self._command(*words), self.place, self._environment("0"))
        return done.returncode, [json.loads(line) for line in done.stdout.splitlines() if line.strip()]

    def semel_killed_when(self, reached: Callable[[], bool], *words: str) -> None:
        """Start the command line and end it by SIGKILL once the moment is reached."""
        self._killed_when(reached, self._command(*words))
        self.kills += 1

    def retry_loop(self, reached: Callable[[], bool] | None = None) -> None:
        """One try of the loop without a log, killed when the moment is reached, if one is given."""
        command = [sys.executable, "retry_loop.py"]
        if reached is None:
            _run(command, self.place, self._environment("0")).check_returncode()
        else:
            self._killed_when(reached, command)

    def _command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "semel", *words, "--state", str(self.state), "--json"]

    def _environment(self, bank_seconds: str) -> dict[str, str]:
        paths = [str(self.place), os.environ.get("PYTHONPATH", "")]
        return {**os.environ, "BANK_SECONDS": bank_seconds, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}

    def _killed_when(self, reached: Callable[[], bool], command: list[str]) -> None:
        with (self.place / "killed.log").open("ab") as said:
            environment = self._environment(SLOW_BANK)
            child = subprocess.Popen(command, cwd=self.place, stdout=said, stderr=said, env=environment)  # noqa: S603  our own
        deadline = time.monotonic() + WAIT_SECONDS_MOST
        try:
            while not reached():
                if child.poll() is not None or time.monotonic() > deadline:
                    raise InvariantBroken(f"the demo did not reach its next moment; see {self.place / 'killed.log'}")
                time.sleep(0.005)
        finally:
            if child.poll() is None:
                os.kill(child.pid, signal.SIGKILL)
            child.wait()


def _run(command: list[str], place: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(command, cwd=place, capture_output=True, check=False, env=environment)  # noqa: S603  our own program


@contextmanager
def stage(place: Path) -> Iterator[Stage]:
    """Write the files, serve the model, and take the server down behind the play."""
    script = place / "script.json"
    script.write_text(json.dumps(demo_files.script(str(place / "asked"))), encoding="utf-8")
    command = [sys.executable, "-m", "semel.testing.model_server", str(script), "--journal", str(place / "requests.jsonl")]
    server = subprocess.Popen(command, cwd=place, stdout=subprocess.PIPE, text=True)  # noqa: S603  our own program
    try:
        url = server.stdout.readline().strip() if server.stdout else ""
        (place / "invoices.py").write_text(demo_files.AGENT.format(url=url), encoding="utf-8")
        (place / "retry_loop.py").write_text(demo_files.RETRY_LOOP.format(url=url), encoding="utf-8")
        yield Stage(place=place, url=url)
    finally:
        server.kill()
        server.communicate()


def play(on: Stage, tell: Callable[[str], None]) -> Findings:
    """The whole story. `tell` gets its lines as they happen."""
    tell("A scripted model, served over HTTP, wants invoice 17 paid. The tool writes to ledger.txt.")
    on.semel_killed_when(
        (on.place / "asked").exists,
        *("run", "Pay invoice 17.", "--agent", "invoices:agent", "--session", SESSION, "--key", "invoice-17"),
    )
    tell("1. SIGKILL while the model is answering.")
    on.semel_killed_when(lambda: len(on.lines("ledger.txt")) > 0, "resume", SESSION)
    bodies = [json.loads(line)["body"] for line in on.lines("requests.jsonl")]
    identical = len(bodies) == 2 and bodies[0] == bodies[1]
    tell(f"   resume sent the same request again: {len(bodies[1].encode())} bytes, {'equal' if identical else 'NOT EQUAL'}.")
    tell("2. SIGKILL after the payment and before its record.")
    exit_code, printed = on.semel("resume", SESSION)
    state = str(printed[-1]["state"])
    asked_again = len(on.lines("requests.jsonl")) - 2
    tell(f"   resume: exit {exit_code}, {state}; payments {len(on.lines('ledger.txt'))}, model calls {asked_again}.")
    _, inbox = on.semel("inbox")
    key = str(inbox[0]["call_key"])
    tell(f"   semel inbox: {inbox[0]['tool']} {key[:8]} is unknown. A person looks at the ledger: it was paid.")
    _, went_on = on.semel("resolve", key, "--happened", "--continue")
    end = went_on[-1]
    tell(f"3. semel resolve {key[:8]} --happened --continue: {end['state']}, “{end.get('output')}”")
    on.retry_loop(lambda: len(on.lines("retry-ledger.txt")) > 0)
    on.retry_loop()
    findings = Findings(
        kills=on.kills,
        payments=len(on.lines("ledger.txt")),
        request_identical=identical,
        resume_exit=exit_code,
        state=state,
        next_send_state=str(end["state"]),
        retry_loop_payments=len(on.lines("retry-ledger.txt")),
        records=_number(end["head_seq"]),
        session=SESSION,
        state_dir=str(on.state),
    )
    tell(f"Payments: semel {findings.payments}, a retry loop without a log {findings.retry_loop_payments}.")
    return findings


def _number(value: Any) -> int:
    return int(value)
