"""Each of the fourteen reasons: logs that only a bug can write, and beside each the nearest log that a legal writer writes."""

import ast
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

from semel.core import corruption
from semel.core.corruption import Reason, same_entry
from semel.core.fold import fold
from semel.core.records import HistorySupplied, ModelAttemptFinished
from semel.core.state import Session
from semel.core.values import UserMessage
from semel.errors import CorruptLog
from tests.core.corruptions import CASES as FIRST
from tests.core.corruptions_more import MORE, QUIET
from tests.core.edits import first_of, folds, numbered, records_of
from tests.core.machine import LINEAGE

CASES = FIRST | MORE
CORE = Path(corruption.__file__).parent


@pytest.mark.parametrize("name", CASES)
def test_a_log_that_only_a_bug_can_write_is_refused_by_its_reason(name: str) -> None:
    case = CASES[name]
    with pytest.raises(CorruptLog) as caught:
        folds(case.illegal(records_of(case.script)))
    error = caught.value
    assert error.reason == case.reason
    assert (error.session, error.seq > 0, bool(error.detail)) == ("s", True, True)
    assert "Nothing was changed" in str(error)


@pytest.mark.parametrize("name", CASES)
def test_the_nearest_log_that_a_legal_writer_writes_folds(name: str) -> None:
    case = CASES[name]
    folds(case.legal(records_of(case.script)))


@pytest.mark.parametrize("name", QUIET)
def test_a_legal_change_folds(name: str) -> None:
    script, change = QUIET[name]
    folds(change(records_of(script)))


def test_a_gap_and_a_repeat_in_the_numbers_are_refused_and_the_whole_sequence_is_not() -> None:
    """K4; it has no exemption, not even for a log that was cut."""
    logged = numbered(records_of("text"))
    empty = Session(session="s", lineage=LINEAGE)
    for broken in ([logged[0], *logged[2:]], [logged[0], logged[0], *logged[1:]], logged[1:]):
        with pytest.raises(CorruptLog) as caught:
            fold(broken, empty)
        assert caught.value.reason == "non_consecutive_seq"
    fold(logged, empty)


def test_each_of_the_fourteen_reasons_has_at_least_two_logs() -> None:
    counts = dict.fromkeys(Reason, 0) | {Reason.NON_CONSECUTIVE_SEQ: 3}
    for case in CASES.values():
        counts[Reason(case.reason)] += 1
    assert len(counts) == 14
    assert min(counts.values()) >= 2, counts
    assert len(CASES) == len(FIRST) + len(MORE) == 112
    print(", ".join(f"{reason} {count}" for reason, count in counts.items()))


def places() -> set[tuple[str, int]]:
    """Every place of the fold that refuses a log: the file and the line of its `raise`."""
    found: set[tuple[str, int]] = set()
    for path in CORE.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and isinstance(node.exc.func, ast.Name):
                found |= {(path.name, node.lineno)} if node.exc.func.id in ("contradiction", "_disagree") else set()
    return found


def places_on(refuse: Callable[[], object]) -> set[tuple[str, int]]:
    """The places on the way to a refusal."""
    with pytest.raises(CorruptLog) as caught:
        refuse()
    return {(Path(frame.f_code.co_filename).name, line) for frame, line in traceback.walk_tb(caught.value.__traceback__)}


def test_every_place_that_refuses_a_log_is_reached_by_one_of_these_logs() -> None:
    empty, history = Session(session="s", lineage=LINEAGE), first_of("supplied", HistorySupplied)
    bad_history = replace(history, entries=history.entries[:2])
    reached = places_on(lambda: fold(numbered(records_of("text"))[1:], empty)) | places_on(lambda: folds([bad_history]))
    for case in CASES.values():
        reached |= places_on(partial(folds, case.illegal(records_of(case.script))))
    assert len(places()) >= 80
    assert places() - reached == set()


def test_an_illegal_write_is_corrupt_wherever_the_log_is_cut_behind_it() -> None:
    """K18: what needs an illegal write stays corrupt however much of a legal log follows."""
    case = CASES["two starts of one call"]
    records = case.illegal(records_of(case.script))
    with pytest.raises(CorruptLog) as caught:
        folds(records)
    for end in range(caught.value.seq, len(records) + 1):
        with pytest.raises(CorruptLog):
            folds(records[:end])
    folds(records[: caught.value.seq - 1])


def test_entries_are_compared_by_one_primitive_and_by_their_content_alone() -> None:
    """K16, K17: content carries nothing that the store assigns, so that equality is the whole comparison."""
    assert same_entry(UserMessage(text="a"), UserMessage(text="a"))
    assert not same_entry(UserMessage(text="a"), UserMessage(text="b"))
    for logged in numbered(records_of("parallel")):
        if isinstance(logged.record, ModelAttemptFinished):
            continue
        assert not {"seq", "at_ms", "fence", "synced"} & set(logged.record.__struct_fields__)  # type: ignore[union-attr]  # there
