"""The fold: any prefix of a legal log folds, what only a bug can write is refused by its reason."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from semel.core.codec import decode, encode
from semel.core.fold import apply, fold
from semel.core.frame import Frame
from semel.core.outcomes import Outcome
from semel.core.persistent import Chain, Names, Packed, Table
from semel.core.records import (
    Entry,
    ModelStepFinished,
    Record,
    RunFinished,
    RunStarted,
    StepStarted,
    ToolBatchFinished,
    ToolBatchStarted,
    ToolCallReturned,
    ToolDispatchIntent,
    ToolNoDispatch,
    ToolOutput,
    ToolResult,
    TurnFinished,
)
from semel.core.state import Logged, Session
from semel.core.values import AssistantMessage, Effect, Opaque, Text, ToolMessage
from semel.errors import CorruptLog, NewerWriter
from tests.core.machine import BUNDLE, LINEAGE, Machine, Script, World, call, say, tool, unknown, whole_run
from tests.core.said import said
from tests.core.test_recovery import SCRIPTS


def empty() -> Session:
    return Session(session="s", lineage=LINEAGE)


def renumbered(records: list[Record]) -> list[Logged]:
    return [Logged(seq=at, at_ms=at, fence=1, record=record) for at, record in enumerate(records, start=1)]


def records_of(script: Script) -> list[Record]:
    return [logged.record for logged in whole_run(script).logged() if logged.record is not None]


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_prefix_of_a_legal_log_folds_and_folding_in_two_parts_is_folding_whole(name: str) -> None:
    logged = whole_run(SCRIPTS[name]).logged()
    whole = fold(logged, empty())
    for cut in range(len(logged) + 1):
        first = fold(logged[:cut], empty())
        assert fold(logged[cut:], first) == whole
        assert first == fold(logged[:cut], empty())


@pytest.mark.parametrize("name", SCRIPTS)
def test_informational_records_can_be_taken_out_and_the_state_is_the_same(name: str) -> None:
    records = records_of(SCRIPTS[name])
    rest = [record for record in records if type(record).__name__ not in ("ModelAttemptFinished", "ResumeStarted")]
    whole, thin = renumbered(records), renumbered(rest)
    with_all, without = fold(whole, empty()), fold(thin, empty())
    assert said(without, thin) == said(with_all, whole)
    assert without.ended.keys() == with_all.ended.keys()


Change = Callable[[list[Record]], list[Record]]


def at(kind: type, change: Callable[[Record], list[Record]]) -> Change:
    """Replace the first record of a kind."""

    def apply(records: list[Record]) -> list[Record]:
        place = next(i for i, record in enumerate(records) if isinstance(record, kind))
        return [*records[:place], *change(records[place]), *records[place + 1 :]]

    return apply


def twice(kind: type) -> Change:
    return at(kind, lambda record: [record, record])


def without(kind: type, *, last: bool = False) -> Change:
    def apply(records: list[Record]) -> list[Record]:
        places = [i for i, record in enumerate(records) if isinstance(record, kind)]
        place = places[-1 if last else 0]
        return [*records[:place], *records[place + 1 :]]

    return apply


def step_behind(name: str) -> Change:
    """Another step where the run of that script should have ended."""

    def apply(_records: list[Record]) -> list[Record]:
        records = records_of(SCRIPTS[name])
        last = next(record for record in reversed(records) if isinstance(record, StepStarted))
        return [*records[:-1], replace(last, step_id=last.step_id + 1, result_entry="another")]

    return apply


def result_of_the_refused(_records: list[Record]) -> list[Record]:
    """The first refused call has a result instead."""

    def instead(record: Record) -> list[Record]:
        assert isinstance(record, ToolNoDispatch)
        return [
            ToolResult(
                batch_id=record.batch_id,
                ordinal=record.ordinal,
                tool_call_id=record.tool_call_id,
                is_error=True,
                outcome=Outcome.INTERRUPTED,
                output=ToolOutput(text="x"),
            )
        ]

    return at(ToolNoDispatch, instead)(records_of(SCRIPTS["refused"]))


ILLEGAL: dict[str, tuple[str, Change]] = {
    "two runs open": ("multiple_open_operations", at(RunStarted, lambda r: [r, replace(r, run_id="other", key="other")])),
    "a step of no run": ("unknown_operation", at(StepStarted, lambda r: [replace(r, run_id="other")])),
    "a batch record of no batch": ("unknown_operation", at(ToolDispatchIntent, lambda r: [replace(r, batch_id="other")])),
    "a record behind the terminal": ("record_after_finish", lambda records: [*records, records[1]]),
    "a finished batch goes on": ("record_after_finish", at(ToolBatchFinished, lambda r: [r, r])),
    "attempt 3 behind attempt 1": ("non_consecutive_attempt", at(StepStarted, lambda r: [r, replace(r, attempt=3)])),
    "a first attempt that is the second": ("non_consecutive_attempt", at(StepStarted, lambda r: [replace(r, attempt=2)])),
    "attempts that disagree": (
        "inconsistent_step",
        at(StepStarted, lambda r: [r, replace(r, attempt=2, result_entry="other")]),
    ),
    "an answer under another entry": (
        "inconsistent_step",
        at(ModelStepFinished, lambda r: [replace(r, assistant_message=replace(r.assistant_message, entry_id="other"))]),
    ),
    "a turn without its batch": ("inconsistent_step", at(ToolBatchStarted, lambda r: [TurnFinished(run_id=r.run_id, step_id=1)])),
    "a batch finished too early": ("inconsistent_step", without(ToolResult, last=True)),
    "a result before its turn": ("tool_call_mismatch", without(ToolResult)),
    "a key that starts two runs": (
        "provisioned_entry_mismatch",
        lambda records: [*records, replace(records[0], run_id="other", entries=())],  # type: ignore[type-var]  # run_started
    ),
    "a step behind the last answer": ("inconsistent_step", step_behind("text")),
    "a step behind an unknown call": ("inconsistent_step", step_behind("unknown live")),
    "a result of a refused call": ("tool_call_mismatch", result_of_the_refused),
    "a completed end over an unknown call": (
        "inconsistent_step",
        lambda _records: [
            replace(r, reason="completed") if isinstance(r, RunFinished) else r for r in records_of(SCRIPTS["unknown live"])
        ],
    ),
    "a plan of other calls": (
        "tool_call_mismatch",
        at(ToolBatchStarted, lambda r: [replace(r, planned_calls=r.planned_calls[:1])]),
    ),
    "a result of a call that was never sent": ("tool_call_mismatch", without(ToolDispatchIntent)),
    "a start of a refused shape": ("tool_call_mismatch", at(ToolDispatchIntent, lambda r: [replace(r, args_digest="other")])),
    "a call that does not exist": ("tool_call_mismatch", at(ToolDispatchIntent, lambda r: [replace(r, ordinal=9)])),
    "two starts of one call": ("duplicate_tool_invocation", twice(ToolDispatchIntent)),
    "two results of one call": ("duplicate_tool_invocation", twice(ToolResult)),
    "a result that denies its return": (
        "provisioned_entry_mismatch",
        lambda records: [replace(r, is_error=True) if isinstance(r, ToolResult) and r.output is None else r for r in records],
    ),
    "an entry with two contents": (
        "provisioned_entry_mismatch",
        at(RunStarted, lambda r: [replace(r, entries=(*r.entries, Entry(entry_id=r.config, content=r.entries[1].content)))]),
    ),
    "two ends": ("record_after_finish", twice(RunFinished)),
}


@pytest.mark.parametrize("name", ILLEGAL)
def test_a_log_that_only_a_bug_can_write_is_refused_by_its_reason(name: str) -> None:
    reason, change = ILLEGAL[name]
    records = records_of(SCRIPTS["apart"])
    fold(renumbered(records), empty())
    with pytest.raises(CorruptLog) as caught:
        fold(renumbered(change(records)), empty())
    assert caught.value.reason == reason
    assert caught.value.seq > 0
    assert "session 's'" in str(caught.value)


def test_a_gap_in_the_numbers_is_refused() -> None:
    logged = whole_run(SCRIPTS["text"]).logged()
    with pytest.raises(CorruptLog, match="non_consecutive_seq"):
        fold([logged[0], *logged[2:]], empty())


def test_two_currencies_in_one_run_are_refused() -> None:
    from semel.core.values import Money

    records = records_of(SCRIPTS["once"])
    priced = [
        replace(record, usage=replace(record.usage, cost=Money(micros=1, currency=currency)))
        for record, currency in zip([r for r in records if isinstance(r, ModelStepFinished)], ("USD", "EUR"), strict=True)
    ]
    answers = iter(priced)
    changed = [next(answers) if isinstance(record, ModelStepFinished) else record for record in records]
    with pytest.raises(CorruptLog, match="inconsistent_cost"):
        fold(renumbered(changed), empty())


def test_a_verdict_takes_the_place_of_the_unknown_result_while_no_request_has_shown_it() -> None:
    script = Script(answers=[call("pay"), say("done")], tools=[tool("pay")], replies={"pay": unknown()})
    world = World()
    machine = Machine(world, script)
    machine.start()
    key = machine.state.unknown[0].call_key
    machine.resolve(key, "happened", output="it is paid")
    machine.start("k2", "go on")
    assert b"it is paid" in world.requests[-1]
    assert b"Outcome unknown" not in world.requests[-1]
    assert machine.state.pending == ()


def test_a_verdict_that_comes_behind_a_request_is_a_message_of_its_own() -> None:
    script = Script(answers=[call("pay"), say("hm"), say("done")], tools=[tool("pay")], replies={"pay": unknown()})
    world = World()
    machine = Machine(world, script)
    machine.start()
    key = machine.state.unknown[0].call_key
    machine.start("k2", "are you there?")
    machine.resolve(key, "did_not_happen")
    machine.start("k3", "and now?")
    assert world.requests[-1].startswith(world.requests[-2][:-2])  # what was sent before is not rewritten
    assert b"did not take effect" in world.requests[-1]


def test_opaque_state_goes_back_to_the_model_that_made_it_and_to_no_other() -> None:
    secret = Opaque(format="reasoning_content", data='"hm"')
    script = Script(answers=[[secret, Text(text="one")], say("two"), say("three")])
    machine = Machine(World(), script)
    machine.start()
    machine.start("k2", "same model")
    assert any(isinstance(message, AssistantMessage) and message.opaque for message in machine.world.said())
    other = replace(BUNDLE, model="other")
    command = script.command("k3", "another model")
    from semel.core.decide import send

    machine.run(send(machine.state, replace(command, config=replace(command.config, bundle=other))))
    assert not any(isinstance(message, AssistantMessage) and message.opaque for message in machine.world.said())


def test_an_unknown_type_is_skipped_in_an_ungated_frame_and_refused_in_a_gated_one() -> None:
    payload = b'{"type":"from_the_future","x":1}'
    plain = Frame(ver=1, seq=1, at_ms=0, fence=1, synced=0, left=0, requires=(), digest="0" * 64, payload=payload, offset=0)
    assert decode(plain) is None
    with pytest.raises(NewerWriter, match="future/v9"):
        decode(replace(plain, ver=3, requires=("future/v9",)))
    with pytest.raises(NewerWriter, match="from_the_future"):
        decode(replace(plain, ver=3, requires=("resolution/v1",)))
    with pytest.raises(NewerWriter, match="turn_finished"):
        decode(replace(plain, payload=b'{"type":"turn_finished","run_id":5}'))


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_record_comes_back_from_its_bytes_and_gated_content_names_its_feature(name: str) -> None:
    for record in records_of(SCRIPTS[name]):
        payload, requires = encode(record)
        frame = Frame(
            ver=3 if requires else 1,
            seq=1,
            at_ms=0,
            fence=1,
            synced=0,
            left=0,
            requires=requires,
            digest="0" * 64,
            payload=payload,
            offset=0,
        )
        assert decode(frame) == record
        assert bool(requires) == (isinstance(record, ToolCallReturned) or bool(getattr(record, "terminate", False)))


def test_a_refused_call_reads_as_an_error_in_its_place() -> None:
    world = whole_run(SCRIPTS["refused"])
    results = [message for message in world.said() if isinstance(message, ToolMessage)]
    assert [message.is_error for message in results] == [True, False, True, True]
    refused = [record for record in records_of(SCRIPTS["refused"]) if isinstance(record, ToolNoDispatch)]
    assert {record.reason for record in refused} == {"unknown_tool"}


def test_versions_of_a_chain_share_their_items_and_never_see_each_others() -> None:
    one = Chain[int]().plus(1, 2)
    two, other = one.plus(3), one.plus(4)
    assert (list(one), list(two), list(other)) == ([1, 2], [1, 2, 3], [1, 2, 4])
    assert two[-1] == 3
    assert two[0:2] == [1, 2]
    with pytest.raises(IndexError):
        _ = one[2]


def test_versions_of_packed_numbers_share_their_store_and_never_see_each_others() -> None:
    one = Packed().plus([1, 2])
    two, other = one.plus([3]), one.plus([4])
    assert (list(one), list(two), list(other)) == ([1, 2], [1, 2, 3], [1, 2, 4])
    assert list(one.replaced(0, 9)) == [9, 2]
    assert two.grew_from(one)
    assert not other.grew_from(one)
    assert Packed().plus([2**64 - 1])[0] == 2**64 - 1
    with pytest.raises(IndexError):
        _ = one[2]


def test_a_set_of_names_holds_each_name_from_the_version_on_that_added_it() -> None:
    names = [f"call_{number}" for number in range(5_000)]
    first = Names().plus(names[:2_500])
    whole, other = first.plus(names[2_500:]), first.plus(["another"])
    assert all(name in whole for name in names)
    assert [name in first for name in names] == [True] * 2_500 + [False] * 2_500
    assert "another" in other
    assert names[2_500] not in other
    twice = whole.plus(names)
    assert all(name in twice for name in names)
    assert "another" not in twice
    assert whole == Names().plus(names)
    assert first != whole


def test_an_old_version_of_a_table_stays_what_it_was_while_newer_ones_grow() -> None:
    old = Table[int]().plus("a", 1)
    new = old
    for number in range(100):
        new = new.plus(f"k{number}", number)
    assert (dict(old), len(new), "k7" in old, "k7" in new) == ({"a": 1}, 101, False, True)
    assert dict(old.plus("b", 2)) == {"a": 1, "b": 2}
    with pytest.raises(KeyError):
        _ = old["k7"]


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_state_that_was_given_away_never_changes_again(name: str) -> None:
    assert _shaken(whole_run(SCRIPTS[name]).logged()) == []


def test_canary_a_fold_that_changes_what_it_does_not_own_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("semel.core.fold.owned", lambda state: state)
    assert _shaken(whole_run(SCRIPTS["parallel"]).logged())


def _shaken(logged: list[Logged]) -> list[int]:
    """The places where a state changed behind the back of who holds it, while records were applied one at a time."""
    states = [empty()]
    bytes_then = [repr(states[0])]
    for one in logged:
        states.append(apply(states[-1], one))
        bytes_then.append(repr(states[-1]))
    return [at for at, state in enumerate(states) if repr(state) != bytes_then[at]]


def test_versions_of_a_table_share_their_items_and_never_see_each_others() -> None:
    one = Table[int]().plus("a", 1)
    two, other = one.plus("b", 2), one.plus("b", 3)
    assert (dict(one), dict(two), dict(other)) == ({"a": 1}, {"a": 1, "b": 2}, {"a": 1, "b": 3})
    assert "b" not in one
    with pytest.raises(KeyError):
        two.plus("a", 5)


def test_a_prompt_names_nothing_that_a_log_assigned() -> None:
    script = Script(answers=[call("read"), say("done")], tools=[tool("read", Effect.READ)])
    worlds = [World(), World()]
    for world, lineage in zip(worlds, ("1" * 32, "2" * 32), strict=True):
        machine = Machine(world, script)
        machine.state = Session(session="s", lineage=lineage)
        machine.start()
    assert worlds[0].requests == worlds[1].requests
