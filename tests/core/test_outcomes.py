"""What became of a call: the table, the peeling of exceptions, and the words."""

import asyncio
import runpy
import subprocess
import sys
import unicodedata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semel.core.outcomes import (
    MESSAGE_CHARS_MAX,
    Completed,
    DidNotHappen,
    NeverSent,
    NotSent,
    Outcome,
    RefusalReason,
    SentButOutcomeUnknown,
    classify_exception,
    completed,
    describe,
    lost,
    refuse,
    settle,
)
from semel.core.uncertainty import LostReason
from semel.core.values import Effect
from semel.errors import CallNotSent, InvariantBroken, OutcomeUnknown, SessionBusy, ToolFailed

TABLE = runpy.run_path(str(Path(__file__).parents[2] / "scripts" / "outcome_table.py"))


def foreign(name: str, module: str, base: type[BaseException] = Exception, **fields: Any) -> BaseException:
    """An exception as a library that is not installed here would raise it."""
    error = type(name, (base,), {"__module__": module})()
    vars(error).update(fields)
    return error


def reason_of(exc: BaseException) -> LostReason | None:
    verdict = classify_exception(exc)
    return verdict.reason if isinstance(verdict, SentButOutcomeUnknown) else None


def test_every_row_of_the_table_settles_as_it_says() -> None:
    wrong, count = TABLE["disagreements"]()
    print(f"{len(TABLE['ROWS'])} rows, {count} cells")
    assert wrong == []
    assert len(TABLE["ROWS"]) >= 55
    assert count == 3 * len(TABLE["ROWS"])


def test_the_page_of_outcomes_is_generated_from_the_table() -> None:
    page: Path = TABLE["PAGE"]
    assert page.read_text(encoding="utf-8") == TABLE["outcome_table_markdown"](), "run python scripts/outcome_table.py"
    assert page.read_text(encoding="utf-8").count("\n| ") >= 30


def test_only_a_once_call_stops_its_run_and_only_for_an_unknown_outcome() -> None:
    for effect in Effect:
        for after_crash in (False, True):
            for happening in (Completed(text="x"), NotSent(text="x"), lost(LostReason.CRASHED), DidNotHappen(), NeverSent()):
                found = settle(effect, happening, after_crash=after_crash)
                unknown = effect is Effect.ONCE and isinstance(happening, SentButOutcomeUnknown)
                assert found.stops_run == (found.outcome is Outcome.UNKNOWN) == unknown


def test_the_wish_to_end_the_run_is_kept() -> None:
    assert settle(Effect.READ, completed("bye", terminate=True), after_crash=False).terminate


def test_a_cycle_of_causes_is_peeled_once_around() -> None:
    first, second = ValueError("first"), KeyError("second")
    first.__cause__, second.__context__ = second, first
    assert classify_exception(first) == Completed(text="ValueError: first", is_error=True)
    second.__cause__ = TimeoutError()
    assert reason_of(first) is LostReason.TIMEOUT


def test_a_chain_of_ten_thousand_causes_is_peeled_to_its_end() -> None:
    outer: BaseException = ConnectionResetError()
    for _ in range(10_000):
        wrapper = RuntimeError("retrying")
        wrapper.__cause__ = outer
        outer = wrapper
    assert reason_of(outer) is LostReason.CONNECTION_LOST


def test_deeply_nested_groups_are_peeled_and_described() -> None:
    group: BaseException = TimeoutError("deep")
    for _ in range(5_000):
        group = ExceptionGroup("g", [ValueError("v"), group])
    assert reason_of(group) is LostReason.TIMEOUT
    assert describe(group) == "ValueError: v; ValueError: v; ValueError: v; and 4998 more"


def test_an_exception_raised_from_none_hides_what_was_handled() -> None:
    def look_up() -> None:
        try:
            raise TimeoutError
        except TimeoutError:
            raise ValueError("cache was cold") from None

    with pytest.raises(ValueError) as caught:
        look_up()
    assert isinstance(caught.value.__context__, TimeoutError)
    assert classify_exception(caught.value) == Completed(text="ValueError: cache was cold", is_error=True)


def test_tool_failed_is_believed_where_the_tool_raised_it_and_nowhere_deeper() -> None:
    judged = ToolFailed("declined")
    judged.__cause__ = TimeoutError()
    assert classify_exception(judged) == Completed(text="declined", is_error=True)
    assert reason_of(ExceptionGroup("tasks", [judged])) is None
    wrapped = RuntimeError("oops")
    wrapped.__cause__ = judged
    assert reason_of(wrapped) is LostReason.TIMEOUT


