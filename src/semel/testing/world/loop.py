"""An event loop whose time is virtual and whose order comes from the seed: one thread, no file, no socket, no waiting.

Where nothing is ready, time jumps to the next timer. With `order`, whatever is ready runs in an order that the seed chooses,
which is more than asyncio promises to its users; without it, first come, first served, as asyncio does. Work for a thread is
done in between, at a moment and for a time that the seed chooses.
"""

import asyncio
import heapq
import sys
import threading
import warnings
from asyncio.events import _set_running_loop
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextlib import suppress
from contextvars import Context
from typing import Any, TypeVar, TypeVarTuple, Unpack

from semel.testing.faults import Crashed
from semel.testing.world.fate import Fate

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
_CLOSES_MAX = 20  # of a coroutine that goes on awaiting while it is being dropped


class Deadlock(Exception):
    """Nothing is ready and no timer is set: what waits now waits for ever."""


class Ready(asyncio.Handle):
    """A callback that may run now."""

    def go(self) -> None:
        """Run it."""
        self._context.run(self._callback, *self._args)  # type: ignore[attr-defined]  # a handle's own fields


class Due(asyncio.TimerHandle):
    """A callback that may run at a virtual time."""

    def go(self) -> None:
        """Run it."""
        self._context.run(self._callback, *self._args)  # type: ignore[attr-defined]  # a handle's own fields


class SimLoop(asyncio.AbstractEventLoop):
    """One life of a process. `dead` is asked behind every callback; once it says so, nothing of the life runs any more."""

    def __init__(self, fate: Fate, *, reorder: bool, dead: Callable[[], bool]) -> None:
        """The time is the world's, which goes on from life to life."""
        self.steps = 0
        self.complaints: list[str] = []
        self._fate, self._dice, self._reorder, self._dead = fate, fate.dice("order"), reorder, dead
        self._now_due: list[Ready | Due] = []
        self._later: list[tuple[float, int, Due]] = []
        self._timer_count = 0
        self._tasks: list[asyncio.Task[Any]] = []
        self._thread = threading.get_ident()
        self._stopped = False

    def run(self, main: Coroutine[Any, Any, T]) -> T | None:
        """Run `main` to its end; None where the process died first. Raises Deadlock, and what `main` raises."""
        outer = asyncio._get_running_loop()  # noqa: SLF001  the functions that asyncio has for those who write loops
        hooks = sys.get_asyncgen_hooks()
        _set_running_loop(self)
        sys.set_asyncgen_hooks(finalizer=self._finish_generator)
        try:
            task = self.create_task(main)
            while not (task.done() or self._dead()):
                self._turn()
            if not task.done() or self._dead():
                return None
            return task.result()
        finally:
            self._stopped = True
            self._drop()
            sys.set_asyncgen_hooks(*hooks)
            _set_running_loop(outer)

    def unfinished(self) -> list[str]:
        """The names of the coroutines that are not at their end."""
        return [getattr(task.get_coro(), "__qualname__", "?") for task in self._tasks if not task.done()]

    def _turn(self) -> None:
        if not self._now_due:
            self._jump()
        ready = self._now_due
        at = self._dice.randrange(len(ready)) if self._reorder and len(ready) > 1 else 0
        handle = ready.pop(at)
        if not handle.cancelled():
            self.steps += 1
            with suppress(Crashed):  # the process has died, and `dead` says so
                handle.go()

    def _jump(self) -> None:
        """Go to the next moment for which a timer is set."""
        while self._later and self._later[0][2].cancelled():
            heapq.heappop(self._later)
        if not self._later:
            waiting = ", ".join(self.unfinished())
            raise Deadlock(f"nothing is ready and no timer is set; these wait: {waiting}. Does one of them wait for a thread?")
        now = self._fate.now = max(self._fate.now, self._later[0][0])
        while self._later and self._later[0][0] <= now:
            self._now_due.append(heapq.heappop(self._later)[2])

    def _drop(self) -> None:
        """Let go of everything that is not at its end, as the death of a process does: what they would still do has no effect.

        Also of what only a task of it held, as in the frames of its error: a coroutine that nobody will wait for any more.
        """
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # of coroutines that nobody had begun yet
            _close(self._tasks)
            self._tasks.clear()
            self._now_due.clear()
            self._later.clear()

    def _finish_generator(self, generator: AsyncGenerator[Any, Any]) -> None:
        if not self._stopped:
            self.create_task(generator.aclose())

    def time(self) -> float:
        """The virtual time in seconds."""
        return self._fate.now

    def call_soon(self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None) -> asyncio.Handle:
        """Run it as soon as it is its turn."""
        handle = Ready(callback, args, self, context)
        self._now_due.append(handle)
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """As `call_soon`; there is one thread. Raises RuntimeError in another one."""
        if threading.get_ident() != self._thread:
            raise RuntimeError("there are no threads in the simulated world; a tool in it is an async function")
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self, delay: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Run it after so many virtual seconds."""
        return self.call_at(self._fate.now + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Run it at a virtual time."""
        handle = Due(when, callback, args, self, context)
        self._timer_count += 1
        heapq.heappush(self._later, (when, self._timer_count, handle))
        return handle

    def create_future(self) -> "asyncio.Future[Any]":
        """A future of this loop."""
        return asyncio.Future(loop=self)

    def create_task(
        self, coro: Generator[Any, None, T] | Coroutine[Any, Any, T], *, name: object = None, context: Context | None = None
    ) -> "asyncio.Task[T]":
        """A task of this loop."""
        label = None if name is None else str(name)
        task: asyncio.Task[T] = asyncio.Task(coro, loop=self, name=label, context=context)
        self._tasks.append(task)
        return task

    def run_in_executor(  # type: ignore[override]  # returns a future, as every loop's does
        self, executor: object, func: Callable[..., T], *args: Any
    ) -> "asyncio.Future[T]":
        """Do what a thread would do, at some moment; its end is known at some later one."""
        future = self.create_future()

        def deliver(result: object, error: BaseException | None) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

        def work() -> None:
            try:
                result, error = func(*args), None
            except BaseException as raised:  # noqa: BLE001  handed to whoever waits, whatever it is
                result, error = None, raised
            self.call_later(self._lag(), deliver, result, error)

        self.call_later(self._lag(), work)
        return future

    def _lag(self) -> float:
        return self._dice.uniform(0.0001, 0.004)

    def get_debug(self) -> bool:
        """Never."""
        return False

    def is_running(self) -> bool:
        """Whether it is within `run`."""
        return not self._stopped

    def is_closed(self) -> bool:
        """Whether its life is over."""
        return self._stopped

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """What asyncio complains of, kept for the story; a dead process complains of nothing."""
        if not self._stopped:
            self.complaints.append(f"{context.get('message')}: {context.get('exception')!r}")

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """It is dropped when its time comes."""


def _close(tasks: "list[asyncio.Task[Any]]") -> None:
    """Close those that are not at their end, and those that are made while others are being closed."""
    for task in tasks:
        if task.done():
            continue
        task._log_destroy_pending = False  # type: ignore[attr-defined]  # noqa: SLF001  nobody forgot it: its process is gone
        coroutine = task.get_coro()
        for _ in range(_CLOSES_MAX):
            with suppress(BaseException):
                if isinstance(coroutine, Coroutine):
                    coroutine.close()
                break
