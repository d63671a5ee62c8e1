"""`explain`: every call that is open or unknown is named by its key, after every write of every script (issue: show, explain)."""

import pytest

from semel.core.explain import KEY_CHARS_SHOWN, explain
from semel.core.state import Session
from tests.core.scripts import SCRIPTS
from tests.core.writes import folded


def keys_to_name(state: Session) -> set[str]:
    """The calls that somebody has to know of: those of the open batch that nothing has settled, and the unknown ones."""
    run = state.run
    batch = run.step.batch if run is not None and run.step is not None else None
    waiting = () if batch is None or batch.finished else batch.calls
    open_calls = (call.planned for call in waiting if call.settled is None and not call.terminal)
    return {planned.call_key for planned in open_calls if planned.refused is None} | {call.call_key for call in state.unknown}


@pytest.mark.parametrize("name", SCRIPTS)
def test_each_open_or_unknown_call_is_named_in_each_state_of_a_script(name: str) -> None:
    d = SCRIPTS[name]()
    for upto in range(len(d.writes) + 1):
        state = folded(d.writes[:upto])
        for carried in (True, False):
            text = " ".join(sentence.text for sentence in explain(state, carried=carried))
            assert text
            assert [key for key in keys_to_name(state) if key[:KEY_CHARS_SHOWN] not in text] == []
