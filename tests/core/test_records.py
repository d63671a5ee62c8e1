"""The catalogue: two families, exact bytes, and the features that content needs."""

import typing
from typing import Any

import pytest
from msgspec.structs import fields, replace

from semel.core.codec import decode, encode
from semel.core.features import GATES, KNOWN, gates_of, needed
from semel.core.frame import Frame
from semel.core.records import Content, ControlRecord, Record, SendDelivered, SessionRecord
from semel.errors import NewerWriter
from tests.core.carriers import CARRIERS
from tests.core.samples import sample

RECORDS: tuple[Any, ...] = typing.get_args(Record)


def tag(kind: Any) -> str:
    return str(kind.__struct_config__.tag)


def frame(payload: bytes, requires: tuple[str, ...] = ()) -> Frame:
    return Frame(
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


def test_content_and_control_records_are_two_families() -> None:
    content, control = set(typing.get_args(Content)), set(typing.get_args(ControlRecord))
    assert not content & control
    assert len({tag(kind) for kind in RECORDS}) == len(RECORDS)


def test_a_record_of_the_session_structurally_names_no_run_step_or_batch() -> None:
    kinds = typing.get_args(SessionRecord)
    assert len(kinds) == 5
    for kind in kinds:
        assert not {field.name for field in fields(kind)} & {"run_id", "step_id", "batch_id", "episode"}


@pytest.mark.parametrize("kind", RECORDS, ids=tag)
@pytest.mark.parametrize("full", [True, False], ids=["every field", "required fields"])
def test_a_record_comes_back_from_its_bytes_and_its_bytes_from_it(kind: Any, full: bool) -> None:
    record = sample(kind, full=full)
    payload, requires = encode(record)
    assert payload.startswith(b'{"type":"' + tag(kind).encode() + b'"')
    assert decode(frame(payload, requires)) == record
    assert encode(record) == (payload, requires)


@pytest.mark.parametrize("kind", RECORDS, ids=tag)
def test_a_record_without_anything_optional_needs_only_what_its_type_always_needs(kind: Any) -> None:
    record = sample(kind, full=False)
    always = {gate.feature for gate in gates_of(kind) if gate.when == "always"}
    one_of = {"steer-queue/v1"} if kind is SendDelivered else set()  # it always is one of two deliveries
    assert set(needed(record)) == always | one_of


def test_the_known_features_are_those_of_the_contract_and_the_ones_that_semel_adds() -> None:
    contract = """scope/v1 plan-manifest/v1 dispatch-module/v1 steer-queue/v1 google-rpc-error-details/v1 run-cancel-at/v1
        provider-held/v1 provider-text-state/v1 media-content/v1 openrouter-reasoning/v1 chatgpt-codex-wire/v1 compaction/v1
        compaction-view/v1 context-ceiling/v1 runner-tags/v1 tool-times/v1"""
    own = """follow-up-queue/v1 early-return/v1 terminate/v1 resolution/v1 restart-pause/v1 run-refreeze/v1 run-stop/v1
        supplied-history/v1 opaque-state-void/v1"""
    assert set(contract.split()) | set(own.split()) == KNOWN
    assert len(KNOWN) == 25


@pytest.mark.parametrize("name", sorted(KNOWN))
def test_a_build_without_a_feature_refuses_the_frame_by_its_name_before_it_reads_the_content(name: str) -> None:
    with pytest.raises(NewerWriter, match=name) as caught:
        decode(frame(b"not even JSON", (name,)), known=KNOWN - {name})
    assert caught.value.features == (name,)


@pytest.mark.parametrize("name", sorted(KNOWN))
def test_some_record_of_this_build_is_gated_by_each_feature_and_is_refused_without_it(name: str) -> None:
    found = 0
    for kind in {kind for gate in GATES if gate.feature == name for kind in gate.records}:
        for record in variants(kind):
            payload, requires = encode(record)
            if name in requires:
                found += 1
                assert decode(frame(payload, requires)) == record
                with pytest.raises(NewerWriter, match=name):
                    decode(frame(payload, requires), known=KNOWN - {name})
    assert found


def variants(kind: Any) -> list[Any]:
    """The full sample, and for each closed word of it one sample with each other word."""
    record = sample(kind, full=True)
    out = [record]
    for field in fields(kind):
        words = typing.get_args(field.type) if typing.get_origin(field.type) is typing.Literal else ()
        out += [replace(record, **{field.name: word}) for word in words]
        if field.name == "reason" and field.type is str:
            out.append(replace(record, reason="context_ceiling"))
    return out + [record for record, _ in CARRIERS if type(record) is kind]


def test_an_unknown_feature_is_named_with_those_that_are_known_left_out() -> None:
    with pytest.raises(NewerWriter) as caught:
        decode(frame(b"{}", ("aaa/v1", "early-return/v1", "zzz/v9")))
    assert caught.value.features == ("aaa/v1", "zzz/v9")


def test_a_ceiling_decision_that_permits_says_so_with_a_null() -> None:
    kind = next(kind for kind in RECORDS if tag(kind) == "context_ceiling_decided")
    assert b'"detail":null' in encode(kind(run_id="r", step_id=1, detail=None))[0]
