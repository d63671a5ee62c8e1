"""The plan: each call of an answer is dispatchable, or refused and why (B2, T1, design 6). Pure.

The order is fixed: not truncated, tool known, arguments parse strictly, size, schema valid. Every refusal has its own name
and a bounded message that tells the model what to change.
"""

from collections.abc import Sequence

from semel.core.arguments import check_arguments, parse_arguments
from semel.core.keys import call_key_of
from semel.core.outcomes import Refusal, RefusalReason, refuse
from semel.core.persistent import Table
from semel.core.records import PlannedCall, Refused
from semel.core.state import Run
from semel.core.texts import SUBMIT_DESCRIPTION, SUBMIT_TOOL
from semel.core.values import Block, Effect, ToolCall, ToolSpec, digest_text

ARGUMENT_CHARS_MOST = 1024 * 1024
NAMES_TOLD_MOST = 50


def offered(run: Run) -> tuple[ToolSpec, ...]:
    """The tools that the model sees: the agent's, and the one that takes a typed output."""
    if run.config.output_schema is None:
        return run.tools
    submit = ToolSpec(name=SUBMIT_TOOL, description=SUBMIT_DESCRIPTION, parameters=run.config.output_schema, effect=Effect.READ)
    return (*run.tools, submit)


def plan(lineage: str, run: Run, step_id: int, calls: Sequence[ToolCall], *, truncated: bool) -> tuple[PlannedCall, ...]:
    """One planned call per issued call, in issue order."""
    tools = {spec.name: spec for spec in offered(run)}
    return tuple(
        PlannedCall(
            ordinal=ordinal,
            tool_call_id=call.id,
            call_key=call_key_of(lineage, run.run_id, step_id, ordinal),
            tool=call.name,
            args_digest=digest_text(call.arguments),
            refused=_as_planned(refuse(RefusalReason.TRUNCATED_OUTPUT) if truncated else refusal(tools, call)),
        )
        for ordinal, call in enumerate(calls)
    )


def refusal(tools: dict[str, ToolSpec], call: ToolCall) -> Refusal | None:
    """Why this call is not dispatched; None if it is."""
    spec = tools.get(call.name)
    if spec is None:
        names = ", ".join(sorted(tools)[:NAMES_TOLD_MOST]) or "none"
        return refuse(RefusalReason.UNKNOWN_TOOL, f"Offered: {names}.")
    if len(call.arguments) > ARGUMENT_CHARS_MOST:
        return refuse(RefusalReason.OVERSIZED, f"They are {len(call.arguments)} characters; {ARGUMENT_CHARS_MOST} is the limit.")
    parsed = parse_arguments(call.arguments)
    return parsed if isinstance(parsed, Refusal) else check_arguments(spec.parameters, parsed)


def _as_planned(refusal: Refusal | None) -> Refused | None:
    return None if refusal is None else Refused(reason=str(refusal.reason), message=refusal.message)


def identified(blocks: Sequence[Block], taken: Table[bool], step_number: int) -> tuple[Block, ...]:
    """Give each call an id that is unique in the session; an id that the provider repeats or leaves out is replaced.

    The new one derives from the place of the call (the number of the step in the session, and the ordinal), so that it is
    equal in every process and the same for call and result (CON10, B08).
    """
    seen: set[str] = set()
    out: list[Block] = []
    ordinal = 0
    for block in blocks:
        if not isinstance(block, ToolCall):
            out.append(block)
            continue
        name = block.id
        if not name or name in seen or name in taken:
            name = f"call_{step_number}_{ordinal}"
            while name in seen or name in taken:
                name += "_"
        seen.add(name)
        out.append(ToolCall(id=name, name=block.name, arguments=block.arguments))
        ordinal += 1
    return tuple(out)
