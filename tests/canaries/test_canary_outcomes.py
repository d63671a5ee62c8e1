"""Negative controls: faults that are planted on purpose, and the proofs that must notice them."""

import asyncio
import os
import runpy
import signal
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from semel.core.outcomes import Completed, Outcome, describe, lost, settle
from semel.core.uncertainty import LostReason, uncertainty
from semel.core.values import Effect

sys.path.insert(0, str(Path(__file__).parents[1] / "tools"))
from tool_support import DATA, SystemClock, alive, first_lines, make_fifos

from semel.adapters.tools.processes import end_processes, mark_process

TABLE = runpy.run_path(str(Path(__file__).parents[2] / "scripts" / "outcome_table.py"))


def test_canary_an_unknown_turned_into_failed_is_caught_by_the_table_of_outcomes() -> None:
    def careless(exc: BaseException) -> Any:
        return Completed(text=describe(exc), is_error=True)

    wrong, _ = TABLE["disagreements"](classify=careless)
    caught = {line.split(": ", 2)[1] for line in wrong if line.startswith("once: ")}
    unknown = [
        row.what for row in TABLE["ROWS"] if isinstance(row.happened, BaseException) and row.expected[0] == TABLE["UNKNOWN"]
    ]
    print(f"{len(caught)} of {len(unknown)} rows caught")
    assert caught == set(unknown)
    assert len(unknown) >= 25


def test_canary_a_settlement_that_lets_an_unknown_run_go_on_is_caught() -> None:
    def careless(effect: Effect, happening: Any, *, after_crash: bool) -> Any:
        found = settle(effect, happening, after_crash=after_crash)
        return msgspec.structs.replace(found, stops_run=False)

    def forgiving(effect: Effect, happening: Any, *, after_crash: bool) -> Any:
        found = settle(effect, happening, after_crash=after_crash)
        return msgspec.structs.replace(found, outcome=Outcome.COMPLETED) if after_crash else found

    stopping = sum(row.expected[0] == TABLE["UNKNOWN"] for row in TABLE["ROWS"])
    crashed = sum(expected[0] != Outcome.COMPLETED for row in TABLE["ROWS"] if row.after_crash for expected in row.expected)
    print(f"{stopping} cells stop a run, {crashed} cells after a crash are not completed")
    assert len(TABLE["disagreements"](settle=careless)[0]) == stopping >= 29
    assert len(TABLE["disagreements"](settle=forgiving)[0]) == crashed >= 9


def test_canary_a_failure_turned_into_unknown_is_caught() -> None:
    wrong, _ = TABLE["disagreements"](classify=lambda _exc: lost(LostReason.NOT_KNOWN))
    assert len([line for line in wrong if line.startswith("once: ")]) >= 14


def test_canary_a_classifier_that_looks_only_at_the_surface_is_caught() -> None:
    def shallow(exc: BaseException) -> Any:
        reason = uncertainty(exc)
        return Completed(text=describe(exc), is_error=True) if reason is None else lost(reason)

    wrong, _ = TABLE["disagreements"](classify=shallow)
    assert {line.split(": ")[1] for line in wrong} == {
        "`RuntimeError` from an HTTP status 503",
        "`RuntimeError` from an HTTP status 408",
        "`ValueError` while a read timeout is handled",
        "`URLError` whose reason is a reset",
        "a group with a timeout among its members",
        "a timeout three causes deep",
    }


@pytest.mark.anyio
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")
async def test_canary_a_clean_up_that_knows_only_the_process_group_is_caught(tmp_path: Path) -> None:
    key, fifos = f"canary-{os.getpid()}", make_fifos(tmp_path)
    process = await asyncio.create_subprocess_exec(
        *("sh", "B37-spawn.sh", str(fifos[0])),
        cwd=DATA,
        env={"PATH": os.environ["PATH"], "SEMEL_CALL_KEY": key},
        start_new_session=True,
        stdout=asyncio.subprocess.DEVNULL,
    )
    mark = mark_process(process.pid, key)
    await first_lines(*fifos)
    os.killpg(process.pid, signal.SIGKILL)
    await process.wait()
    left = alive(key)
    print(f"{len(left)} processes outlive the careless clean-up")
    assert left
    assert await end_processes(mark, clock=SystemClock(), grace_seconds=0.3)
    assert alive(key) == {}
