"""An interruption at any moment: one line, the exit code of its signal, and nothing left behind.

A signal raises `Interrupted` in the main thread, so that Trainers, data loaders and outputs come down in order. It is
no KeyboardInterrupt, because Lightning turns one into exit code 1. Code that swallows it is not trusted: what has not
ended some seconds later is ended here, after the temporary outputs have been removed.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress

# Seconds from a signal until a process that is still there is ended; further signals wait for that too.
GRACE = 10.0
_WORDS = {"SIGINT": "interrupted", "SIGTERM": "terminated", "SIGHUP": "its terminal was closed"}


class Interrupted(BaseException):
    """A signal asked the process to end.

    Attributes:
        number: of the signal.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Watch:
    """Handles the signals that ask a process to end, while a command runs.

    Signals that the process was started to ignore (``nohup``) stay ignored, and child processes that are forked get
    back the handlers from before. Outside the main thread nothing is handled, as Python allows it nowhere else.

    Attributes:
        received: the number of the first signal that came, or None.
    """

    current: Watch | None = None

    def __init__(self, name: str) -> None:
        """Name what is run, for the line.

        Args:
            name: such as ``fusionlab merge``.
        """
        self.name = name
        self.received: int | None = None
        self._at_once = True
        self._ended: int | None = None
        self._clean: list[Callable[[], object]] = []
        self._previous: dict[int, object] = {}
        self._timer: threading.Timer | None = None
        self._hook = sys.unraisablehook

    def start(self) -> None:
        """Take the signals; until `begin` one ends the process at once, as there is nothing to clean up."""
        if threading.current_thread() is not threading.main_thread():
            return
        Watch.current = self
        # Python ends by giving every signal that has a handler back to the system, which would end it with another
        # code. What is registered first is called last.
        atexit.register(self._ignore)
        for name in _WORDS:
            number = getattr(signal, name, None)
            if number is None or signal.getsignal(number) in (signal.SIG_IGN, None):
                continue
            self._previous[number] = signal.getsignal(number)
            signal.signal(number, self._handle)
        sys.unraisablehook = self._unraisable

    def begin(self, clean: Callable[[], object]) -> None:
        """Say that work begins, which a signal interrupts from now on.

        Args:
            clean: removes the temporary outputs where nobody else has.
        """
        self._clean = [clean]
        self._at_once = False

    def finish(self, code: int) -> None:
        """Say that the work is over: a signal ends the process at once, with the code that it ends with anyway.

        Args:
            code: of the work.
        """
        self._ended = code

    def stop(self) -> None:
        """Give the signals back; nothing ends the process any more."""
        if self._timer is not None:
            self._timer.cancel()
        if Watch.current is self:
            Watch.current = None
        atexit.unregister(self._ignore)
        sys.unraisablehook = self._hook
        for number, handler in self._previous.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        self._previous = {}

    def tell(self) -> None:
        """Print the line about the signal that came."""
        with suppress(OSError, ValueError):  # the terminal may be gone; the exit code says it too
            print(self.line, file=sys.stderr, flush=True)

    @property
    def line(self) -> str:
        """The line that is printed about the signal that came."""
        words = "interrupted" if self.received is None else _WORDS[signal.Signals(self.received).name]
        return f"{self.name}: {words}; nothing was written half"

    @property
    def code(self) -> int:
        """The exit code of the signal that came: 128 and its number, as shells have it."""
        return 128 + (signal.SIGINT if self.received is None else self.received)

    def _handle(self, number: int, _: object) -> None:
        if self.received is not None:
            return  # cleaning up is not to be interrupted; `_leave` ends what does not end
        if self._ended is not None:
            os._exit(self._ended)
        self.received = number
        if self._at_once:
            self._leave()
        self._timer = threading.Timer(GRACE, self._leave)
        self._timer.daemon = True
        self._timer.start()
        raise Interrupted(number)

    def _ignore(self) -> None:
        for number in self._previous:
            signal.signal(number, signal.SIG_IGN)

    def _leave(self) -> None:
        """End the process here and now, whatever it is doing."""
        try:
            for clean in self._clean:
                clean()
            if sys.stdout is not None and sys.stdout.isatty():
                os.write(1, b"\x1b[?25h")  # a progress bar hides the cursor
            os.write(2, f"{self.line}\n".encode(errors="replace"))
        finally:
            os._exit(self.code)

    def _unraisable(self, raised: sys.UnraisableHookArgs) -> None:
        # Raised where Python cannot pass it on, as in a destructor: no traceback; `check` or `_leave` ends the process.
        if not isinstance(raised.exc_value, Interrupted):
            self._hook(raised)


def check() -> None:
    """Raise `Interrupted` again where a signal came whose exception was swallowed on its way.

    Raises:
        Interrupted: a signal has come.
    """
    if Watch.current is not None and Watch.current.received is not None:
        raise Interrupted(Watch.current.received)


def _in_child() -> None:
    if Watch.current is not None:
        Watch.current.stop()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
