"""`explain`, `show`, `preview` and `tail` in every state that a script comes through: they say what is there, and what to do."""

import json
import shlex
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import pytest
from hypothesis import given, settings

from semel import wiring
from semel.adapters.file.store import FileStore
from semel.adapters.system import SystemClock
from semel.core.explain import explain
from semel.core.features import KNOWN
from semel.core.frame import incomplete, scan
from semel.core.open_log import state_of
from semel.core.pairing import fault_of
from semel.core.records import ApprovalResolved
from semel.core.state import Session
from semel.core.values import Prompt
from semel.errors import OutcomePending, UnknownSession
from semel.faces.cli.main import COMMANDS, semel
from semel.faces.preview import _gone_on, preview_of
from semel.faces.spending import spending_of
from semel.faces.views import answered_approval
from semel.ports.model import Request
from storage.conftest import plant
from tests.core.cast import driver
from tests.core.driver import Died
from tests.core.golden import encoded
from tests.core.machine import call, say
from tests.core.play import Player
from tests.core.said import runs_told
from tests.core.scripts import SCRIPTS
from tests.core.test_explain import keys_to_name
from tests.core.test_model import MOVES
from tests.core.test_prefixes import played, prefixes
from tests.core.writes import Write, folded

LATER = {"approve", "deliver"}
"""Verbs that `explain` names for states that only a later build brings about; a build without them does not advise them."""


def states(name: str) -> Iterator[tuple[list[Write], Session]]:
    """Each state behind a whole write of a script."""
    writes = played(name).writes
    for upto in range(1, len(writes) + 1):
        yield writes[:upto], folded(writes[:upto])


@dataclass
class Line:
    """The command line over a directory with one log, within this process."""

    root: Path
    capfd: pytest.CaptureFixture[str]

    def holds(self, writes: list[Write]) -> None:
        plant(self.root, encoded(writes), "s")

    def says(self, *words: str) -> str:
        self.capfd.readouterr()
        assert semel.main([*words, "--state", str(self.root)], prog_name="semel", standalone_mode=False) == 0
        return self.capfd.readouterr().out


@pytest.fixture
def line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Line:
    return Line(tmp_path / "state", capfd)


@pytest.mark.parametrize("name", SCRIPTS)
def test_explain_says_what_the_core_does_and_every_command_of_it_parses(name: str, line: Line) -> None:
    for writes, state in states(name):
        line.holds(writes)
        told = json.loads(line.says("explain", "s", "--json"))["sentences"]
        expected = (*explain(state, carried=False), *spending_of(state))
        assert [one["text"] for one in told] == [one.text for one in expected]
        for one, sentence in zip(told, expected, strict=True):
            verb = sentence.command[0] if sentence.command else None
            assert (one["command"] is not None) == (verb in COMMANDS)
            assert verb is None or verb in COMMANDS or verb in LATER
            if one["command"] is not None:
                parses(one["command"])


def parses(command: str) -> None:
    words = shlex.split(command.replace("VERDICT", "--happened"))
    assert words[0] == "semel"
    verb = semel.get_command(click.Context(semel), words[1])
    assert verb is not None
    verb.make_context(words[1], words[2:]).close()


@pytest.mark.parametrize("name", SCRIPTS)
def test_show_names_every_call_that_is_open_or_unknown_and_every_message(name: str, line: Line) -> None:
    for writes, state in states(name):
        line.holds(writes)
        text = line.says("show", "s")
        assert [key for key in keys_to_name(state) if key[:8] not in text] == []
        document = json.loads(line.says("show", "s", "--json"))
        assert [message["key"] for message in document["queue"]] == [message.key for message in state.queue]
        waiting = [said for run in document["runs"] for said in run["said"] if said["step_id"] is None]
        assert len(waiting) >= len(state.steers) + len(state.follow_ups)
        assert len(document["runs"]) == len(state.ended) + (state.run is not None)
    if name == "compacted":
        assert "version" in line.says("tail", "s")


@pytest.mark.parametrize(
    ("name", "upto", "said"),
    [
        ("approval", 2, 'e368500d pay({"n":0}) waits for a person to approve it\n    read({"n":1}) not sent yet\n'),
        ("approval", 3, '001b705c pay({"n":2}) denied by t\n'),
        ("refusals", 2, "ghost({}) refused (unknown_tool): Not run: no tool of that name is offered."),
        ("held_in_sequence", 2, 'e368500d deploy({"n":0}) sent, no result yet\n    5da5a062 pay({"n":1}) not sent yet\n'),
        ("held", 3, '5da5a062 pay({"n":1}) held by its provider (busy)\n'),
        ("cancel_now", 3, "> (steer, waits) wait\n"),
        ("cancel_now", 5, "> (steer, left unanswered) wait\n"),
        ("supplied", 1, "1 record, held by nobody\nit started with 4 messages from elsewhere, in the format test\n"),
        ("gated", 5, "completed: a picture\\n[image/png, 3 bytes]\n"),
    ],
)
def test_show_says_of_a_state_what_a_person_asks_first(name: str, upto: int, said: str, line: Line) -> None:
    line.holds(played(name).writes[:upto])
    assert said in line.says("show", "s")


