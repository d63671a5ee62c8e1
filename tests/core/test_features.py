"""Which content needs which feature, row by row, and that a gate left out would be seen."""

from typing import Any

import pytest

from semel.core.features import GATES, foreseen, needed
from semel.core.records import PlannedCall, Refused, ToolBatchStarted
from tests.core.carriers import CARRIERS


@pytest.mark.parametrize(
    ("record", "features"), CARRIERS, ids=[f"{at}-{type(row[0]).__name__}" for at, row in enumerate(CARRIERS)]
)
def test_a_record_needs_the_features_of_its_content_and_no_other(record: Any, features: set[str]) -> None:
    assert needed(record) == tuple(sorted(features))


def test_every_conditional_gate_has_a_row_that_needs_it() -> None:
    shown = {(feature, type(record)) for record, features in CARRIERS for feature in features}
    conditional = {gate.feature for gate in GATES if gate.when != "always"}
    untested = conditional - {feature for feature, _ in shown}
    assert untested == {"scope/v1", "plan-manifest/v1", "dispatch-module/v1", "context-ceiling/v1"}  # full samples show these
    assert len(CARRIERS) == 60


def test_a_gate_that_is_left_out_would_be_seen() -> None:
    for feature in sorted({feature for _, features in CARRIERS for feature in features}):
        rest = [gate for gate in GATES if gate.feature != feature]
        changed = [
            record
            for record, features in CARRIERS
            if {gate.feature for gate in rest if type(record) in gate.records and gate.test(record)} != features
        ]
        assert changed, feature


def test_a_batch_foresees_that_a_call_ends_the_run_and_one_of_several_that_a_call_comes_back_first() -> None:
    def batch(*refused: bool) -> ToolBatchStarted:
        calls = tuple(
            PlannedCall(
                ordinal=at,
                tool_call_id=str(at),
                call_key=str(at),
                tool="t",
                args_digest="",
                refused=Refused(reason="denied", message="no") if no else None,
            )
            for at, no in enumerate(refused)
        )
        return ToolBatchStarted(run_id="r", batch_id="b", step_id=1, planned_calls=calls)

    assert foreseen(batch(False, False)) == ("early-return/v1", "terminate/v1")
    assert foreseen(batch(False, True)) == ("terminate/v1",)
    assert foreseen(batch(True, True)) == ()
