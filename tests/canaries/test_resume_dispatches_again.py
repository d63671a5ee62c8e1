"""Canary: a resume that sends a lost once call again. The recovery check must catch it."""

from contextlib import suppress

import pytest
from msgspec.structs import replace

from semel.core.effects import Decision
from semel.core.recover import recover
from semel.errors import CorruptLog, InvariantBroken
from tests.core.machine import Crashed, Machine, World, whole_run
from tests.core.test_recovery import SCRIPTS, check


class Forgetful(Machine):
    """Forgets, on resume, which calls were sent: every open intent looks like one that never left."""

    def resume(self) -> None:
        run = self.state.run
        step = run.step if run else None
        batch = step.batch if step else None
        if run and step and batch:
            calls = tuple(call if call.settled else replace(call, intent=False) for call in batch.calls)
            self.state = replace(self.state, run=replace(run, step=replace(step, batch=replace(batch, calls=calls))))
        if run is not None:
            self.run(recover(self.state))

    def commit(self, decision: Decision) -> None:
        with suppress(CorruptLog):  # the fold refuses a second intent; this machine does not listen to it either
            super().commit(decision)


def test_canary_a_resume_that_dispatches_again_is_caught_by_the_recovery_check() -> None:
    script = SCRIPTS["once"]
    world = World()
    with pytest.raises(Crashed):
        Machine(world, script, crash_at=2, kept=0).start()
    with suppress(CorruptLog, InvariantBroken):
        Forgetful(world, script, fence=2).resume()
    with pytest.raises(AssertionError, match="was dispatched 2 times"):
        check(script, whole_run(script), world)