class Shown(Exception):
    """What a request would be made of."""

    def __init__(self, prompt: Prompt) -> None:
        self.prompt = prompt


class Model:
    """A model that shows what it is to render."""

    def render(self, prompt: Prompt) -> Request:
        raise Shown(prompt)


def asked(store: FileStore) -> Prompt | str:
    """The prompt of the next request, or why there is none."""
    try:
        preview_of(store, "s", SystemClock(), "and now?")
    except Shown as shown:
        return shown.prompt
    except (OutcomePending, UnknownSession) as error:
        return error.code
    raise AssertionError("a request that nobody made")


@pytest.mark.parametrize("name", SCRIPTS)
def test_preview_shows_a_request_that_a_provider_takes_or_says_that_a_call_is_open(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def frozen(*_: Any) -> Model:
        return Model()

    monkeypatch.setattr(wiring, "model_frozen", frozen)
    store, shown = FileStore(tmp_path / "state", SystemClock(), known=KNOWN), 0
    lines = encoded(played(name).writes).splitlines(keepends=True)
    for writes, kept in zip(prefixes(played(name).writes)[1:], range(2, len(lines) + 1), strict=True):
        plant(tmp_path / "state", b"".join(lines[:kept]), "s")
        state = folded(writes)
        found = asked(store)
        if isinstance(found, Prompt):
            assert fault_of(list(found.messages)) is None
            shown += 1
        elif found == OutcomePending.code:
            batch = state.run.step.batch if state.run and state.run.step else None
            assert batch is None or not batch.finished, "only a call that is open leaves the request open"
            assert state.run
            assert state.run.step
            assert state.run.step.answer
            assert state.run.step.answer.calls
        else:
            assert state.newest is None
    assert shown


@settings(max_examples=60, derandomize=True, deadline=None, database=None)
@given(MOVES)
def test_any_history_can_be_told_and_the_next_request_of_it_is_there_or_depends_on_an_open_call(moves: list[int]) -> None:
    player = Player(moves[0])
    player.play(moves[1:])
    if not player.driver.writes:
        return
    frames = scan(encoded(player.driver.writes)).frames
    state = state_of(frames, incomplete(frames), "s")
    runs = runs_told(frames, state)
    assert len(runs) == len(state.ended) + (state.run is not None)
    open_calls = [call for step in (runs[-1].steps if state.run else ()) for call in step.calls if call.outcome in OPEN]
    if state.run is not None:
        with suppress(OutcomePending):
            ahead, asks = _gone_on(state, {})
            assert asks == (ahead.run is not None)
            return
        assert open_calls


OPEN = {"asked", "planned", "waiting", "sent", "held"}


def test_the_log_of_a_write_that_never_became_whole_is_previewed_like_any_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wiring, "model_frozen", lambda *_: Model())
    d = driver()
    d.send()
    d.tear = 4  # the first intent is there, and was never acted upon
    with pytest.raises(Died):
        d.answer(call("pay", "read"))
    d.die()
    d.resume()
    d.back()
    d.answer(say("done"))
    plant(tmp_path / "state", encoded(d.writes), "s")
    found = asked(FileStore(tmp_path / "state", SystemClock(), known=KNOWN))
    assert isinstance(found, Prompt)
    assert [message.text for message in found.messages][-2:] == ["done", "and now?"]


def test_what_a_log_that_cannot_be_read_says_of_an_approval_counts_for_nothing(tmp_path: Path) -> None:
    root = tmp_path / "state"
    writes = played("approval").writes
    denied, *_ = [one for write in writes for one in write.records if isinstance(one, ApprovalResolved)]
    plant(root, encoded(writes), "s")
    plant(root, encoded(writes), "copy")  # the log of another session
    store = FileStore(root, SystemClock(), known=KNOWN)
    assert answered_approval(store, denied.call_key[:9]) == denied
    assert answered_approval(store, "") is None
    plant(root, encoded(writes)[:-1], "s")
    assert answered_approval(store, denied.call_key) == denied
    plant(root, b"~" + encoded(writes), "s")
    assert answered_approval(store, denied.call_key) is None


@pytest.mark.parametrize("name", SCRIPTS)
def test_tail_has_a_line_for_each_record(name: str, line: Line) -> None:
    writes = played(name).writes
    line.holds(writes)
    assert len(line.says("tail", "s").splitlines()) == sum(len(write.records) for write in writes)
