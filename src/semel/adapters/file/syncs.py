"""The syncs of many sessions at once: a few threads do what waits, and the event loop is woken once for all that have ended.

Where one session writes alone, its sync is fastest on the loop itself (design 13). Where several do, a sync on the loop would
make all others wait for it: they go to threads, so that the disk works on several while the loop goes on.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue

THREADS_MOST = 16  # a disk that takes long for a sync takes many of them at once
IDLE_SECONDS = 5.0  # behind which a thread without work ends, also where a writer was never closed


class _Job:
    """Work, and the future that whoever waits for it waits on now."""

    __slots__ = ("ended", "error", "waiter", "work")

    def __init__(self, work: Callable[[], None], waiter: "asyncio.Future[None]") -> None:
        """Not done yet; `ended` is what the loop knows of it, `error` what the work raised."""
        self.work, self.waiter, self.ended = work, waiter, False
        self.error: BaseException | None = None


class Syncs:
    """The syncs of all writers of a store on one event loop. Threads live while there is work for them."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """No thread is started yet."""
        self.loop = loop
        self._writers: set[object] = set()
        self._newest: object = None
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._ended: deque[_Job] = deque()
        self._telling = False
        self._under_way = 0
        self._threads = 0
        self._counting = threading.Lock()  # how many threads there are, together with what waits for them

    def enter(self, writer: object) -> None:
        """A writer that may ask for syncs until it leaves."""
        self._writers.add(writer)

    def leave(self, writer: object) -> None:
        """It asks for nothing more; behind the last one the threads end."""
        self._writers.discard(writer)
        if not self._writers:
            with self._counting:
                for _ in range(self._threads):
                    self._jobs.put(None)
                self._threads = 0

    def alone(self, writer: object) -> bool:
        """Whether nobody else has asked for a sync since this writer last did."""
        newest, self._newest = self._newest, writer
        return (newest is writer or len(self._writers) == 1) and not self._under_way

    async def do(self, work: Callable[[], None]) -> None:
        """Do it in a thread. If the caller is cancelled it is still waited for, and the cancellation goes on behind it."""
        job = _Job(work, self.loop.create_future())
        self._under_way += 1
        with self._counting:
            if self._threads < min(self._under_way, THREADS_MOST):
                self._threads += 1
                threading.Thread(target=self._serve, name="semel syncs", daemon=True).start()
            self._jobs.put(job)
        cancellation: asyncio.CancelledError | None = None
        while not job.ended:
            try:
                await job.waiter
            except asyncio.CancelledError as error:
                cancellation = error
                job.waiter = self.loop.create_future()  # the cancellation has cancelled the one before
        if cancellation is not None:
            raise cancellation
        if job.error is not None:
            raise job.error

    def _serve(self) -> None:
        while (job := self._next()) is not None:
            try:
                job.work()
            except BaseException as error:  # noqa: BLE001  it belongs to whoever waits for the work
                job.error = error
            self._ended.append(job)
            if not self._telling:  # else the loop is told already, and will find this one, too
                self._telling = True
                with suppress(RuntimeError):  # the loop is closed, and with it whoever waited
                    self.loop.call_soon_threadsafe(self._tell)

    def _next(self) -> _Job | None:
        """What to do next; None to end, with the last writer or because there is nothing to do.

        A `get` that is kept off the processor beyond its deadline waits on without one; it is still woken by the next job.
        """
        while True:
            try:
                return self._jobs.get(timeout=IDLE_SECONDS)
            except Empty:
                with self._counting:
                    if self._jobs.empty():
                        self._threads -= 1
                        return None

    def _tell(self) -> None:
        """On the loop: wake whoever waits for what has ended by now."""
        self._telling = False
        while self._ended:
            job = self._ended.popleft()
            self._under_way -= 1
            job.ended = True
            if not job.waiter.done():
                job.waiter.set_result(None)
