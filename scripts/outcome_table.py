"""The table of outcomes: what is expected of the classifier, and the page that is generated from it.

`python scripts/outcome_table.py` rewrites docs/outcomes.md. A test checks every row and that the page is up to date.
"""

import asyncio
import errno
import http.client
import itertools
import ssl
import subprocess
import sys
import urllib.error
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import httpx2

from semel.adapters.tools.command import answer
from semel.adapters.tools.execution import Ended
from semel.adapters.tools.mcp.connection import ServerLost
from semel.core import outcomes
from semel.core.outcomes import (
    Completed,
    DidNotHappen,
    Happening,
    NeverSent,
    Outcome,
    RefusalReason,
    Settlement,
    completed,
    doubted,
    lost,
    refuse,
)
from semel.core.uncertainty import LostReason
from semel.core.values import Effect
from semel.errors import CallNotSent, OutcomeUnknown, ToolFailed

PAGE = Path(__file__).parent.parent / "docs" / "outcomes.md"

Classifier = Callable[[BaseException], Happening]
Settler = Callable[..., Settlement]
Expected = tuple[Outcome, bool, bool]  # recorded outcome, is it an error, does the run stop

FINE: Expected = (Outcome.COMPLETED, False, False)
ERROR: Expected = (Outcome.COMPLETED, True, False)
UNKNOWN: Expected = (Outcome.UNKNOWN, True, True)
INTERRUPTED: Expected = (Outcome.INTERRUPTED, True, False)
LIMIT: Expected = (Outcome.MAX_STEPS, True, False)

SAME = (FINE, FINE, FINE)
FAILED = (ERROR, ERROR, ERROR)
LOST = (UNKNOWN, ERROR, ERROR)  # for once, idempotent, read
LOST_IN_CRASH = (UNKNOWN, INTERRUPTED, INTERRUPTED)


class Row(NamedTuple):
    """One thing that can happen to a call: an exception to be classified, or what is known without one."""

    what: str
    happened: BaseException | Happening
    expected: tuple[Expected, Expected, Expected]
    after_crash: bool = False


def chained(outer: BaseException, *causes: BaseException) -> BaseException:
    """`outer`, raised from the first cause, which was raised from the next."""
    links = [outer, *causes]
    for link, cause in itertools.pairwise(links):
        link.__cause__ = cause
    return outer


def while_handling(outer: BaseException, inner: BaseException) -> BaseException:
    """`outer`, raised in the handler of `inner` without naming it."""
    outer.__context__ = inner
    return outer


def status_error(status: int) -> BaseException:
    """What `raise_for_status` raises."""
    request = httpx2.Request("POST", "http://127.0.0.1/refund")
    return httpx2.HTTPStatusError(f"{status} from server", request=request, response=httpx2.Response(status, request=request))


def network_error(number: int, text: str) -> OSError:
    """An OSError that shows its number nowhere, since that differs between systems."""
    error = OSError(text)
    error.errno = number
    return error


def ended(code: int, stdout: str = "", stderr: str = "") -> BaseException | Happening:
    """What a command tool makes of an ended child."""
    try:
        return completed(answer(Ended(code=code, stdout=stdout, stderr=stderr)))
    except (ToolFailed, OutcomeUnknown) as error:
        return error


CRASHED = lost(LostReason.CRASHED)

