"""What the seed decides: every draw of a world, which faults strike, and the story of what happened when."""

import hashlib
from collections import Counter
from random import Random

FAULTS: dict[str, float] = {
    # the process
    "crash_at_await": 0.3,
    "crash_at_disk_call": 0.35,
    "crash_in_write": 0.5,
    "power_loss": 0.4,
    "left_early": 0.8,
    "clock_jump": 0.1,
    # the disk
    "write_error": 0.02,
    "write_short": 0.02,
    "disk_full": 0.02,
    "sync_error_kept": 0.015,
    "sync_error_dropped": 0.015,
    "sync_error_reverted": 0.015,
    "other_disk_error": 0.01,
    # tools
    "tool_raises": 0.25,
    "tool_fails": 0.25,
    "tool_not_sent": 0.2,
    "tool_lost_before": 0.2,
    "tool_lost_after": 0.25,
    "tool_hangs": 0.2,
    "tool_deaf": 0.15,
    "tool_late": 0.2,
    "tool_huge": 0.5,
    "tool_bad_value": 0.35,
    "tool_base_exception": 0.25,
    "tool_done": 0.4,
    "crash_before_act": 0.12,
    "crash_after_act": 0.12,
    "crash_meanwhile": 0.3,
    "reconcile_fails": 0.5,
    "reconcile_hangs": 0.5,
    # the model
    "model_stalls": 0.1,
    "model_cut": 0.15,
    "model_error": 0.1,
    "model_retry_after": 0.1,
    "model_refuses": 0.05,
    "model_breaks": 0.05,
    "model_truncates": 0.1,
    "model_bad_arguments": 0.1,
    "model_unknown_tool": 0.1,
    "model_repeats_ids": 0.1,
    "model_parallel": 0.4,
    "crash_at_model": 0.07,
    # people and programs beside the process
    "rival_opens": 1.0,
    "rival_reads": 1.0,
    "key_reused": 1.0,
    "hangs_up": 0.15,
    "taken_back": 0.0,  # this and the following are done by people, and counted when they succeed
    "cancel_now": 0.0,
    "cancel_step_boundary": 0.0,
    "stopped": 0.0,
    "answered_held": 0.0,
    "answered_deferred": 0.0,
    "full_log": 0.0,  # where it is about, the ceiling is low; counted where it is met
    "bit_flip": 0.0,  # at rest, in every world
    "model_refuses_key": 0.1,
}
"""Every kind of fault, and how often it strikes at each chance in a world where it is about."""

ABOUT = 0.4
"""In how many worlds a kind of fault is about."""


class Fate:
    """The seed of a world. Draws for one purpose do not move those for another."""

    def __init__(self, seed: int) -> None:
        """Equal seeds decide alike, in any process."""
        self.seed = seed
        self.fired: Counter[str] = Counter()
        self.lines: list[tuple[float, str, str]] = []
        self.quiet = False
        self.now = 0.0
        self._dice: dict[str, Random] = {}
        moods = self.dice("moods")
        self._about = {kind: moods.random() < ABOUT for kind in FAULTS}

    def dice(self, purpose: str) -> Random:
        """The draws for one purpose."""
        found = self._dice.get(purpose)
        if found is None:
            found = self._dice[purpose] = Random(f"{self.seed}/{purpose}")  # noqa: S311  not a secret: it must be known again
        return found

    def strikes(self, kind: str) -> bool:
        """Whether this fault strikes now; never once the world is quiet."""
        if self.quiet or not self._about[kind] or self.dice("faults").random() >= FAULTS[kind]:
            return False
        self.fire(kind)
        return True

    def is_about(self, kind: str) -> bool:
        """Whether this fault may strike in this world."""
        return self._about[kind]

    def fire(self, kind: str) -> None:
        """Count a fault that strikes."""
        self.fired[kind] += 1
        self.tell("fault", kind)

    def tell(self, who: str, what: str) -> None:
        """A line of the story."""
        self.lines.append((self.now, who, what))

    def digest(self) -> str:
        """Names the whole story; equal for equal seeds."""
        return hashlib.sha256(repr(self.lines).encode()).hexdigest()