def test_not_sent_is_believed_only_from_the_exception_itself() -> None:
    not_sent = CallNotSent("no such program")
    not_sent.__cause__ = TimeoutError()
    assert classify_exception(not_sent) == NotSent(text="no such program")
    wrapped = RuntimeError("oops")
    wrapped.__cause__ = not_sent
    assert reason_of(wrapped) is LostReason.TIMEOUT


def test_the_output_of_tool_failed_keeps_its_lines_below_the_message() -> None:
    error = ToolFailed("exit\ncode 3", output="line 1\nline 2\x00")
    assert classify_exception(error) == Completed(text="exit code 3\nline 1\nline 2\ufffd", is_error=True)


def test_semels_own_errors_answer_for_themselves() -> None:
    assert reason_of(OutcomeUnknown("bank is down")) is LostReason.NOT_KNOWN
    assert reason_of(InvariantBroken("bug")) is LostReason.NOT_KNOWN
    assert reason_of(SessionBusy("held")) is None


def test_every_broken_exchange_of_our_own_client_is_unknown() -> None:
    kinds = [httpx2.RequestError]
    for kind in kinds:
        kinds.extend(kind.__subclasses__())
    found = {kind.__name__: reason_of(kind("boom")) for kind in kinds}
    print(found)
    assert len(found) >= 20
    assert [name for name, reason in found.items() if reason is None] == ["UnsupportedProtocol"]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (foreign("ConnectionError", "requests.exceptions", OSError), LostReason.CONNECTION_LOST),
        (foreign("ReadTimeout", "requests.exceptions", OSError), LostReason.TIMEOUT),
        (foreign("ChunkedEncodingError", "requests.exceptions", OSError), LostReason.CONNECTION_LOST),
        (foreign("MissingSchema", "requests.exceptions", ValueError), None),
        (foreign("MaxRetryError", "urllib3.exceptions", reason=ConnectionResetError()), LostReason.CONNECTION_LOST),
        (foreign("ProtocolError", "urllib3.exceptions"), LostReason.CONNECTION_LOST),
        (foreign("LocationParseError", "urllib3.exceptions", ValueError), None),
        (foreign("ClientPayloadError", "aiohttp.client_exceptions"), LostReason.CONNECTION_LOST),
        (foreign("ClientResponseError", "aiohttp.client_exceptions", status=502), LostReason.SERVER_ERROR),
        (foreign("ClientResponseError", "aiohttp.client_exceptions", status=422), None),
        (foreign("ReadError", "httpcore._exceptions", type("NetworkError", (Exception,), {"__module__": "httpcore"})),
         LostReason.CONNECTION_LOST),
        (foreign("IncompleteRead", "http.client", type("HTTPException", (Exception,), {"__module__": "http.client"})),
         LostReason.CONNECTION_LOST),
        (foreign("RpcError", "grpc", code=lambda: SimpleNamespace(name="UNAVAILABLE")), LostReason.CONNECTION_LOST),
        (foreign("RpcError", "grpc", code=lambda: SimpleNamespace(name="INVALID_ARGUMENT")), None),
        (foreign("RpcError", "grpc"), LostReason.CONNECTION_LOST),
        (foreign("OperationalError", "psycopg", sqlstate=None), LostReason.CONNECTION_LOST),
        (foreign("OperationalError", "psycopg", sqlstate="57P01"), LostReason.CONNECTION_LOST),
        (foreign("OperationalError", "psycopg", sqlstate="40P01"), None),
        (foreign("OperationalError", "sqlite3"), None),
        (foreign("ClientError", "botocore.exceptions", response={"ResponseMetadata": {"HTTPStatusCode": 503}}),
         LostReason.SERVER_ERROR),
        (foreign("ClientError", "botocore.exceptions", response={"ResponseMetadata": {"HTTPStatusCode": 400}}), None),
        (foreign("TimeoutError", "redis.exceptions"), LostReason.TIMEOUT),
        (foreign("Cancelled", "trio", BaseException), LostReason.INTERRUPTED),
        (foreign("CancelledError", "concurrent.futures"), LostReason.CANCELLED),
        (subprocess.TimeoutExpired(["pay"], 3), LostReason.TIMEOUT),
        (asyncio.IncompleteReadError(b"", 4), LostReason.CONNECTION_LOST),
        (RuntimeError(TimeoutError()), LostReason.TIMEOUT),
        (foreign("OrderCancelled", "shop"), None),
        (foreign("RateLimited", "shop", status_code=429), None),
        (foreign("Flagged", "shop", code=True), None),
        (foreign("Odd", "shop", BaseException), LostReason.INTERRUPTED),
        (SystemExit(503), None),
        (IsADirectoryError(21, "Is a directory"), None),
        (EOFError(), None),
    ],
    ids=lambda value: f"{type(value).__module__}.{type(value).__name__}" if isinstance(value, BaseException) else "",
)  # fmt: skip
def test_an_exception_of_a_library_is_recognised_by_name(error: BaseException, reason: LostReason | None) -> None:
    assert reason_of(error) is reason


