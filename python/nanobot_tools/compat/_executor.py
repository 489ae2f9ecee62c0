"""Running the tool calls of one response, behind nanobot's ``execute_tool_calls`` and ``_execute_tools``.

What a call is answered with, which hooks hear of it and what is said of it in events are nanobot's, and its
own helpers are asked for them, through the module that they are found in. What is ours is how calls run: a
call that ends the turn takes its siblings with it, and waits for them; batches have limits; and nothing that
a tool raises ends more than its call.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import logging
import re
from collections.abc import Callable, Coroutine, Iterable, Mapping
from types import ModuleType
from typing import Any, TypeAlias

from .. import _dispatch
from ..base import Tool
from ..errors import InternalError
from ._graft import parameters
from ._settings import number

__all__ = ["Limits", "execute_tool_calls", "execute_tools"]

_log = logging.getLogger("nanobot_tools.compat")

#: Result, event, and what ends the turn.
Outcome: TypeAlias = tuple[Any, dict[str, str], BaseException | None]
Work: TypeAlias = Callable[[Any], Coroutine[Any, Any, Outcome]]

_HINT = "\n\n[Analyze the error above and try a different approach.]"
#: Seconds that cancelled siblings get before the turn ends without them.
GRACE = 5.0
_DETAIL = 120
_COUNTS = "external_lookup_counts, workspace_violation_counts"
_VIOLATION = "raw_text, soft_payload, event, tool_call, workspace_violation_counts"
#: Characters of a text that is copied faster than it is searched.
_SHORT = 1000
_NOTHING = contextlib.nullcontext()
_VISIBLE = re.compile(r"\S")


class Limits:
    """How many calls of one batch run at once.

    Args:
        tools: The registry that says which server a tool is of.
        max_concurrency: Of all of them.
        per_server: Of those of one MCP server; ``None`` is no limit.
    """

    def __init__(self, tools: Any, max_concurrency: int = 64, per_server: int | None = None) -> None:
        self._tools = tools
        self._max_concurrency = max_concurrency
        self._overall = asyncio.Semaphore(max_concurrency)
        self._per_server = per_server
        self._servers: dict[str, asyncio.Semaphore] = {}

    @classmethod
    def from_environment(cls, tools: Any) -> Limits:
        """By ``NBTOOLS_MAX_CONCURRENCY`` and ``NBTOOLS_PER_SERVER``, where they are positive numbers."""
        return cls(tools, number("NBTOOLS_MAX_CONCURRENCY") or 64, number("NBTOOLS_PER_SERVER"))

    def can_matter(self, calls: int) -> bool:
        """Whether so many calls may have to wait."""
        return calls > self._max_concurrency or self._per_server is not None

    async def run(self, work: Work, call: Any) -> Outcome:
        """Run a call when there is room for it."""
        # The registry is asked only if it matters: nanobot does not look a tool up here.
        server = None if self._per_server is None else _server_of(self._tools, call)
        if server is None or self._per_server is None:
            async with self._overall:
                return await work(call)
        async with self._servers.setdefault(server, asyncio.Semaphore(self._per_server)), self._overall:
            return await work(call)


class _Turn:
    """What the calls of one response share.

    Args:
        module: Where nanobot's helpers are looked up.
        tools: The registry, or whatever stands for one.
        hook: nanobot's hook, and ``context`` what it is told.
        lookups: nanobot's counts of repeated lookups, and ``violations`` of attempts to leave the workspace.
        classify: nanobot's ``_classify_violation``, called with keywords.
        reading: Makes a context for a call, given the call.
        hints: Adds the retry hint to an error's text.
        hints_raised: Whether that of an exception gets it as well (since 0.3.5).
        names: Whether nanobot's ``is_tool_error_result`` is given the name of the tool as well (0.3.0).
        fatal: Whether an error ends the turn (before 0.3.5); asked when there is one.
    """

    def __init__(
        self,
        module: ModuleType,
        tools: Any,
        hook: Any,
        context: Any,
        lookups: dict[str, int],
        violations: dict[str, int],
        *,
        classify: Callable[..., Any],
        reading: Callable[[Any], contextlib.AbstractContextManager[Any]] | None,
        hints: Callable[[Any], Any],
        hints_raised: bool,
        names: bool = False,
        fatal: Callable[[], bool] = lambda: False,
    ) -> None:
        self._module = module
        self._tools = tools
        self._hook = hook
        self._context = context
        self._lookups = lookups
        self._violations = violations
        self._classify = classify
        self._reading = reading
        self._hints = hints
        self._hints_raised = hints_raised
        self._names = names
        self._fatal = fatal

    async def call(self, call: Any) -> Outcome:
        """Run one call. Only a hook, a registry that raises, and what ends the process get out as raised."""
        blocked = self._module.repeated_external_lookup_error(call.name, call.arguments, self._lookups)
        if blocked:
            event = _event(call, "error", "repeated external lookup blocked")
            return self._hints(blocked), event, self._ends(RuntimeError(blocked))
        tool, params, refused = self._prepared(call)
        if refused:
            detail = refused.split(": ", 1)[-1][:_DETAIL]
            return self._failed(call, refused, self._hints(refused), detail, RuntimeError(refused))
        await self._hook.before_execute_tool(self._context, call, tool, params)
        try:
            with self._reading(call) if self._reading is not None else _NOTHING:
                if tool is None:
                    result = await self._tools.execute(call.name, params)
                elif isinstance(tool, Tool):
                    result = await _executed(tool, params)
                else:
                    result = await tool.execute(**params)
        except asyncio.CancelledError:
            raise
        except BaseException as exc:
            if _ends_the_process(exc):
                raise
            if _is_cancellation(exc):
                raise asyncio.CancelledError from exc
            text, kept = _told(exc)
            await self._hook.on_execute_tool_error(self._context, call, tool, params, kept)
            payload = f"Error: {type(exc).__name__}: {text}"
            if self._hints_raised:
                payload = self._hints(payload)
            return self._failed(call, text, payload, text, kept)
        if self._is_error(call.name, result):
            await self._hook.on_execute_tool_error(self._context, call, tool, params, result)
            detail, _ = _shortened(result)
            return self._failed(call, result, self._hints(result), detail, RuntimeError(result))
        await self._hook.after_execute_tool(self._context, call, tool, params, result)
        detail, is_cut = _shortened("" if result is None else str(result))
        return result, _event(call, "ok", f"{detail}..." if is_cut else detail or "(empty)"), None

    def _prepared(self, call: Any) -> tuple[Any, Any, Any]:
        prepare = getattr(self._tools, "prepare_call", None)
        if callable(prepare):
            prepared = prepare(call.name, call.arguments)
            # A mock gives anything.
            if isinstance(prepared, tuple) and len(prepared) == 3:
                return prepared
        return None, call.arguments, None

    def _failed(self, call: Any, text: str, payload: Any, detail: str, fault: BaseException) -> Outcome:
        event = _event(call, "error", detail)
        handled = self._classify(
            raw_text=text,
            soft_payload=payload,
            event=event,
            tool_call=call,
            workspace_violation_counts=self._violations,
        )
        if handled is not None:
            # A boundary that was met is said so, and never ends the turn.
            return handled[0], handled[1], None
        return payload, event, self._ends(fault)

    def _ends(self, fault: BaseException) -> BaseException | None:
        return fault if self._fatal() else None

    def _is_error(self, name: str, result: Any) -> bool:
        judge = self._module.is_tool_error_result
        return bool(judge(name, result) if self._names else judge(result))


async def _executed(tool: Tool, params: Any) -> Any:
    # nanobot awaits what it calls; ours may be plain functions.
    how = _dispatch.mode(tool)
    if how == _dispatch.COROUTINE:
        return await tool.execute(**params)
    return await _dispatch.run_tool(tool, params, how)


def _event(call: Any, status: str, detail: str) -> dict[str, str]:
    return {"name": call.name, "status": status, "detail": detail}


def _ends_the_process(exc: BaseException) -> bool:
    ends = (KeyboardInterrupt, GeneratorExit)
    return isinstance(exc, ends) or (isinstance(exc, BaseExceptionGroup) and exc.subgroup(ends) is not None)


def _told(exc: BaseException) -> tuple[str, BaseException]:
    """The text of what a tool raised, and what hooks are told and the turn may end with in its place."""
    try:
        text, kept = str(exc), _dispatch.contained(exc)
    except Exception:
        text = "<exception str() failed>"
        kept = InternalError(f"{type(exc).__name__}: {text}")
    if kept is not exc:
        kept.__cause__ = exc
    return text, kept


def _is_cancellation(exc: BaseException) -> bool:
    """Whether this is how a group of tasks says that it was cancelled, from outside."""
    task = asyncio.current_task()
    return (
        isinstance(exc, BaseExceptionGroup)
        and exc.subgroup(asyncio.CancelledError) is not None
        and task is not None
        and task.cancelling() > 0
    )


def _shortened(text: str) -> tuple[str, bool]:
    """The first 120 characters in one line and whether there are more, without copying a long text."""
    if len(text) <= _SHORT:
        line = text.replace("\n", " ").strip()
        return line[:_DETAIL], len(line) > _DETAIL
    first = _VISIBLE.search(text)
    if first is None:
        return "", False
    end = first.start() + _DETAIL
    head = text[first.start() : end].replace("\n", " ")
    is_cut = _VISIBLE.search(text, end) is not None
    return head if is_cut else head.rstrip(), is_cut


async def _run_all(batches: Iterable[list[Any]], concurrent: bool, tools: Any, work: Work) -> list[Outcome]:
    """Run batches one after the other; outcomes in the order of the calls."""
    outcomes: list[Outcome] = []
    for batch in batches:
        if concurrent and len(batch) > 1:
            outcomes.extend(await _together(batch, tools, work))
        else:
            for call in batch:
                # In the caller's own task: what the tool does to its context stays.
                outcomes.append(await work(call))
    return outcomes


async def _together(batch: list[Any], tools: Any, work: Work) -> list[Outcome]:
    limits = Limits.from_environment(tools)
    if limits.can_matter(len(batch)):
        work = functools.partial(limits.run, work)
    loop = asyncio.get_running_loop()
    # The first call that raises, or None when all are through. Not asyncio.gather: it hands a cancellation
    # on and returns with the first call that obeys, so that waiting for the others meant to cancel them
    # again, in the middle of their cleaning up.
    ended: asyncio.Future[asyncio.Task[Outcome] | None] = loop.create_future()
    left = len(batch)

    def done(task: asyncio.Task[Outcome]) -> None:
        nonlocal left
        left -= 1
        # Asked for in any case: only the first exception is raised, and asyncio complains of unseen ones.
        has_failed = task.cancelled() or task.exception() is not None
        if (has_failed or not left) and not ended.done():
            ended.set_result(task if has_failed else None)

    tasks = []
    for call in batch:
        task = loop.create_task(work(call))
        task.add_done_callback(done)
        tasks.append(task)
    try:
        failed = await ended
        return [task.result() for task in (tasks if failed is None else [failed])]
    except GeneratorExit:
        # The coroutine is being closed: it can wait for nothing any more.
        if not loop.is_closed():
            for task in tasks:
                task.cancel()
        raise
    except BaseException:
        await _stop(tasks)
        raise


async def _stop(tasks: list[asyncio.Task[Outcome]]) -> None:
    running = [task for task in tasks if not task.done()]
    for task in running:
        task.cancel()
    if running:
        _, stuck = await asyncio.wait(running, timeout=GRACE)
        if stuck:
            _log.warning("%d cancelled tool calls do not stop; the turn ends without them", len(stuck))


def _server_of(tools: Any, call: Any) -> str | None:
    get = getattr(tools, "get", None)
    server = getattr(get(call.name), "_server_name", None) if callable(get) else None
    return server if isinstance(server, str) else None


def _check(owner: Any, **wanted: str) -> None:
    """Refuse to begin, rather than fail in every turn, where a helper of nanobot's is not as expected.

    Args:
        owner: Where the helpers are.
        wanted: Name -> parameters; empty for any.
    """
    for name, expected in wanted.items():
        helper = getattr(owner, name)
        looks = parameters(helper) if expected else ""
        if looks != expected:
            raise TypeError(f"the parameters of {name} are ({looks}), where ({expected}) is expected")


def _is_of(function: Any, module: ModuleType) -> bool:
    """Whether a function is the module's own, and not what somebody else has put in its place."""
    return getattr(function, "__globals__", None) is vars(module)


