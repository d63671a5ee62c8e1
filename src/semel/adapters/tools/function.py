"""A Python function as a tool (design 6 and 11)."""

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypedDict, Unpack, overload

from semel.adapters.tools.declaration import EffectName, declare
from semel.adapters.tools.signature import Signature, to_json
from semel.adapters.tools.threads import in_daemon_thread, in_thread_of_call
from semel.core.outcomes import describe, result_text
from semel.core.rules import Rule, ask_rule
from semel.core.values import JSON, Effect, ToolSpec
from semel.errors import BadAgent, InvariantBroken, ToolFailed
from semel.ports.tool import (
    Call,
    Deferred,
    Done,
    File,
    Happened,
    Held,
    Never,
    ProcessMark,
    Reconciled,
    StillUnknown,
    ToolPort,
    refuse_inner_files,
)

Reconciler = Callable[[Call[Any]], Reconciled | Awaitable[Reconciled]]
Asks = Callable[[Any], bool]
"""Says of the arguments of a call (`signature.Arguments`) whether a person has to approve it."""


class FunctionTool(ToolPort):
    """A function that a model may call; also callable as the function it was, for tests of it.

    An async function runs on the event loop. Any other runs in a daemon thread, so that a deaf one cannot hold the process back:
    it hears of a cancel by `call.cancelled`, and is waited for up to the grace (Q13). A value that JSON cannot carry is an
    error of a call that did run (T19).
    """

    ask_rule: Rule | None = None

    def __init__(self, function: Callable[..., Any], spec: ToolSpec, signature: Signature, reconciler: Reconciler | None) -> None:
        """Use `tool`, which derives all of this from the function."""
        self._function = function
        self._spec = spec
        self._signature = signature
        self._reconciler = reconciler
        self._on_loop = inspect.iscoroutinefunction(function)
        functools.update_wrapper(self, function, updated=())

    @property
    def spec(self) -> ToolSpec:
        """What the model sees and recovery knows."""
        return self._spec

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function itself, past the schema and the log."""
        return self._function(*args, **kwargs)

    async def run(self, arguments: dict[str, JSON], call: Call[Any]) -> JSON | Done | Deferred | Held:
        """Call the function. Returns text, Done of text, Deferred or Held; raises what it raised, SystemExit as RuntimeError."""
        bound = self._signature.bind(arguments, call)
        act = functools.partial(self._function, **bound)
        value = await _call(act, self._spec.name, on_loop=self._on_loop, serves=call)
        if isinstance(value, (Deferred, Held)):
            return value
        return Done(value=_shown(value.value)) if isinstance(value, Done) else _shown(value)

    async def reconcile(self, call: Call[Any]) -> Reconciled:
        """Ask the declared reconciler. Raises TypeError if it answers anything but Happened, Never or StillUnknown."""
        if self._reconciler is None:
            raise InvariantBroken(f"tool {self._spec.name!r} was asked to reconcile and declares nothing for it")
        on_loop = inspect.iscoroutinefunction(self._reconciler)
        answer = await _call(functools.partial(self._reconciler, call), self._spec.name, on_loop=on_loop)
        if isinstance(answer, Happened):
            return Happened(output=_shown(answer.output))
        if isinstance(answer, (Never, StillUnknown)):
            return answer
        raise TypeError(f"reconcile of {self._spec.name!r} returned {type(answer).__name__}, not Happened, Never or StillUnknown")

    async def end_leftovers(self, mark: ProcessMark) -> bool:
        """Nothing: a function dies with its process."""
        return False


class Declared(TypedDict, total=False):
    """What a function's tool declares beside its name, docstring and annotations."""

    name: str | None
    description: str | None
    effect: EffectName
    interruptible: bool
    sequential: bool
    timeout: float | None
    reconcile: Reconciler | None
    ask: bool | str | Asks | None
    ask_expires: float | None


