"""`explain`: every call that is open or unknown is named by its key, after every write of every script (issue: show, explain)."""

from pathlib import Path

import pytest
from hypothesis import given, settings

from semel.core.explain import KEY_CHARS_SHOWN, explain
from semel.core.state import Session
from tests.core.play import Player
from tests.core.scripts import SCRIPTS
from tests.core.test_model import MOVES
from tests.core.test_prefixes import played, prefixes
from tests.core.writes import folded

EXPLAINED = Path(__file__).parent / "explained.txt"


def keys_to_name(state: Session) -> set[str]:
    """The calls that somebody has to know of: open, waiting for a person, unknown, or owing a result."""
    run = state.run
    batch = run.step.batch if run is not None and run.step is not None else None
    waiting = () if batch is None or batch.finished else batch.calls
    open_calls = (call.planned for call in waiting if call.settled is None and not call.terminal)
    named = {planned.call_key for planned in open_calls if planned.refused is None} | {call.call_key for call in state.unknown}
    asked = run.step.undecided if run is not None and run.step is not None else ()
    return named | {one.call_key for one in asked} | {key for key in state.owed if key not in state.late}


@pytest.mark.parametrize("name", SCRIPTS)
def test_each_call_that_matters_is_named_in_each_state_of_a_script(name: str) -> None:
    for writes in prefixes(played(name).writes):
        state = folded(writes)
        for carried in (True, False):
            told = explain(state, carried=carried)
            text = " ".join(sentence.text for sentence in told)
            assert text
            assert [key for key in keys_to_name(state) if key[:KEY_CHARS_SHOWN] not in text] == []
            assert all(sentence.text.isprintable() and sentence.text.endswith(".") for sentence in told)


@settings(max_examples=150, derandomize=True, deadline=None, database=None)
@given(MOVES)
def test_each_call_that_matters_is_named_wherever_a_history_stands(moves: list[int]) -> None:
    player = Player(moves[0])
    for move in moves[1:]:
        player.play([move])
    for carried in (True, False):
        text = " ".join(sentence.text for sentence in explain(player.driver.state, carried=carried))
        assert [key for key in keys_to_name(player.driver.state) if key[:KEY_CHARS_SHOWN] not in text] == []


def test_a_call_that_is_left_out_would_be_seen() -> None:
    state = folded(played("held").writes[:3])
    first = explain(state, carried=False)[0].text
    assert [key for key in keys_to_name(state) if key[:KEY_CHARS_SHOWN] not in first] != []


def told_of(name: str, writes: int) -> list[str]:
    """What is said behind so many writes of a script, each with its command, in a process that does not carry it."""
    told = explain(folded(played(name).writes[:writes]), carried=False)
    return [f"{one.text} [{' '.join(one.command)}]" if one.command else one.text for one in told]


def explained() -> list[tuple[str, int, list[str]]]:
    """The scripted states of explained.txt, each with what is said of it."""
    out: list[tuple[str, int, list[str]]] = []
    for block in EXPLAINED.read_text(encoding="utf-8").strip().split("\n\n"):
        head, *lines = block.splitlines()
        name, _, writes = head.partition(", write ")
        out.append((name, int(writes), lines))
    return out


@pytest.mark.parametrize(("name", "writes", "lines"), explained())
def test_a_scripted_state_is_explained_in_these_words(name: str, writes: int, lines: list[str]) -> None:
    assert told_of(name, writes) == lines


def test_a_process_that_carries_the_run_is_left_alone() -> None:
    told = explain(folded(played("parallel").writes[:2]), carried=True)
    assert "A process carries it." in told[0].text
    assert all(one.command is None for one in told)
    assert sum("was sent and has not come back." in one.text for one in told) == 3
