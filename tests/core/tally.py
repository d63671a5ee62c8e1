"""What the histories of a proof came through, counted from their logs, and how much of each a proof must have at least."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from semel.core.records import (
    ApprovalRequested,
    ApprovalResolved,
    FollowUpQueued,
    HistorySupplied,
    IndeterminateResolved,
    LateResult,
    ModelRetry,
    OpaqueStateVoided,
    Queued,
    Record,
    ResumeStarted,
    Retracted,
    RunCancelRequested,
    RunFinished,
    RunPaused,
    RunStarted,
    RunStopRequested,
    SendDelivered,
    Steered,
    StepStarted,
    ToolCallDeferred,
    ToolCallProviderHeld,
    ToolCallReturned,
    ToolNoDispatch,
    ToolRerun,
    ToolResult,
)
from semel.core.state import CacheProof
from tests.core.driver import Driver

WORDS: dict[type, Callable[[Any], list[str]]] = {
    ApprovalRequested: lambda r: ["approval asked for"],
    ApprovalResolved: lambda r: [f"approval {r.decision}{', other arguments' if r.args else ''}"],
    FollowUpQueued: lambda r: ["follow-up"],
    HistorySupplied: lambda r: ["history supplied"],
    IndeterminateResolved: lambda r: [f"verdict {r.verdict}"],
    LateResult: lambda r: [f"late result of a {'held' if r.handle is None else 'deferred'} call"],
    ModelRetry: lambda r: ["wait before a redelivery"],
    OpaqueStateVoided: lambda r: [f"provider state voided, {r.reason}"],
    Queued: lambda r: [f"queued{', interrupting' if r.delivery == 'interrupt' else ''}"],
    ResumeStarted: lambda r: ["resume, calls in doubt" if r.indeterminate else "resume"],
    Retracted: lambda r: ["taken back"],
    RunCancelRequested: lambda r: [f"cancel {r.at}"],
    RunFinished: lambda r: [f"run ends {r.error.code if r.error else r.reason}"],
    RunStopRequested: lambda r: ["stop"],
    RunPaused: lambda r: [f"pause {r.reason}"],
    RunStarted: lambda r: ["run goes on from a verdict"] if r.continues else [],
    SendDelivered: lambda r: [f"handed over as {r.delivery}"],
    Steered: lambda r: ["steer"],
    StepStarted: lambda r: [*(["step again"] if r.attempt > 1 else []), *(["step takes up messages"] if r.drained else [])],
    ToolCallDeferred: lambda r: ["call deferred"],
    ToolCallProviderHeld: lambda r: ["call held"],
    ToolCallReturned: lambda r: ["early return"],
    ToolNoDispatch: lambda r: [f"call refused, {r.reason}"],
    ToolRerun: lambda r: ["call run again"],
    ToolResult: lambda r: [f"call {r.outcome}, {r.reason}"] if r.outcome != "completed" else [],
}
"""What a record is counted as."""

LEAST: dict[str, int] = {
    "approval approved": 170,
    "approval approved, other arguments": 160,
    "approval asked for": 500,
    "approval cancelled": 20,
    "approval denied": 160,
    "approval expired": 50,
    "call deferred": 350,
    "call held": 400,
    "call interrupted, crashed": 160,
    "call interrupted, never_sent": 30,
    "call interrupted, provider_held_cancelled": 10,
    "call interrupted, provider_held_interrupted": 40,
    "call max_steps, provider_held_stopped": 5,
    "call reconciled": 190,
    "call refused, never_dispatched": 5,
    "call refused, run_closed": 20,
    "call refused, schema_invalid": 5,
    "call refused, truncated_output": 250,
    "call refused, unknown_tool": 550,
    "call run again": 130,
    "call sent a second time": 110,
    "call unknown, crashed": 500,
    "call unknown, timeout": 300,
    "cancel now": 250,
    "cancel step_boundary": 130,
    "death in a write": 500,
    "early return": 700,
    "follow-up": 250,
    "handed over as follow_up": 10,
    "handed over as steer": 10,
    "history supplied": 170,
    "late result of a deferred call": 250,
    "late result of a held call": 40,
    "pause auth_required": 60,
    "pause restart": 50,
    "pause tool_held": 350,
    "prefix broken by instructions": 100,
    "prefix broken by model": 300,
    "prefix broken by provider_state": 70,
    "prefix identical": 1000,
    "provider state voided, prefix_changed": 30,
    "provider state voided, rejected": 70,
    "queued": 300,
    "queued, interrupting": 150,
    "resume": 850,
    "resume, calls in doubt": 600,
    "run ends cancelled": 350,
    "run ends completed": 800,
    "run ends interrupted": 600,
    "run ends max_steps": 20,
    "run ends output_invalid": 70,
    "run ends refusal": 130,
    "run ends repeated_calls": 1,
    "run ends step_attempts": 1,
    "run ends stopped": 20,
    "run ends timeout": 30,
    "run goes on from a verdict": 120,
    "steer": 350,
    "step again": 500,
    "step takes up messages": 600,
    "stop": 150,
    "taken back": 30,
    "torn write": 200,
    "verdict abandoned": 70,
    "verdict did_not_happen": 60,
    "verdict happened": 600,
    "wait before a redelivery": 30,
}
"""In how many of 2,000 histories each must be, at least."""


def words_of(record: Record) -> list[str]:
    words = WORDS.get(type(record))
    return [] if words is None else words(record)


def words_of_proof(proof: CacheProof) -> str:
    return f"prefix broken by {' and '.join(proof.broken)}" if proof.broken else "prefix identical"


@dataclass
class Tally:
    """Histories, records and moves; and in how many histories each thing was."""

    histories: int = 0
    records: int = 0
    moves: Counter[str] = field(default_factory=Counter)
    found: Counter[str] = field(default_factory=Counter)

    def take(self, driver: Driver, moves: Counter[str]) -> None:
        self.histories += 1
        self.records += driver.state.head
        self.moves.update(moves)
        words = {word for write in driver.writes for record in write.records for word in words_of(record)}
        words |= {"call reconciled"} if driver.reconciled else set()
        words |= {"call sent a second time"} if driver.redispatched else set()
        words |= {"death in a write"} if moves["died_in_a_write"] else set()
        words |= {"torn write"} if any(not write.whole for write in driver.writes) else set()
        words |= {words_of_proof(proof) for ended in driver.state.ended.values() for proof in ended.cache}
        self.found.update(words)

    def lacking(self, names: set[str]) -> list[str]:
        """What there is too little of, in proportion to the histories; `names` are the moves."""
        parts = self.histories / 2000
        return [
            *(f"{name}: {self.found[name]}" for name, least in LEAST.items() if self.found[name] < least * parts),
            *(f"move {name}: {self.moves[name]}" for name in sorted(names) if self.moves[name] < 50 * parts),
        ]

    def __str__(self) -> str:
        """The figures, one a line."""
        lines = [f"{self.histories} histories, {self.records} records, {self.moves.total()} moves"]
        lines += [f"  {name}: in {self.found[name]} histories" for name in sorted(self.found)]
        return "\n".join([*lines, "moves: " + ", ".join(f"{name} {times}" for name, times in sorted(self.moves.items()))])
