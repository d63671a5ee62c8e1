"""The world's own cast of tools: one of each kind that the runtime treats differently."""

from collections.abc import Sequence

from semel.adapters.tools.declaration import declare
from semel.core.values import Effect, ToolSpec
from semel.ports.tool import ToolPort
from semel.ports.world import Clock
from semel.testing.world.fate import Fate
from semel.testing.world.tools import Children, ChildTool, Deed, Promise
from semel.testing.world.witness import Witness

_SCHEMA = '{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"],"additionalProperties":false}'


def _spec(
    name: str,
    effect: Effect = Effect.ONCE,
    *,
    interruptible: bool = True,
    sequential: bool = False,
    timeout: float | None = None,
    reconciles: bool = False,
) -> ToolSpec:
    return declare(
        name,
        description=f"The tool {name}.",
        parameters=_SCHEMA,
        effect=effect,
        interruptible=interruptible,
        sequential=sequential,
        timeout=timeout,
        reconciles=reconciles,
    )


DEEDS = (
    _spec("look", Effect.READ, timeout=30),
    _spec("find", Effect.READ),
    _spec("store", Effect.IDEMPOTENT, timeout=60),
    _spec("pay"),
    _spec("mail", timeout=20, reconciles=True),
    _spec("ship", interruptible=False),
    _spec("step", sequential=True, reconciles=True),
)
LOOKS_ONLY = frozenset({"mail"})
"""Those whose receiver can say that nothing has come, and cannot keep it from coming."""
CHILDREN = (
    _spec("deploy", timeout=30, reconciles=True),
    _spec("build", Effect.IDEMPOTENT),
)
PROMISES = (_spec("delegate"), _spec("order"))


def cast_tools(fate: Fate, witness: Witness, children: Children, clock: Clock) -> Sequence[ToolPort]:
    """A tool of each kind; their actions are the witness's to see."""
    dice = fate.dice("deeds")
    deeds = [Deed(spec, dice, witness, closes=spec.name not in LOOKS_ONLY) for spec in DEEDS]
    held, deferred = PROMISES
    promises = [Promise(held, dice, witness, clock), Promise(deferred, dice, witness, None)]
    return [*deeds, *promises, *(ChildTool(spec, dice, witness, children) for spec in CHILDREN)]