class Hostile(Exception):
    """Everything that can be asked of it raises."""

    def __str__(self) -> str:
        raise RuntimeError("no text")

    def __getattribute__(self, name: str) -> Any:
        if name in {"status", "status_code", "code", "response", "returncode"}:
            raise RuntimeError("no attribute")
        return super().__getattribute__(name)

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no comparison")

    __hash__ = Exception.__hash__


def test_an_exception_that_raises_when_it_is_asked_is_still_classified() -> None:
    assert classify_exception(Hostile()) == Completed(text="Hostile", is_error=True)


ANY_TEXT = st.text(st.characters(), max_size=60) | st.sampled_from(
    ["", " ", "\n\t", "\x1b[31m", "\u202e", "\ud800", "x" * 50_000]
)


def raised(kind: type[BaseException] | str, text: str) -> BaseException:
    return type(kind, (Exception,), {})(text) if isinstance(kind, str) else kind(text)


@settings(max_examples=300, deadline=None)
@given(
    kind=st.text(max_size=60).filter(lambda name: "\0" not in name)
    | st.sampled_from([ValueError, TimeoutError, ToolFailed, CallNotSent, OutcomeUnknown, asyncio.CancelledError, KeyError]),
    text=ANY_TEXT,
    wrapped=st.booleans(),
    effect=st.sampled_from(Effect),
    after_crash=st.booleans(),
)
def test_whatever_an_exception_says_the_message_is_bounded_nonblank_and_control_free(
    kind: type[BaseException] | str, text: str, wrapped: bool, effect: Effect, after_crash: bool
) -> None:
    exc = raised(kind, text)
    if wrapped:
        outer = ExceptionGroup("g", [exc]) if isinstance(exc, Exception) else RuntimeError(text)
        outer.__cause__ = exc
        exc = outer
    for message in (
        settle(effect, classify_exception(exc), after_crash=after_crash).text,
        refuse(RefusalReason.SCHEMA_INVALID, text).message,
        settle(effect, lost(LostReason.TIMEOUT, text), after_crash=after_crash).text,
    ):
        assert message.strip()
        assert len(message) < 2 * MESSAGE_CHARS_MAX + 300
        assert not [c for c in message if unicodedata.category(c) in {"Cc", "Cs", "Cf", "Zl", "Zp"}]
        message.encode()


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("plain\ntext", "plain\ntext"),
        ("lone \ud800 and \0", "lone \ufffd and \ufffd"),
        (None, ""),
        ("", ""),
        ([], "[]"),
        ({"b": [1, None, True], "a": "\udcb2"}, '{"b":[1,null,true],"a":"\ufffd"}'),
        (0, "0"),
    ],
)
def test_a_returned_value_becomes_text(value: Any, text: str) -> None:
    assert completed(value) == Completed(text=text)


@pytest.mark.parametrize("value", [float("nan"), {"a": [float("-inf")]}, object(), {"a": {1, object()}}])
def test_a_value_that_json_cannot_carry_is_an_error_that_says_the_tool_ran(value: Any) -> None:
    found = completed(value)
    assert found.is_error
    assert found.text.startswith("the tool ran, but its result cannot be shown: ")


def test_a_value_that_holds_itself_is_an_error_and_not_a_crash() -> None:
    endless: list[Any] = []
    endless.append(endless)
    assert completed(endless).is_error


def test_every_reason_to_refuse_and_every_reason_of_loss_has_its_words() -> None:
    assert all(refuse(reason).message.endswith(".") for reason in RefusalReason)
    assert all(lost(reason).text for reason in LostReason)
    assert (
        refuse(RefusalReason.UNKNOWN_TOOL, "Offered: a, b.").message == "Not run: no tool of that name is offered. Offered: a, b."
    )


def test_the_classifier_imports_no_library_that_it_recognises() -> None:
    code = (
        "import sys, semel.core.outcomes, semel.core.arguments;"
        "print(sorted({'asyncio', 'ssl', 'http', 'logging', 'httpx2', 'jsonschema_rs', 'subprocess'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