ROWS: Sequence[Row] = (
    Row("returns a value", completed({"refunded": 1900}), SAME),
    Row("returns a value that JSON cannot carry", completed(float("nan")), FAILED),
    Row("asks to end the run (`Done`)", completed("paid", terminate=True), SAME),
    Row("raises `ToolFailed`", ToolFailed("card declined"), FAILED),
    Row("raises `ToolFailed` from a timeout: the tool has judged it", chained(ToolFailed("not charged"), TimeoutError()), FAILED),
    Row("raises a plain `ValueError`", ValueError("cents must be positive"), FAILED),
    Row("raises an exception without text", ValueError(), FAILED),
    Row("calls `sys.exit(3)`", SystemExit(3), FAILED),
    Row("raises `FileNotFoundError`", FileNotFoundError(2, "No such file or directory", "a.txt"), FAILED),
    Row("raises a group of plain failures", ExceptionGroup("both", [ValueError("a"), KeyError("b")]), FAILED),
    Row("raises `OutcomeUnknown`", OutcomeUnknown("the bank did not say"), LOST),
    Row("read timeout", httpx2.ReadTimeout("timed out"), LOST),
    Row("connect timeout", httpx2.ConnectTimeout("timed out"), LOST),
    Row("`TimeoutError` of asyncio or a socket", TimeoutError(), LOST),
    Row("connection reset", ConnectionResetError("reset by peer"), LOST),
    Row("connection refused", ConnectionRefusedError("refused"), LOST),
    Row("broken pipe", BrokenPipeError("broken pipe"), LOST),
    Row("no route to the host", network_error(errno.EHOSTUNREACH, "no route to host"), LOST),
    Row("server closed the connection without an answer", http.client.RemoteDisconnected("no response"), LOST),
    Row("answer cut in the middle", httpx2.RemoteProtocolError("peer closed connection"), LOST),
    Row("answer cannot be decoded", httpx2.DecodingError("bad gzip"), LOST),
    Row("TLS failure", ssl.SSLError("decryption failed"), LOST),
    Row("a URL that no client can open", httpx2.UnsupportedProtocol("ftp"), FAILED),
    Row("HTTP status 503", status_error(503), LOST),
    Row("HTTP status 408", status_error(408), LOST),
    Row("HTTP status 404", status_error(404), FAILED),
    Row("`RuntimeError` from an HTTP status 503", chained(RuntimeError("refund failed"), status_error(503)), LOST),
    Row("`RuntimeError` from an HTTP status 408", chained(RuntimeError("refund failed"), status_error(408)), LOST),
    Row("`RuntimeError` from an HTTP status 404", chained(RuntimeError("refund failed"), status_error(404)), FAILED),
    Row("`ValueError` while a read timeout is handled", while_handling(ValueError("bad"), httpx2.ReadTimeout("")), LOST),
    Row("a timeout three causes deep", chained(KeyError("id"), ValueError("x"), RuntimeError("y"), TimeoutError()), LOST),
    Row("`URLError` whose reason is a reset", urllib.error.URLError(ConnectionResetError("reset by peer")), LOST),
    Row("a group with a timeout among its members", ExceptionGroup("both", [ValueError("a"), TimeoutError("b")]), LOST),
    Row("`CancelledError`", asyncio.CancelledError(), LOST),
    Row("`KeyboardInterrupt`", KeyboardInterrupt(), LOST),
    Row("`GeneratorExit`", GeneratorExit(), LOST),
    Row("the deadline of the call passes", lost(LostReason.TIMEOUT, "after 30 s"), LOST),
    Row("an argument does not convert to its type", CallNotSent("the arguments do not convert"), FAILED),
    Row("a command that ends with exit code 0", ended(0, "refunded"), SAME),
    Row("a command that ends with exit code 3", ended(3, "", "no such order"), FAILED),
    Row("a command that is signalled", ended(-9), LOST),
    Row("a function whose own child is signalled", subprocess.CalledProcessError(-15, ["pay"]), LOST),
    Row("a function whose own child ends with exit code 2", subprocess.CalledProcessError(2, ["pay"]), FAILED),
    Row("a process that could not be started", CallNotSent("the command could not be started: FileNotFoundError"), FAILED),
    Row("an MCP server that answers with an error", ToolFailed("the MCP server bank refused the call: no such order"), FAILED),
    Row("an MCP server that ends before it answers", ServerLost("the MCP server bank ended with exit code 3"), LOST),
    Row(
        "an MCP server that cannot be started", CallNotSent("the MCP server bank cannot be used: it could not be started"), FAILED
    ),
    Row("`reconcile` says happened", completed("refund 17 exists"), SAME),
    Row("`reconcile` says never", DidNotHappen(), FAILED),
    Row("`reconcile` says never while the tool still runs", doubted(lost(LostReason.TIMEOUT, "1000 ms")), LOST),
    Row("`reconcile` says unknown", lost(LostReason.CONNECTION_LOST, "ConnectionResetError"), LOST),
    Row("the run ends before the call is sent", NeverSent(), (INTERRUPTED, INTERRUPTED, INTERRUPTED)),
    Row("a limit ends the run before the call is sent", NeverSent(outcome=Outcome.MAX_STEPS), (LIMIT, LIMIT, LIMIT)),
    Row("intent, and no outcome", CRASHED, LOST_IN_CRASH, after_crash=True),
    Row("intent, and `reconcile` says happened", completed("refund 17 exists"), SAME, after_crash=True),
    Row("intent, and `reconcile` says never", DidNotHappen(), FAILED, after_crash=True),
    Row("intent, and `reconcile` says unknown", CRASHED, LOST_IN_CRASH, after_crash=True),
    Row("planned without intent, and the run is closed", NeverSent(), (INTERRUPTED, INTERRUPTED, INTERRUPTED), after_crash=True),
    Row("returned, and that was recorded", Completed(text="paid"), SAME, after_crash=True),
)

