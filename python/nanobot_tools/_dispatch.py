"""How a Python tool's ``execute`` is called.

A coroutine function is awaited on the loop. A plain function runs in a bounded pool of threads with the
caller's context variables, and an awaitable that it returns is awaited on the loop. Objects of nanobot's
own classes are always called on the loop, because that is where nanobot calls them.
"""

from __future__ import annotations

import contextvars
import inspect
import os
import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ._native import CURRENT_CALL
from .errors import InternalError

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

COROUTINE, THREAD, LOOP, NATIVE = 0, 1, 2, 3

#: Whether a thread of the pool waits for this work: in the pool it might wait for a thread for ever.
NESTED: contextvars.ContextVar[bool] = contextvars.ContextVar("nanobot_tools_nested", default=False)

_POOL_NAME = "nanobot-tools-call"
_pool: ThreadPoolExecutor | None = None
_pool_pid = 0


def mode(tool: Any) -> int:
    """Say how ``tool.execute`` is called: 0 coroutine function, 1 in a thread, 2 on the loop.

    Args:
        tool: Any object; one without ``execute`` counts as called on the loop, where calling it fails.
    """
    execute = getattr(tool, "execute", None)
    if execute is None or inspect.iscoroutinefunction(execute):
        return COROUTINE
    # Asked of the object and not of its type: a wrapper stands for the class of what it wraps.
    if any(base.__module__.partition(".")[0] == "nanobot" for base in tool.__class__.__mro__):
        return LOOP
    return THREAD


def pool() -> ThreadPoolExecutor:
    """The process-wide pool for plain functions: ``min(32, cores + 4)`` threads, started when needed."""
    global _pool, _pool_pid
    from concurrent.futures import ThreadPoolExecutor

    # After a fork the parent's threads do not exist.
    if _pool is None or _pool_pid != os.getpid():
        workers = min(32, (os.cpu_count() or 1) + 4)
        _pool = ThreadPoolExecutor(workers, thread_name_prefix=_POOL_NAME)
        _pool_pid = os.getpid()
    return _pool


def in_pool() -> bool:
    """Whether this thread is one of the pool's, or was started in place of one."""
    return threading.current_thread().name.startswith(_POOL_NAME)


def carry_over(context: contextvars.Context) -> None:
    """Write the variables that were changed in ``context`` into the current one."""
    here = contextvars.copy_context()
    for variable, value in context.items():
        if variable is not CURRENT_CALL and variable is not NESTED and here.get(variable, here) is not value:
            variable.set(value)


def submit(
    function: Callable[..., Any], arguments: Mapping[str, Any], done: Callable[[Any], object] | None = None
) -> Future[Any]:
    """Run ``function(**arguments)`` in the pool with the caller's context variables.

    Args:
        function: A plain function.
        arguments: Its keyword arguments.
        done: Called with the future when the thread is through with it, also when the caller was
            cancelled before.
    """
    context = contextvars.copy_context()

    def work() -> Any:
        try:
            return context.run(function, **arguments)
        except StopIteration as exc:
            # A future cannot carry it; a generator would turn it into this as well.
            raise RuntimeError("the tool raised StopIteration") from exc

    future = _in_own_thread(work) if NESTED.get() else pool().submit(work)
    if done is not None:
        future.add_done_callback(done)
    return future


def _in_own_thread(work: Callable[[], Any]) -> Future[Any]:
    from concurrent.futures import Future

    future: Future[Any] = Future()

    def run() -> None:
        if not future.set_running_or_notify_cancel():
            return
        try:
            future.set_result(work())
        except BaseException as exc:
            future.set_exception(exc)

    threading.Thread(target=run, name=f"{_POOL_NAME}-nested").start()
    return future


async def run_tool(
    tool: Any, arguments: dict[str, Any], how: int, done: Callable[[Any], object] | None = None
) -> Any:
    """Call a Python tool and await what it returns.

    Args:
        tool: The registered object.
        arguments: Keyword arguments, cast and valid.
        how: What :func:`mode` said of the tool.
        done: For a tool that runs in a thread: called when the thread is through with it.

    Raises:
        InternalError: The tool raised what would end the process (``SystemExit``, or the panic of a
            native extension).
        BaseException: Whatever else the tool raised, itself.
    """
    try:
        if how == COROUTINE:
            return await tool.execute(**arguments)
        if how == THREAD:
            import asyncio

            result = await asyncio.wrap_future(submit(tool.execute, arguments, done))
        else:
            result = tool.execute(**arguments)
        if inspect.isawaitable(result):
            result = await result
        return result
    except (Exception, KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as exc:
        raise contained(exc) from exc


def contained(exc: BaseException) -> BaseException:
    """What to raise in place of ``exc``, so that no tool ends the process.

    A cancellation, ``KeyboardInterrupt`` and ``GeneratorExit`` stay as they are.
    """
    import asyncio

    if isinstance(exc, (Exception, asyncio.CancelledError, KeyboardInterrupt, GeneratorExit)):
        return exc
    return InternalError(f"{type(exc).__name__}: {exc}")