@overload
def tool(function: Callable[..., Any], /) -> FunctionTool: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    effect: EffectName = Effect.ONCE,
    interruptible: bool = True,
    sequential: bool = False,
    timeout: float | None = None,
    reconcile: Reconciler | None = None,
    ask: bool | str | Asks | None = None,
    ask_expires: float | None = None,
) -> Callable[[Callable[..., Any]], FunctionTool]: ...
def tool(
    function: Callable[..., Any] | None = None, /, **declared: Unpack[Declared]
) -> FunctionTool | Callable[[Callable[..., Any]], FunctionTool]:
    """Make a function a tool. Its name, docstring and annotations are what the model sees.

    `effect` says whether a call may run again after a crash: "once" (never), "idempotent" (under the same `call.key`),
    "read" (freely). `interruptible` allows to cancel a running call; `sequential` makes its whole batch run one by one;
    `timeout` is in seconds. `reconcile(call)` asks the outside what became of `call.key` and never acts. `ask` is True, or a
    condition over the arguments: text, or a function of them as this one gets them, such as `lambda a: a.cents > 5000`. A person
    has to approve such a call first; after `ask_expires` seconds silence means no. Raises BadAgent.
    """

    def register(target: Callable[..., Any]) -> FunctionTool:
        title = str(declared.get("name") or getattr(target, "__name__", type(target).__name__))
        if inspect.isgeneratorfunction(target) or inspect.isasyncgenfunction(target):
            raise BadAgent(f"tool {title!r}: a generator has no single result; return a value, and report with call.progress.")
        signature = Signature(target, title)
        description = declared.get("description")
        reconciler = declared.get("reconcile")
        spec = declare(
            title,
            description=inspect.getdoc(target) or "" if description is None else description,
            parameters=signature.schema,
            effect=declared.get("effect", Effect.ONCE),
            interruptible=declared.get("interruptible", True),
            sequential=declared.get("sequential", False),
            timeout=declared.get("timeout"),
            reconciles=reconciler is not None,
        )
        made = FunctionTool(target, spec, signature, reconciler)
        asks = declared.get("ask")
        made.ask_rule = ask_rule(title, ask=signature.asks(asks) if callable(asks) else asks, expires=declared.get("ask_expires"))
        return made

    _refuse_unknown(declared)
    return register if function is None else register(function)


def _refuse_unknown(declared: Mapping[str, object]) -> None:
    unknown = sorted(declared.keys() - Declared.__annotations__.keys())
    if unknown:
        raise TypeError(f"tool() takes no {unknown[0]!r}; it takes {', '.join(Declared.__annotations__)}")


async def _call(function: Callable[[], Any], name: str, *, on_loop: bool, serves: Call[Any] | None = None) -> Any:
    """Call it where it belongs: an async function on the loop, any other in a thread.

    What acts `serves` a call, whose cancel it is given time to hear. SystemExit becomes RuntimeError: from within a task it would
    end the event loop (B07).
    """
    try:
        if on_loop:
            return await function()
        if serves is None:
            value = await in_daemon_thread(function, name=f"tool {name}")
        else:
            value = await in_thread_of_call(function, name=f"tool {name}", call=serves.key)
            if serves.cancelled is not None and serves.cancelled.is_set():
                _refuse_to_await(value)
        return await value if inspect.isawaitable(value) else value
    except SystemExit as error:
        raise RuntimeError(f"the tool called sys.exit({error.code!r})") from error


def _refuse_to_await(value: Any) -> None:
    """What a plain function returns to be awaited is not begun behind the cancel of its call. Raises CancelledError then."""
    if inspect.isawaitable(value):
        drop = getattr(value, "close", None) or getattr(value, "cancel", None)  # a coroutine's, or a future's
        if drop is not None:
            drop()
        raise asyncio.CancelledError


def _shown(value: Any) -> JSON:
    """The text for the model, or a file, or a list of both as they are. Raises ToolFailed if there is none."""
    if isinstance(value, File):
        return value
    if isinstance(value, list | tuple) and any(isinstance(item, File) for item in value):
        return [item if isinstance(item, File) else _text(item) for item in value]
    return _text(value)


def _text(value: Any) -> str:
    if type(value) is str:
        return result_text(value)
    if isinstance(value, bytes):
        return result_text(value.decode("utf-8", "replace"))
    refuse_inner_files(value)
    try:
        found = to_json(value)
    except Exception as error:  # a value's own encoder is foreign code; the call itself did run
        raise ToolFailed(f"the tool ran, but its result cannot be shown: {describe(error)}") from error
    return result_text(found)
