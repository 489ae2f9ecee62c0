"""The batch executor: the calls of one model response, in parallel where that is safe.

The native half plans a run, checks arguments, keeps the limits and runs native and MCP calls. This half
runs Python tools, which have to live on the loop, and the hooks around calls.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from . import _dispatch
from ._native import CURRENT_CALL, Job, NativeExecutor, PyRun, ToolCall, ToolOutcome
from .errors import ToolRefusedError

if TYPE_CHECKING:
    from .registry import ToolRegistry

__all__ = ["ToolCall", "ToolEvent", "ToolExecutor", "ToolOutcome"]

_log = logging.getLogger("nanobot_tools.executor")

#: Seconds that a cancelled coroutine gets to stop before it is reported as stuck.
GRACE = 5.0

Before = Callable[[ToolCall], "ToolCall | dict[str, Any] | bool | Awaitable[Any] | None"]
After = Callable[[ToolCall, ToolOutcome], "object | Awaitable[object]"]


@dataclass(frozen=True, slots=True)
class ToolEvent:
    """Something that happened in a run.

    Attributes:
        kind: ``"started"``, ``"progress"`` or ``"finished"``. Every call finishes once; a refused one
            was never started.
        index: Position of the call in the run.
        id: The provider's id of the call.
        name: The tool's name.
        progress: Work done so far, for ``"progress"``.
        total: All the work, if known.
        message: A line for people, if the tool gave one.
        outcome: The outcome, for ``"finished"``.
    """

    kind: Literal["started", "progress", "finished"]
    index: int
    id: str
    name: str
    progress: float | None = None
    total: float | None = None
    message: str | None = None
    outcome: ToolOutcome | None = None


class _Running:
    """A call that runs in a task of its own."""

    __slots__ = ("context", "job", "task")

    def __init__(self, job: Job, task: asyncio.Task[None], context: contextvars.Context | None) -> None:
        self.job = job
        self.task = task
        self.context = context


class ToolExecutor:
    """Runs the tool calls of a model response.

    Calls are partitioned first: consecutive calls of concurrency-safe tools run together, every other call
    runs alone and in order. Outcomes come in the order of the calls. One failing, raising or refused call
    leaves the others alone; cancelling the caller cancels every call. A run inside a tool call takes no
    second slot, so that nesting cannot deadlock.

    Args:
        registry: Where the tools are.
        max_concurrency: Calls that run at once over all runs of this executor; ``None`` is no limit.
        timeout: Seconds that a call may take, unless its tool or its run has a shorter limit.
        concurrent: Whether calls may run together at all.
        per_tool: Calls of one tool at once: a number for every tool, or a mapping from tool names.
        per_server: Calls to one MCP server at once: a number, or a mapping from server names.
        before: Called with each :class:`ToolCall` that passed validation. It returns ``None`` to go on, a
            ``ToolCall`` or a dict of arguments to go on with those (validated again), or ``False`` or
            raises :class:`ToolRefusedError` to refuse the call. May be async.
        after: Called with each call that succeeded and its outcome. May be async.
        on_error: Called with each started call that failed and its outcome. May be async.
        repeat_limit: How often the same call (tool and arguments) is let through until
            :meth:`reset_repeats`; ``None`` is no limit.

    Raises:
        ValueError: A limit is not positive.
        TypeError: ``registry`` is no :class:`ToolRegistry`.

    A plain function's outcome comes at its deadline, but its thread keeps its slot until it ends. A
    coroutine that swallows cancellation is reported after 5 s and keeps its slot as well.
    """

    #: Whether every call is traced, and so run by :meth:`_invoke` (see :mod:`nanobot_tools.telemetry`).
    _is_traced = False

    def __init__(
        self,
        registry: ToolRegistry,
        *,
        max_concurrency: int | None = 64,
        timeout: float | None = None,
        concurrent: bool = True,
        per_tool: int | Mapping[str, int] | None = None,
        per_server: int | Mapping[str, int] | None = None,
        before: Before | None = None,
        after: After | None = None,
        on_error: After | None = None,
        repeat_limit: int | None = None,
    ) -> None:
        self._native = NativeExecutor(
            registry,
            max_concurrency,
            timeout,
            concurrent,
            dict(per_tool) if isinstance(per_tool, Mapping) else per_tool,
            dict(per_server) if isinstance(per_server, Mapping) else per_server,
            repeat_limit,
        )
        self._before = before
        self._after = after
        self._on_error = on_error
        self._hooked = before is not None or after is not None or on_error is not None

    @property
    def running(self) -> int:
        """Calls that hold a slot now."""
        return self._native.running

    def plan(self, calls: Iterable[Any]) -> list[list[Any]]:
        """The batches in which ``calls`` would run, without running anything."""
        return self._native.plan(list(calls))

    def reset_repeats(self) -> None:
        """Forget the calls counted for ``repeat_limit``, as at the start of a new turn."""
        self._native.reset_repeats()

    async def run(self, calls: Iterable[Any], *, timeout: float | None = None) -> list[ToolOutcome]:
        """Run all calls and return their outcomes in the order of the calls.

        Args:
            calls: :class:`ToolCall`, nanobot's ``ToolCallRequest``, the OpenAI and Anthropic shapes (dicts
                or objects), or dicts with ``name``, ``arguments`` and ``id``. What is none of them gets an
                error outcome of kind ``invalid_call``.
            timeout: Seconds that each of these calls may take.

        Raises:
            asyncio.CancelledError: The caller was cancelled; every call was cancelled with it.

        A call that runs alone without a time limit runs in the caller's own task and context; with one it
        runs in a task whose context variable writes are carried over to the caller.
        """
        run = self._begin(calls, timeout, events=False)
        running: list[_Running] = []
        tasks: list[asyncio.Task[None]] = []
        make = _maker()
        surrounded = self._is_surrounded
        try:
            while (jobs := run.advance()) is not None:
                for job in jobs:
                    if job.plain and not surrounded:
                        tasks.append(make(job))
                    elif job.alone and job.timeout is None:
                        await (self._invoke(job) if surrounded or job.mode != _dispatch.COROUTINE else job)
                    else:
                        running.append(self._spawn(job, make, surrounded))
                waiter = run.wait()
                if waiter is not None:
                    await waiter
                _carry_over(running)
            return run.outcomes()
        except BaseException:
            await self._abort(run, [*tasks, *(state.task for state in running)])
            raise
        finally:
            run.close()

    def run_sync(self, calls: Iterable[Any], *, timeout: float | None = None) -> list[ToolOutcome]:
        """:meth:`run` for threads without an event loop.

        Python tools run on the loop of a background thread that all synchronous calls of the process share.
        The caller's context variables are kept; ``KeyboardInterrupt`` cancels every call.

        Raises:
            LoopRunningError: An event loop runs in this thread; await :meth:`run` there.
        """
        from ._sync import run

        return run(lambda: self.run(calls, timeout=timeout), "run_sync()", "await run()")

    async def stream(self, calls: Iterable[Any], *, timeout: float | None = None) -> AsyncIterator[ToolEvent]:
        """Run all calls and yield what happens as it happens.

        Leaving the loop early cancels the calls that still run (at once with ``aclose()``, or
        ``contextlib.aclosing``). Arguments and errors are those of :meth:`run`.
        """
        run = self._begin(calls, timeout, events=True)
        running: list[_Running] = []
        make = _maker()
        surrounded = self._is_surrounded
        try:
            while True:
                jobs = run.advance()
                for job in jobs or ():
                    running.append(self._spawn(job, make, surrounded))
                for event in run.take_events():
                    yield _event(event)
                if jobs is None:
                    return
                waiter = run.wait()
                if waiter is not None:
                    await waiter
                _carry_over(running)
        finally:
            await self._abort(run, [state.task for state in running])
            run.close()

    # -- one call -------------------------------------------------------------------------------------

    @property
    def _is_surrounded(self) -> bool:
        """Whether something happens before or after every call, so that Python has to run them all."""
        return self._hooked or self._is_traced

    def _begin(self, calls: Iterable[Any], timeout: float | None, *, events: bool) -> PyRun:
        return self._native.begin(list(calls), timeout, self._is_surrounded, events)

    def _spawn(self, job: Job, make: Callable[[Any], asyncio.Task[None]], surrounded: bool) -> _Running:
        loop = asyncio.get_running_loop()
        # Its own coroutine is all that such a job needs, which it makes by itself.
        is_simple = job.mode == _dispatch.COROUTINE and not surrounded
        work: Any = job if is_simple else self._invoke(job)
        # Variables are carried over from a call that runs alone, so its context has to be known.
        context = contextvars.copy_context() if job.alone else None
        task = loop.create_task(work, context=context) if context is not None else make(work)
        if work is not job:
            # Cancelled before its first step, a coroutine never runs at all.
            task.add_done_callback(lambda task: None if job.ended else _never_ran(job, task))
        limit = job.timeout
        if limit is not None:
            timer = loop.call_later(limit, _expire, job, task)
            task.add_done_callback(lambda _task: timer.cancel())
        return _Running(job, task, context)

    async def _invoke(self, job: Job) -> None:
        """Run one call to its outcome. Raises only what is no concern of a single call."""
        token = CURRENT_CALL.set(job.current)
        try:
            if self._before is not None and not await self._approve(job, self._before):
                return
            result = await self._call(job)
            if self._after is None and self._on_error is None:
                job.finish(result)
                return
            outcome = job.outcome_of(result)
        except asyncio.CancelledError:
            if job.expired:
                job.expire(stuck=False)
                return
            job.cancelled()
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            return
        except (KeyboardInterrupt, GeneratorExit) as exc:
            job.fail(exc)
            raise
        except BaseException as exc:
            outcome = job.outcome_of_error(_dispatch.contained(exc))
        finally:
            CURRENT_CALL.reset(token)
        if job.expired:
            job.expire(stuck=False)
            return
        try:
            await self._report(job, outcome)
        finally:
            job.end_with(outcome)

    async def _call(self, job: Job) -> Any:
        if job.mode == _dispatch.COROUTINE:
            return await job.tool.execute(**job.arguments)
        if job.mode == _dispatch.NATIVE:
            return await job.start_native()
        return await _dispatch.run_tool(job.tool, job.arguments, job.mode, job.release)

    async def _approve(self, job: Job, before: Before) -> bool:
        try:
            verdict = before(job.call())
            if inspect.isawaitable(verdict):
                verdict = await verdict
        except ToolRefusedError as exc:
            job.refuse(f"Error: Tool '{job.name}' was refused: {exc}")
            job.release()
            return False
        except Exception as exc:
            _log.exception("before hook failed for %r; the call is not run", job.name)
            job.refuse(f"Error: Tool '{job.name}' was not run: the before hook failed: {exc}")
            job.release()
            return False
        if verdict is False:
            job.refuse(f"Error: Tool '{job.name}' was refused.")
            job.release()
            return False
        if isinstance(verdict, ToolCall):
            verdict = verdict.arguments
        elif verdict is None or verdict is True:
            return True
        error = job.rewrite(verdict)
        if error is not None:
            job.refuse(str(error))
            job.release()
            return False
        return True

    async def _report(self, job: Job, outcome: ToolOutcome) -> None:
        hook = self._on_error if outcome.is_error else self._after
        if hook is None:
            return
        try:
            done = hook(job.call(), outcome)
            if inspect.isawaitable(done):
                await done
        except Exception:
            _log.exception("%s hook failed for %r", "on_error" if outcome.is_error else "after", job.name)

    async def _abort(self, run: PyRun, tasks: list[asyncio.Task[None]]) -> None:
        """Cancel what still runs and wait for it, at most 5 s."""
        run.stop()
        tasks = [task for task in tasks if not task.done()]
        for task in tasks:
            task.cancel()
        if tasks:
            _, stuck = await asyncio.wait(tasks, timeout=GRACE)
            for task in stuck:
                _log.warning("a cancelled tool call does not stop: %s", task.get_name())


def _maker() -> Callable[[Any], asyncio.Task[None]]:
    """Makes tasks on the running loop; directly, unless the loop has a factory of its own."""
    loop = asyncio.get_running_loop()
    return functools.partial(asyncio.Task, loop=loop) if loop.get_task_factory() is None else loop.create_task


def _event(event: tuple[Any, ...]) -> ToolEvent:
    kind, index, call_id, name, details = event
    if kind == "progress":
        progress, total, message = details
        return ToolEvent(kind, index, call_id, name, progress=progress, total=total, message=message)
    return ToolEvent(kind, index, call_id, name, outcome=details)


def _never_ran(job: Job, task: asyncio.Task[None]) -> None:
    if task.cancelled():
        job.cancelled()
        job.release()
    else:
        exc = task.exception()
        if exc is not None:
            job.fail(exc)
            job.release()


def _expire(job: Job, task: asyncio.Task[None]) -> None:
    job.time_is_up()
    if task.cancel():
        asyncio.get_running_loop().call_later(GRACE, _give_up, job, task)


def _give_up(job: Job, task: asyncio.Task[None]) -> None:
    if not task.done():
        _log.warning("tool %r does not stop after its deadline; it keeps its slot", job.name)
        job.expire(stuck=True)
        task.add_done_callback(job.release)


def _carry_over(running: list[_Running]) -> None:
    """Write the context variables of ended calls that ran alone into the caller's context."""
    for state in running:
        if state.context is None or not state.job.ended:
            continue
        if state.job.alone:
            _dispatch.carry_over(state.context)
        state.context = None