# -- the two shapes --------------------------------------------------------------------------------------


def execute_tool_calls(original: Any, module: ModuleType) -> Any:
    """For ``execution.execute_tool_calls`` (0.3.5)."""
    _check(
        module,
        _classify_violation=f"*, {_VIOLATION}",
        _partition_tool_batches="tools, tool_calls, *, concurrent",
        _with_retry_hint="payload",
        repeated_external_lookup_error="tool_name, arguments, seen_counts",
        is_tool_error_result="result",
        file_read_context="call_id, tool_results",
    )
    theirs = module._execute_tool_call
    if _is_of(theirs, module):
        _check(module, _execute_tool_call=f"tools, tool_call, {_COUNTS}, hook, context, read_results")

    @functools.wraps(original)
    async def execute_tool_calls(
        tools: Any,
        tool_calls: Any,
        *,
        concurrent: bool,
        external_lookup_counts: dict[str, int],
        workspace_violation_counts: dict[str, int],
        hook: Any,
        context: Any,
        model_messages: list[dict[str, Any]] | None = None,
        compacted_tool_results: set[str] | None = None,
    ) -> tuple[list[Any], list[dict[str, str]]]:
        @functools.cache
        def read_results() -> dict[str, str]:
            return _read_results(model_messages or (), compacted_tool_results or frozenset())

        def reading(call: Any) -> contextlib.AbstractContextManager[Any]:
            if call.name != "read_file":
                return _NOTHING
            context_of: contextlib.AbstractContextManager[Any] = module.file_read_context(
                call.id, read_results
            )
            return context_of

        counts = (external_lookup_counts, workspace_violation_counts)

        async def their_way(call: Any) -> Outcome:
            result, event = await module._execute_tool_call(tools, call, *counts, hook, context, read_results)
            return result, event, None

        work: Work = their_way
        if module._execute_tool_call is theirs and _is_of(theirs, module):
            work = _Turn(
                module, tools, hook, context, *counts, classify=module._classify_violation,
                reading=reading, hints=module._with_retry_hint, hints_raised=True,
            ).call  # fmt: skip
        batches = module._partition_tool_batches(tools, tool_calls, concurrent=concurrent)
        outcomes = await _run_all(batches, concurrent, tools, work)
        return [outcome[0] for outcome in outcomes], [outcome[1] for outcome in outcomes]

    return execute_tool_calls


