"""The reconciler of a function tool: it asks what became of a key, and never acts."""

from typing import Any

import pytest
from tool_support import a_call

from semel.adapters.tools.function import tool
from semel.ports.tool import Call, Happened, Never, ProcessMark, StillUnknown

pytestmark = pytest.mark.anyio


async def look_up(call: Call[Any]) -> Happened:
    return Happened(output={"refund": call.key})


def look_up_sync(call: Call[Any]) -> Never:
    return Never()


@pytest.mark.parametrize(
    ("reconciler", "answer"),
    [(look_up, Happened(output='{"refund":"key-1"}')), (look_up_sync, Never()), (lambda _call: StillUnknown(), StillUnknown())],
)
async def test_reconcile_asks_the_declared_function(reconciler: Any, answer: Any) -> None:
    @tool(reconcile=reconciler)
    def refund() -> None: ...

    assert refund.spec.reconciles
    assert await refund.reconcile(a_call()) == answer


async def test_reconcile_that_answers_anything_else_is_an_error() -> None:
    @tool(reconcile=lambda _call: True)  # type: ignore[arg-type, return-value]  # the mistake under test
    def refund() -> None: ...

    with pytest.raises(TypeError, match="returned bool"):
        await refund.reconcile(a_call())


async def test_a_function_leaves_no_process_behind() -> None:
    assert await tool(look_up_sync).end_leftovers(ProcessMark(pid=1, started=1, boot="x")) is False
