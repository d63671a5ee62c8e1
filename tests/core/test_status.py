"""status.json of a run that waits for somebody, and of one that left a message unanswered (C15, Q2)."""

import pytest
from msgspec import UNSET

from semel.core.status import Status, decode_status, encode_status, status_of
from tests.core.test_prefixes import played
from tests.core.writes import folded


def status(name: str, writes: int) -> Status:
    found = status_of(folded(played(name).writes[:writes]), "digest")
    assert found is not None
    assert decode_status(encode_status(found)) == found
    return found


@pytest.mark.parametrize(
    ("name", "writes", "reason"),
    [("approval", 2, "approval"), ("held_and_cancelled", 3, "tool_held"), ("gated", 7, "restart")],
)
def test_a_run_that_waits_for_somebody_is_paused_and_says_why(name: str, writes: int, reason: str) -> None:
    found = status(name, writes)
    assert (found.state, found.reason, found.exit) == ("paused", reason, 4)


@pytest.mark.parametrize(("name", "writes"), [("approval", 4), ("held_and_cancelled", 2), ("gated", 8), ("steer", 3)])
def test_a_run_that_goes_on_is_running(name: str, writes: int) -> None:
    assert (status(name, writes).state, status(name, writes).reason) == ("running", None)


def test_a_wait_below_the_context_ceiling_is_a_part_of_the_work() -> None:
    d = played("compacted")
    waits = [status_of(folded(d.writes[:upto]), "") for upto in range(1, len(d.writes) + 1)]
    assert {found.state for found in waits if found is not None} == {"running", "completed"}


def test_a_message_that_no_step_took_up_is_named_by_its_key() -> None:
    assert status("cancel_now", 5).unanswered == ("s1",)
    assert status("steer", len(played("steer").writes)).unanswered is UNSET


def test_a_session_without_a_run_has_no_status() -> None:
    assert status_of(folded(played("supplied").writes[:1]), "") is None