def _read_results(messages: Iterable[Mapping[str, Any]], compacted: Iterable[str]) -> dict[str, str]:
    """What files were read before, by the id of the call, as far as the model still sees it."""
    found = {}
    for message in messages:
        call, content = message.get("tool_call_id"), message.get("content")
        if message.get("role") == "tool" and isinstance(call, str) and isinstance(content, str):
            found[call] = content
    return {call: content for call, content in found.items() if call not in compacted}


def execute_tools(original: Any, module: ModuleType) -> Any:
    """For ``AgentRunner._execute_tools`` (before 0.3.5)."""
    theirs = module.AgentRunner._run_tool
    _check(module.AgentRunner, _partition_tool_batches="self, spec, tool_calls")
    hooked = "hook" in inspect.signature(original).parameters
    names = False
    if hooked:
        _check(module, AgentHook="", AgentHookContext="", is_tool_error_result="")
        _check(module, repeated_external_lookup_error="tool_name, arguments, seen_counts")
        _check(module.AgentRunner, _classify_violation=f"self, *, {_VIOLATION}")
        if _is_of(theirs, module):
            _check(module.AgentRunner, _run_tool=f"self, spec, tool_call, {_COUNTS}, hook=None, context=None")
        names = len(inspect.signature(module.is_tool_error_result).parameters) > 1

    def hints(text: Any) -> Any:
        return text + _HINT

    @functools.wraps(original)
    async def _execute_tools(
        self: Any,
        spec: Any,
        tool_calls: Any,
        external_lookup_counts: dict[str, int],
        workspace_violation_counts: dict[str, int],
        hook: Any = None,
        context: Any = None,
    ) -> tuple[list[Any], list[dict[str, str]], BaseException | None]:
        counts = (external_lookup_counts, workspace_violation_counts)
        hooks: tuple[Any, ...] = ()
        if hooked:
            hooks = (hook or module.AgentHook(), context or module.AgentHookContext(iteration=0, messages=[]))

        async def their_way(call: Any) -> Outcome:
            outcome: Outcome = await self._run_tool(spec, call, *counts, *hooks)
            return outcome

        work: Work = their_way
        # 0.2 has no hooks, tells of edited files on the way, and catches everything itself.
        if hooked and getattr(self._run_tool, "__func__", None) is theirs and _is_of(theirs, module):
            work = _Turn(
                module, spec.tools, hooks[0], hooks[1], *counts, classify=self._classify_violation,
                reading=None, hints=hints, hints_raised=False, names=names,
                fatal=lambda: spec.fail_on_tool_error,
            ).call  # fmt: skip
        batches = self._partition_tool_batches(spec, tool_calls)
        outcomes = await _run_all(batches, spec.concurrent_tools, spec.tools, work)
        # The first in the order of the calls ends the turn.
        fatal = next((outcome[2] for outcome in outcomes if outcome[2] is not None), None)
        return [outcome[0] for outcome in outcomes], [outcome[1] for outcome in outcomes], fatal

    return _execute_tools
