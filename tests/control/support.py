"""A shop whose session `s` another process runs, and a client that speaks the protocol as a stranger would, from its page."""

import json
import select
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import msgspec

from semel.core.frame import scan
from tests.faces.support import SRC, Shop, open_shop

ROOT = Path(__file__).parents[2]
ANSWER_SECONDS_MOST = 20
PROGRAMS = ("owner", "service")
ANSWERS = (
    {"text": "I will pay it.", "calls": [{"name": "pay", "args": {"cents": 125}}]},
    *({"text": f"answer {number}"} for number in range(2, 12)),
)


class OwnedShop(Shop):
    """A shop in which `start("owner")` and "service" are programs that run the session; all else is a command of semel."""

    def start(self, *words: str, **variables: str) -> "subprocess.Popen[str]":
        if words[0] not in PROGRAMS:
            return super().start(*words, **variables)
        return subprocess.Popen(
            [sys.executable, "-m", f"tests.control.programs.{words[0]}", *words[1:]],
            cwd=self.place,
            env={**self.environment(variables), "PYTHONPATH": f"{ROOT}:{SRC}"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def types(self) -> list[str]:
        """The types of the records in the log, as its bytes are now."""
        return [record["type"] for record in self.records()]

    def records(self) -> list[dict[str, Any]]:
        frames = scan(self.log("s").read_bytes()).frames
        return [json.loads(frame.payload) for frame in frames[1:]]

    def lease(self) -> dict[str, Any]:
        """What the lease file of the session says."""
        return json.loads((self.state / "sessions" / "s" / "lease").read_bytes())

    def lineage(self) -> str:
        with self.log("s").open() as log:
            return json.loads(log.readline().split(" ", 10)[10])["lineage"]


class Owner:
    """The process that runs the session of a shop."""

    def __init__(self, shop: OwnedShop, process: "subprocess.Popen[str]") -> None:
        self.shop, self.process = shop, process

    def tell(self, word: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()

    def ask(self, word: str) -> None:
        self.tell(word)
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ok\n"

    def died(self) -> None:
        """Wait for its death, and end what it left of the tool."""
        self.process.wait(ANSWER_SECONDS_MOST)
        self.shop.end_tool()


@contextmanager
def owned(place: Path, *fault: str, effect: str = "once") -> Iterator[Owner]:
    """A shop whose session is run by a process that waits at the till."""
    shop = open_shop(place, *ANSWERS, effect=effect)
    shop = OwnedShop(shop.place)
    process = shop.start_and_pay("owner", *fault)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n", process.communicate()
        yield Owner(shop, process)
    finally:
        if process.poll() is None:
            shop.kill(process)
        for stream in (process.stdin, process.stdout, process.stderr):
            assert stream is not None
            stream.close()


class Caller:
    """A connection to whoever the lease of a shop names."""

    def __init__(self, shop: OwnedShop) -> None:
        self.shop = shop
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(ANSWER_SECONDS_MOST)
        self.socket.connect(shop.lease()["socket"])
        self._lines = self.socket.makefile("rb")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._lines.close()
        self.socket.close()

    def request(self, verb: str, **args: Any) -> dict[str, Any]:
        fence = self.shop.lease()["fence"]
        return {
            "v": 1, "id": "1", "verb": verb, "session": "s", "fence": fence, "lineage": self.shop.lineage(), "args": args
        }  # fmt: skip

    def send(self, request: dict[str, Any]) -> None:
        self.send_bytes(msgspec.json.encode(request) + b"\n")

    def send_bytes(self, data: bytes) -> None:
        self.socket.sendall(data)

    def hear(self) -> dict[str, Any]:
        """The next line; {} where there is none any more."""
        line = self._lines.readline()
        return json.loads(line) if line else {}

    def ask(self, verb: str, **args: Any) -> dict[str, Any]:
        self.send(self.request(verb, **args))
        return self.hear()

    def is_silent(self) -> bool:
        """Whether nothing has come until now."""
        ready, _, _ = select.select([self.socket], [], [], 0)
        return not ready
