"""The plan: each call of an answer is dispatchable, or refused and why, or waits for a person (B2, T1, design 6). Pure.

The order is fixed: not truncated, tool known, arguments parse strictly, size, schema valid, policy, approval. Every refusal has
its own name and a bounded message that tells the model what to change. An approval that is in the log stands, whatever the policy
says by now: planning again after a crash asks nobody twice.
"""

from collections.abc import Sequence

from semel.core.arguments import check_arguments, parse_arguments
from semel.core.calls import Step
from semel.core.keys import call_key_of
from semel.core.outcomes import Refusal, RefusalReason, refuse
from semel.core.persistent import Table
from semel.core.policy import Allow, Ask, Deny, Policy, Undecidable
from semel.core.records import ApprovalRequested, ApprovalResolved, PlannedCall, Refused
from semel.core.state import Run
from semel.core.texts import SUBMIT_DESCRIPTION, SUBMIT_TOOL
from semel.core.turn import DECLINED
from semel.core.values import Block, Effect, Frozen, Stop, ToolCall, ToolSpec, digest_text
from semel.errors import need

ARGUMENT_CHARS_MOST = 1024 * 1024
NAMES_TOLD_MOST = 50


def offered(run: Run) -> tuple[ToolSpec, ...]:
    """The tools that the model sees: the agent's, and the one that takes a typed output."""
    if run.config.output_schema is None:
        return run.tools
    submit = ToolSpec(name=SUBMIT_TOOL, description=SUBMIT_DESCRIPTION, parameters=run.config.output_schema, effect=Effect.READ)
    return (*run.tools, submit)


CUT = {Stop.MAX_TOKENS: RefusalReason.TRUNCATED_OUTPUT} | dict.fromkeys(DECLINED, RefusalReason.ANSWER_DECLINED)
"""Answers whose calls may be incomplete or unwanted, so that none of them runs (A5, A10), and how they are settled."""


class Plan(Frozen, frozen=True, kw_only=True):
    """The calls of an answer as planned, what has to be asked first, and what the policy could not decide."""

    calls: tuple[PlannedCall, ...]
    asks: tuple[ApprovalRequested, ...] = ()
    undecidable: str | None = None


def plan(lineage: str, run: Run, step: Step, policy: Policy) -> Plan:
    """One planned call per issued call, in issue order."""
    tools = {spec.name: spec for spec in offered(run)}
    calls: list[PlannedCall] = []
    asks: list[ApprovalRequested] = []
    for ordinal, call in enumerate(step.answer.calls if step.answer is not None else ()):
        approval = step.approval(ordinal)
        answer = approval.resolved if approval is not None else None
        refused = refuse(CUT[step.stop]) if step.stop in CUT else refusal(tools, call)
        key = call_key_of(lineage, run.run_id, step.step_id, ordinal)
        digest = digest_text(call.arguments) if answer is None else answer.args_digest
        if answer is not None and answer.decision != "approved":
            refused = declined(answer)
        elif refused is None and approval is None and call.name != SUBMIT_TOOL:
            match _ruling(tools[call.name], call, policy):
                case Deny(why=why):
                    refused = refuse(RefusalReason.POLICY_BLOCKED, why)
                case Undecidable(why=why):
                    return Plan(calls=(), undecidable=f"call {ordinal} of {call.name}: {why}")
                case Ask() as ask:
                    asks.append(_request(run, step, ordinal, key, ask))
                case Allow():
                    pass
        calls.append(
            PlannedCall(
                ordinal=ordinal,
                tool_call_id=call.id,
                call_key=key,
                tool=call.name,
                args_digest=digest,
                refused=_as_planned(refused),
            )
        )
    return Plan(calls=tuple(calls), asks=tuple(asks))


def _ruling(spec: ToolSpec, call: ToolCall, policy: Policy) -> Allow | Deny | Ask | Undecidable:
    arguments = parse_arguments(call.arguments)
    return Allow() if isinstance(arguments, Refusal) else policy(spec, arguments)


def declined(answer: ApprovalResolved) -> Refusal:
    """What the model is told of a call that a person, or silence, did not approve."""
    reason = {"denied": RefusalReason.DENIED, "expired": RefusalReason.APPROVAL_EXPIRED}.get(
        answer.decision, RefusalReason.RUN_CLOSED
    )
    return refuse(reason, answer.note or "")


def _request(run: Run, step: Step, ordinal: int, key: str, ask: Ask) -> ApprovalRequested:
    call = need(step.answer, "an approval is for a call of an answer").calls[ordinal]
    return ApprovalRequested(
        run_id=run.run_id,
        step_id=step.step_id,
        ordinal=ordinal,
        tool_call_id=call.id,
        call_key=key,
        args_digest=digest_text(call.arguments),
        rule=ask.rule,
        expires_at_ms=ask.expires_at_ms,
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