HEAD = """# What becomes of a call

This page is generated by `scripts/outcome_table.py` from the classifier itself; a test fails when it is stale.

A call is settled once, by what happened to it and by what its tool declared of a second run: `once` (never, the default),
`idempotent` (under the same key) or `read` (freely). Where an outcome is not known, a `once` call stops its run with exit
code 3 and waits for a person: no model of that run sees it, and the text below is what the next send shows. It is
reconciled first where the tool declares `reconcile`; where that cannot tell either, `semel inbox` shows the person the same
text, the key of the call, and the `reconcile` command to ask with. The same doubt about the two other kinds is an error
like any other; that of a `read` ends with "Nothing was changed by it." After a crash they are run again under the same
key; `interrupted` is what they become where that is over.

An exception is peeled to its last cause: what it was raised from or while handling, the members of a group, and the
exceptions it carries. A timeout, a cancel, a lost connection, a broken exchange or an HTTP status of 408 or 5xx anywhere
in it leaves the outcome unknown. `ToolFailed` is the tool's own word that it failed for certain, and `OutcomeUnknown`
that it cannot tell; raise `ToolFailed`, or any other exception `from None`, to say that an inner failure was harmless.

## Settled calls

| when | what happened | effect | recorded | the run | what the model is told |
|---|---|---|---|---|---|
"""
REFUSED_HEAD = """
## Calls that are not run

Refused before anything is sent, whatever the effect; the run goes on.

| reason | what the model is told |
|---|---|
"""


def settled(row: Row, effect: Effect, classify: Classifier, settle: Settler) -> Settlement:
    """What the given functions make of a row."""
    happening = classify(row.happened) if isinstance(row.happened, BaseException) else row.happened
    return settle(effect, happening, after_crash=row.after_crash)


def disagreements(classify: Classifier = outcomes.classify_exception, settle: Settler = outcomes.settle) -> tuple[list[str], int]:
    """The cells in which the given functions differ from what is expected, and how many cells were compared."""
    wrong, count = [], 0
    for row in ROWS:
        for effect, expected in zip(Effect, row.expected, strict=True):
            found = settled(row, effect, classify, settle)
            count += 1
            if (found.outcome, found.is_error, found.stops_run) != expected:
                wrong.append(f"{effect}: {row.what}: {found.outcome}, error {found.is_error}, stops {found.stops_run}")
    return wrong, count


def outcome_table_markdown() -> str:
    """The page."""
    lines = [line for row in ROWS for line in _lines(row)]
    refusals = [f"| {reason} | {_cell(refuse(reason).message)} |\n" for reason in RefusalReason]
    return HEAD + "".join(lines) + REFUSED_HEAD + "".join(refusals)


def _lines(row: Row) -> list[str]:
    """A line for each group of effects that are recorded alike; it shows the text of the first of them."""
    groups: dict[tuple[Outcome, bool, bool], list[tuple[Effect, Settlement]]] = {}
    for effect in Effect:
        found = settled(row, effect, outcomes.classify_exception, outcomes.settle)
        groups.setdefault((found.outcome, found.is_error, found.stops_run), []).append((effect, found))
    return [_line(row, [effect for effect, _ in group], group[0][1]) for group in groups.values()]


def _line(row: Row, effects: Sequence[Effect], found: Settlement) -> str:
    when = "after a crash" if row.after_crash else "live"
    which = "any" if len(effects) == len(Effect) else ", ".join(effects)
    run = "stops, exit 3" if found.stops_run else "ends after its batch" if found.terminate else "goes on"
    run = "was ending" if isinstance(row.happened, NeverSent) else run
    return f"| {when} | {row.what} | {which} | {_recorded(found)} | {run} | {_cell(found.text)} |\n"


def _recorded(found: Settlement) -> str:
    return f"{found.outcome}, error" if found.is_error and found.outcome is Outcome.COMPLETED else str(found.outcome)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", "<br>")


if __name__ == "__main__":
    PAGE.write_text(outcome_table_markdown(), encoding="utf-8")
    sys.stdout.write(f"{PAGE} written: {len(ROWS)} rows\n")
