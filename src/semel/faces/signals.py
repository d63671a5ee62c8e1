"""SIGINT and SIGTERM: the first asks to stop in good order, the second leaves at once, as a crash would."""

import asyncio
import os
import signal
from collections.abc import Callable

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stop:
    """Whether this process was asked to stop, and by which signal. Made within the event loop that is to hear of it."""

    def __init__(self, *, told: Callable[[int], None] | None = None, leaves: Callable[[int], None] | None = None) -> None:
        """`told` is called at the first signal, `leaves` right before the second one ends the process."""
        self.asked: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.number: int | None = None
        self._told, self._leaves = told, leaves

    def listen(self) -> None:
        """From now on; only the main thread may."""
        for number in SIGNALS:
            asyncio.get_running_loop().add_signal_handler(number, self._signalled, number)

    def forget(self) -> None:
        """Give the signals back."""
        for number in SIGNALS:
            asyncio.get_running_loop().remove_signal_handler(number)

    def _signalled(self, number: int) -> None:
        if self.number is not None:
            if self._leaves is not None:
                self._leaves(number)
            os._exit(128 + number)
        self.number = number
        self.asked.set_result(None)
        if self._told is not None:
            self._told(number)
