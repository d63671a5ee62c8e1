"""The plan: each call of an answer is dispatchable, or refused and why, or waits for a person (B2, T1, design 6). Pure.

The order is fixed: not truncated, tool known, size, arguments parse strictly, schema valid, hooks, policy, approval. Every
refusal has its own name and a bounded message that tells the model what to change. An approval that is in the log stands,
whatever the policy says by now: planning again after a crash asks nobody twice. Arguments that the person changed are ruled on
as well.
"""

from collections.abc import Mapping, Sequence

from semel.core.arguments import check_arguments, parse_arguments
from semel.core.calls import Approval, Step
from semel.core.defaults import TooEntangled, with_defaults
from semel.core.hook_notes import DENIED, refusing
from semel.core.keys import call_key_of
from semel.core.outcomes import Refusal, RefusalReason, refuse
from semel.core.persistent import Names
from semel.core.policy import Allow, Ask, Deny, Policy, Ruling, Undecidable, Unfit
from semel.core.records import ApprovalRequested, ApprovalResolved, PlannedCall, Refused
from semel.core.state import Run
from semel.core.texts import SUBMIT_DESCRIPTION, SUBMIT_TOOL
from semel.core.turn import DECLINED
from semel.core.values import JSON, Block, Effect, Frozen, Stop, ToolCall, ToolSpec, digest_text

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
    for ordinal, call in enumerate(step.proposals if step.answer is not None else ()):
        key = call_key_of(lineage, run.run_id, step.step_id, ordinal)
        approval = step.approval(ordinal)
        found = _judged(tools, step, ordinal, call=call, approval=approval, policy=policy)
        if isinstance(found, Undecidable):
            return Plan(calls=(), undecidable=f"call {ordinal} of {call.name}: {found.why}")
        if isinstance(found, Ask):
            asks.append(_request(run, step, call, ordinal=ordinal, key=key, ask=found))
        refused = found if isinstance(found, Refusal) else None
        calls.append(planned_call(call, ordinal, key, approval, refused))
    return Plan(calls=tuple(calls), asks=tuple(asks))


def planned_call(call: ToolCall, ordinal: int, key: str, approval: Approval | None, refused: Refusal | None) -> PlannedCall:
    """A call as its batch records it, with the digest of the arguments that it is to leave with."""
    answer = approval.resolved if approval is not None else None
    return PlannedCall(
        ordinal=ordinal,
        tool_call_id=call.id,
        call_key=key,
        tool=call.name,
        args_digest=digest_text(call.arguments) if answer is None else answer.args_digest,
        refused=None if refused is None else Refused(reason=str(refused.reason), message=refused.message),
    )


def _judged(
    tools: Mapping[str, ToolSpec], step: Step, ordinal: int, *, call: ToolCall, approval: Approval | None, policy: Policy
) -> Refusal | Ask | Undecidable | None:
    """Why a call is not sent, or what has to be asked first; None if it may leave."""
    answer = approval.resolved if approval is not None else None
    if answer is not None and answer.decision != "approved":
        return declined(answer)
    if step.stop in CUT:
        return refuse(CUT[step.stop])
    read = _read(tools, call)
    refused = read if isinstance(read, Refusal) else _by_hook(step, ordinal)
    if refused is not None or call.name == SUBMIT_TOOL:
        return refused
    if approval is not None and (answer is None or answer.args is None):
        return None  # it was asked about as it is, and an approval stands
    if answer is not None and answer.args is not None:
        read = parse_arguments(answer.args)
    ruling = ruling_on(tools[call.name], read, policy)
    match ruling:
        case Deny(why=why):
            return refuse(RefusalReason.POLICY_BLOCKED, why)
        case Unfit(why=why):
            return refuse(RefusalReason.SCHEMA_INVALID, why)
        case Undecidable():
            return ruling
        case Ask():
            return ruling if answer is None else None  # the person who changed the arguments has been asked
        case Allow():
            return None


def _by_hook(step: Step, ordinal: int) -> Refusal | None:
    """The no of a pre-tool hook, or of one that failed; any no wins (FACT20)."""
    note = refusing(step.hooks, ordinal)
    if note is None:
        return None
    reason = RefusalReason.HOOK_DENIED if note.verdict == DENIED else RefusalReason.PRE_TOOL_UNAVAILABLE
    return refuse(reason, note.message or "")


def ruling_on(spec: ToolSpec, arguments: dict[str, JSON] | Refusal, policy: Policy) -> Ruling:
    """What the policy says of a call with these arguments and the defaults of what was left out (a model cannot pass a rule so).

    Arguments that cannot be read are refused elsewhere.
    """
    if isinstance(arguments, Refusal):
        return Allow()
    try:
        filled = with_defaults(spec.parameters, arguments)
    except TooEntangled:
        return Undecidable(why=f"the schema of tool {spec.name!r} is too entangled to tell its defaults")
    return policy(spec, filled)


def declined(answer: ApprovalResolved) -> Refusal:
    """What the model is told of a call that a person, or silence, did not approve."""
    reason = {"denied": RefusalReason.DENIED, "expired": RefusalReason.APPROVAL_EXPIRED}.get(
        answer.decision, RefusalReason.RUN_CLOSED
    )
    return refuse(reason, answer.note or "")


def _request(run: Run, step: Step, call: ToolCall, *, ordinal: int, key: str, ask: Ask) -> ApprovalRequested:
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


def refusal(tools: Mapping[str, ToolSpec], call: ToolCall) -> Refusal | None:
    """Why this call is not dispatched; None if it is."""
    read = _read(tools, call)
    return read if isinstance(read, Refusal) else None


def _read(tools: Mapping[str, ToolSpec], call: ToolCall) -> dict[str, JSON] | Refusal:
    """The arguments of a call, as its tool takes them; else why it does not."""
    spec = tools.get(call.name)
    if spec is None:
        names = ", ".join(sorted(tools)[:NAMES_TOLD_MOST]) or "none"
        return refuse(RefusalReason.UNKNOWN_TOOL, f"Offered: {names}.")
    if len(call.arguments) > ARGUMENT_CHARS_MOST:
        return refuse(RefusalReason.OVERSIZED, f"They are {len(call.arguments)} characters; {ARGUMENT_CHARS_MOST} is the limit.")
    parsed = parse_arguments(call.arguments)
    return parsed if isinstance(parsed, Refusal) else check_arguments(spec.parameters, parsed) or parsed


def identified(blocks: Sequence[Block], taken: Names, step_number: int) -> tuple[Block, ...]:
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
        out.append(block if name == block.id else ToolCall(id=name, name=block.name, arguments=block.arguments))
        ordinal += 1
    return tuple(out)
