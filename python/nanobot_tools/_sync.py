"""Coroutines for callers without an event loop: one background thread with one loop serves the process.

The thread starts with the first call and ends with the process, which waits for it: whatever still runs on
its loop then is cancelled. After a fork the child has none, and starts its own. Calls from a thread whose
loop is running are refused, since waiting would block that loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import os
import sys
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from . import _dispatch
from .errors import LoopRunningError, ToolCancelledError

__all__ = ["run"]

_log = logging.getLogger("nanobot_tools.sync")

_T = TypeVar("_T")

#: Seconds that a call gets to stop when its caller was interrupted.
GRACE = 5.0
#: On Windows a wait without a limit cannot be interrupted.
_STEP = 0.1 if sys.platform == "win32" else None


def run(work: Callable[[], Coroutine[Any, Any, _T]], name: str, instead: str) -> _T:
    """Run ``work()`` on the background loop and wait for what it returns.

    It runs in the caller's context variables, and what it changes in them the caller sees afterwards, as if
    it had been awaited. An exception while waiting (``KeyboardInterrupt``) cancels it, and goes on once it
    has stopped, at the latest after 5 s.

    Args:
        work: Makes the coroutine.
        name: What was called, for the text of a refusal.
        instead: What to await on a loop.

    Raises:
        LoopRunningError: An event loop runs in this thread.
        ToolCancelledError: The work was cancelled, as it is at the end of the process.
    """
    if asyncio._get_running_loop() is not None:
        raise LoopRunningError(f"{name} would block the event loop of this thread; {instead} instead")
    call = _Call(work)
    background = _get()
    if background is None:
        # The interpreter is shutting down: no thread can be started any more.
        with asyncio.Runner() as runner:
            return runner.run(work(), context=call.context)
    return call.wait(background)


class _Call(Generic[_T]):
    """One piece of work, and the thread that waits for it."""

    def __init__(self, work: Callable[[], Coroutine[Any, Any, _T]]) -> None:
        self._work = work
        self.context = contextvars.copy_context()
        if _dispatch.in_pool():
            self.context.run(_dispatch.NESTED.set, True)
        self._ended = threading.Event()
        self._task: asyncio.Task[None] | None = None
        self._is_unwanted = False
        self._result: list[_T] = []
        self._error: BaseException | None = None

    def wait(self, background: _Background) -> _T:
        """Have it run by ``background`` and wait for it; from any other thread."""
        loop = background.loop
        try:
            # An interrupt may come before the wait begins, when the call runs already.
            loop.call_soon_threadsafe(self._start, background)
            while not self._ended.wait(_STEP):
                pass
        except BaseException:
            with contextlib.suppress(RuntimeError):  # The loop is closed: nothing runs any more.
                loop.call_soon_threadsafe(self._cancel)
                self._ended.wait(GRACE)
            raise
        _dispatch.carry_over(self.context)
        error, self._error = self._error, None
        if error is None:
            return self._result[0]
        try:
            if isinstance(error, asyncio.CancelledError):
                raise ToolCancelledError("the call was cancelled") from error
            raise error
        finally:
            # A frame that holds the exception that came through it would keep itself.
            del error

    def _start(self, background: _Background) -> None:
        if background.is_stopping or self._is_unwanted:
            self._error = asyncio.CancelledError()
            self._ended.set()
            return
        self._task = background.loop.create_task(self._through(), context=self.context)
        self._task.add_done_callback(self._done)

    async def _through(self) -> None:
        try:
            self._result.append(await self._work())
        except BaseException as exc:
            # The caller raises it; raised here, KeyboardInterrupt would end the loop.
            self._error = exc

    def _done(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            # Before its first step.
            self._error = asyncio.CancelledError()
        self._task = None
        self._ended.set()

    def _cancel(self) -> None:
        self._is_unwanted = True
        if self._task is not None:
            self._task.cancel()


class _Background:
    """A thread whose event loop runs until it is stopped."""

    loop: asyncio.AbstractEventLoop

    def __init__(self) -> None:
        self.is_stopping = False
        self._ready = threading.Event()
        # In an empty context: where threads inherit one, it would keep the first caller's for ever.
        context = contextvars.Context()
        self._thread = threading.Thread(target=context.run, args=(self._run,), name="nanobot-tools-sync")
        self._thread.start()
        self._ready.wait()

    def stop(self) -> None:
        """Cancel what runs, and wait until the thread has ended."""
        self.loop.call_soon_threadsafe(self._stop)
        self._thread.join()

    def _stop(self) -> None:
        self.is_stopping = True
        self.loop.stop()

    def _run(self) -> None:
        with asyncio.Runner() as runner:
            self.loop = runner.get_loop()
            self._ready.set()
            while not self.is_stopping:
                try:
                    self.loop.run_forever()
                except (KeyboardInterrupt, SystemExit):
                    # Out of a task that nobody waits for; the others go on.
                    _log.exception("a task on the background loop raised what would end the process")


_lock = threading.Lock()
_background: _Background | None = None
_is_registered = False
_is_over = False
#: Loops of parent processes. To close one here would change what the parent's watches.
_inherited: list[_Background] = []


def _get() -> _Background | None:
    """The background thread, started if need be; ``None`` at the end of the process."""
    global _background, _is_registered
    with _lock:
        if _is_over:
            return None
        if not _is_registered:
            # What is registered so is called before threads are waited for, the latest first. Pools are shut
            # down in the same way: they have to be there when the loop is stopped, which may use them.
            import concurrent.futures.thread  # noqa: F401

            threading._register_atexit(_end)  # type: ignore[attr-defined]
            _is_registered = True
        if _background is None:
            _background = _Background()
        return _background


def _end() -> None:
    global _background, _is_over
    with _lock:
        _is_over = True
        ending, _background = _background, None
    if ending is not None:
        ending.stop()


def _forked() -> None:
    global _background, _lock
    _lock = threading.Lock()
    if _background is not None:
        _inherited.append(_background)
        _background = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
