"""What the batch executor promises."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import sys
import threading
import time
import weakref
from contextlib import aclosing
from types import SimpleNamespace
from typing import Any

import pytest
from nanobot_tools import (
    Tool,
    ToolCall,
    ToolError,
    ToolExecutor,
    ToolRefusedError,
    ToolRegistry,
    ToolResult,
    current_call,
)
from nanobot_tools.tools.search import GrepTool

HINT = "\n\n[Analyze the error above and try a different approach.]"
VAR: contextvars.ContextVar[str] = contextvars.ContextVar("var", default="unset")


class Fn(Tool):
    """A tool around a function."""

    def __init__(self, name: str, function: Any, *, safe: bool = True, timeout: float | None = None) -> None:
        self._name = name
        self._function = function
        self._safe = safe
        self.timeout = timeout

    @property
    def name(self) -> str:
        return self._name

    @property
    def description(self) -> str:
        return "A tool."

    @property
    def parameters(self) -> dict[str, Any]:
        return {"type": "object", "properties": {"x": {"type": "integer"}}}

    @property
    def read_only(self) -> bool:
        return self._safe

    async def execute(self, **kwargs: Any) -> Any:
        return await self._function(**kwargs)


class Plain(Fn):
    """A tool whose execute is a plain function."""

    def execute(self, **kwargs: Any) -> Any:  # type: ignore[override]
        return self._function(**kwargs)


def setup(*tools: Any, **options: Any) -> ToolExecutor:
    registry = ToolRegistry()
    for tool in tools:
        registry.register(tool)
    return ToolExecutor(registry, **options)


async def echo(x: int = 0) -> str:
    return f"got {x}"


async def boom(x: int = 0) -> str:
    raise ValueError("boom")


# -- order, batches ---------------------------------------------------------------------------------------


async def test_outcomes_come_in_the_order_of_the_calls() -> None:
    async def later(x: int) -> str:
        await asyncio.sleep(0.02 * (3 - x))
        return str(x)

    executor = setup(Fn("t", later))
    outcomes = await executor.run([ToolCall("t", {"x": i}, id=f"c{i}") for i in range(3)])
    assert [o.result for o in outcomes] == ["0", "1", "2"]
    assert [o.id for o in outcomes] == ["c0", "c1", "c2"]
    assert all(not o.is_error and o.attempts == 1 and o.started > 0 for o in outcomes)


async def test_consecutive_safe_calls_run_together_and_the_others_alone_and_in_order() -> None:
    log: list[str] = []
    running = 0
    peak: dict[str, int] = {}

    def make(name: str) -> Any:
        async def work(x: int) -> str:
            nonlocal running
            running += 1
            log.append(f"{name}{x}")
            await asyncio.sleep(0.01)
            peak[name] = max(peak.get(name, 0), running)
            running -= 1
            return name

        return work

    executor = setup(Fn("safe", make("safe")), Fn("solo", make("solo"), safe=False))
    names = ["safe", "safe", "solo", "solo", "safe", "safe", "safe"]
    calls = [ToolCall(name, {"x": i}) for i, name in enumerate(names)]
    assert [[c.name for c in batch] for batch in executor.plan(calls)] == [
        ["safe", "safe"],
        ["solo"],
        ["solo"],
        ["safe", "safe", "safe"],
    ]
    await executor.run(calls)
    assert peak == {"safe": 3, "solo": 1}
    assert log.index("solo2") > log.index("safe1")
    assert log.index("solo3") > log.index("solo2")


async def test_without_concurrency_every_call_is_alone() -> None:
    executor = setup(Fn("t", echo), concurrent=False)
    assert len(executor.plan([ToolCall("t", {}) for _ in range(4)])) == 4


async def test_all_calls_are_partitioned_before_any_runs() -> None:
    registry = ToolRegistry()

    async def add(x: int = 0) -> str:
        registry.register(Fn("late", echo))
        return "added"

    registry.register(Fn("add", add, safe=False))
    executor = ToolExecutor(registry)
    calls = [ToolCall("add", {}), ToolCall("late", {"x": 1}), ToolCall("late", {"x": 2})]
    outcomes = await executor.run(calls)
    assert [o.result for o in outcomes] == ["added", "got 1", "got 2"]


# -- shapes of calls --------------------------------------------------------------------------------------


async def test_every_providers_shape_of_a_call_is_understood() -> None:
    executor = setup(Fn("t", echo))
    request = SimpleNamespace(id="n", name="t", arguments={"x": 1})
    calls = [
        request,
        {"id": "o", "type": "function", "function": {"name": "t", "arguments": '{"x": 2}'}},
        {"type": "tool_use", "id": "a", "name": "t", "input": {"x": 3}},
        {"name": "t", "arguments": {"x": 4}, "id": "p"},
        {"type": "function_call", "id": "fc", "call_id": "r", "name": "t", "arguments": '{"x": 5}'},
        SimpleNamespace(id="so", function=SimpleNamespace(name="t", arguments='{"x": 6}')),
        ToolCall("t", '{"x": 7}'),
    ]
    outcomes = await executor.run(calls)
    assert [o.result for o in outcomes] == [f"got {i}" for i in range(1, 8)]
    assert [o.id for o in outcomes] == ["n", "o", "a", "p", "r", "so", "call_6"]


async def test_what_is_no_call_at_all_costs_only_itself() -> None:
    executor = setup(Fn("t", echo))
    outcomes = await executor.run([42, {"id": "x"}, None, ToolCall("t", {"x": 1})])
    assert [o.error_kind for o in outcomes] == ["invalid_call"] * 3 + [None]
    assert "int" in str(outcomes[0].result)


# -- failures ---------------------------------------------------------------------------------------------


async def test_failing_raising_and_refused_calls_leave_the_others_alone() -> None:
    async def refuse(x: int = 0) -> Any:
        return ToolResult.error("Error: no")

    async def exact(x: int = 0) -> Any:
        raise ToolError("exactly this")

    async def leave(x: int = 0) -> Any:
        raise SystemExit(3)

    async def leak(x: int = 0) -> Any:
        raise asyncio.CancelledError

    executor = setup(
        Fn("ok", echo),
        Fn("boom", boom),
        Fn("no", refuse),
        Fn("exact", exact),
        Fn("exit", leave),
        Fn("leak", leak),
    )
    names = ["ok", "boom", "no", "exact", "exit", "leak", "missing", "ok"]
    calls = [ToolCall(n, {"x": 1}) for n in names]
    outcomes = await executor.run([*calls, ToolCall("ok", {"x": "abc"})])
    assert [o.error_kind for o in outcomes] == [
        None,
        "exception",
        "tool_error",
        "tool_error",
        "internal",
        "cancelled",
        "not_found",
        None,
        "invalid_arguments",
    ]
    assert outcomes[1].result == "Error executing boom: boom" + HINT
    assert isinstance(outcomes[1].exception, ValueError)
    assert outcomes[2].result == "Error: no" + HINT
    assert outcomes[3].result == "exactly this" + HINT
    assert "SystemExit: 3" in outcomes[4].result
    assert outcomes[8].result == "Error: Invalid parameters for tool 'ok': x should be integer" + HINT
    assert all(isinstance(o.result, ToolResult) and o.result.is_error for o in outcomes if o.is_error)
    assert outcomes[6].attempts == 0
    assert outcomes[6].duration == 0.0


async def test_the_result_is_what_the_registry_would_have_returned() -> None:
    blocks = [{"type": "text", "text": "x"}]

    async def give(x: int = 0) -> Any:
        return blocks if x else None

    registry = ToolRegistry()
    for tool in (Fn("give", give), Fn("boom", boom)):
        registry.register(tool)
    executor = ToolExecutor(registry)
    calls = [("give", {"x": 1}), ("give", {}), ("boom", {}), ("nope", {}), ("give", "[]")]
    outcomes = await executor.run([ToolCall(*call) for call in calls])
    for outcome, call in zip(outcomes, calls, strict=True):
        assert outcome.result == await registry.execute(*call)
    assert outcomes[0].result is blocks


async def test_the_hint_stands_once() -> None:
    async def hinted(x: int = 0) -> Any:
        return ToolResult.error("bad" + HINT)

    executor = setup(Fn("t", hinted))
    [outcome] = await executor.run([ToolCall("t", {})])
    assert outcome.result == "bad" + HINT


# -- context ----------------------------------------------------------------------------------------------


async def test_a_call_that_runs_alone_runs_in_the_callers_context() -> None:
    tasks = []

    async def write(x: int = 0) -> str:
        tasks.append(asyncio.current_task())
        VAR.set(f"written {x}")
        return "ok"

    executor = setup(Fn("t", write))
    await executor.run([ToolCall("t", {"x": 1})])
    assert VAR.get() == "written 1"
    assert tasks == [asyncio.current_task()]
    await executor.run([ToolCall("t", {"x": 2}), ToolCall("t", {"x": 3})])
    assert VAR.get() == "written 1"
    await executor.run([ToolCall("t", {"x": 4})], timeout=5)
    assert VAR.get() == "written 4"
    async with aclosing(executor.stream([ToolCall("t", {"x": 5})])) as events:
        async for _ in events:
            pass
    assert VAR.get() == "written 5"
    assert current_call() is None


async def test_a_plain_function_runs_in_a_thread_with_the_callers_context() -> None:
    seen: list[Any] = []

    def work(x: int = 0) -> Any:
        seen.append((threading.current_thread() is threading.main_thread(), VAR.get()))

        async def rest() -> str:
            seen.append(threading.current_thread() is threading.main_thread())
            return "awaited"

        return rest()

    VAR.set("from the caller")
    executor = setup(Plain("t", work))
    [outcome] = await executor.run([ToolCall("t", {})])
    assert outcome.result == "awaited"
    assert seen == [(False, "from the caller"), True]


async def test_a_plain_function_that_raises_stop_iteration_ends_its_call() -> None:
    def work(x: int = 0) -> Any:
        raise StopIteration

    executor = setup(Plain("t", work))
    [outcome] = await asyncio.wait_for(executor.run([ToolCall("t", {})]), 10)
    assert outcome.error_kind == "exception"


async def test_current_call_gives_id_name_deadline_and_progress() -> None:
    seen: list[Any] = []

    async def work(x: int = 0) -> str:
        call = current_call()
        assert call is not None
        seen.append((call.id, call.name, call.deadline is not None, call.cancelled))
        call.progress(1, total=2, message="half")
        return "ok"

    executor = setup(Fn("t", work))
    events = [e async for e in executor.stream([ToolCall("t", {}, id="7")], timeout=30)]
    assert seen == [("7", "t", True, False)]
    assert [e.kind for e in events] == ["started", "progress", "finished"]
    assert (events[1].progress, events[1].total, events[1].message) == (1, 2, "half")
    assert events[2].outcome is not None
    assert events[2].outcome.result == "ok"


# -- limits -----------------------------------------------------------------------------------------------


class Gauge:
    def __init__(self) -> None:
        self.now = 0
        self.peak = 0

    async def __call__(self, x: int = 0) -> str:
        self.now += 1
        self.peak = max(self.peak, self.now)
        await asyncio.sleep(0.005)
        self.now -= 1
        return "ok"


async def test_calls_are_limited_overall_and_over_all_runs() -> None:
    gauge = Gauge()
    executor = setup(Fn("t", gauge), max_concurrency=3)
    calls = [ToolCall("t", {"x": i}) for i in range(10)]
    await asyncio.gather(executor.run(calls), executor.run(calls))
    assert gauge.peak == 3
    assert executor.running == 0


async def test_calls_are_limited_per_tool_and_per_server() -> None:
    a, b, c = Gauge(), Gauge(), Gauge()
    served = [Fn("s1", c), Fn("s2", c)]
    for tool in served:
        tool._server_name = "srv"  # type: ignore[attr-defined]
    executor = setup(Fn("a", a), Fn("b", b), *served, per_tool={"a": 1}, per_server={"srv": 2})
    calls = [ToolCall(n, {"x": i}) for i in range(4) for n in ("a", "b", "s1", "s2")]
    await executor.run(calls)
    assert (a.peak, b.peak, c.peak) == (1, 4, 2)


@pytest.mark.parametrize(
    "options", [{"max_concurrency": 0}, {"per_tool": 0}, {"timeout": -1}, {"repeat_limit": 0}]
)
def test_a_limit_that_is_not_positive_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="must be"):
        setup(**options)


async def test_a_run_inside_a_call_takes_no_second_slot() -> None:
    executor: ToolExecutor

    async def nest(x: int = 0) -> str:
        if x == 0:
            return "leaf"
        outcomes = await executor.run([ToolCall("t", {"x": x - 1}) for _ in range(2)])
        return "+".join(str(o.result) for o in outcomes)

    executor = setup(Fn("t", nest), max_concurrency=1, per_tool=1)
    [outcome] = await asyncio.wait_for(executor.run([ToolCall("t", {"x": 3})]), 20)
    assert outcome.result == "+".join(["leaf"] * 8)
    assert executor.running == 0


# -- deadlines --------------------------------------------------------------------------------------------


async def test_the_shortest_deadline_wins() -> None:
    async def slow(x: int = 0) -> str:
        await asyncio.sleep(30)
        return "late"

    executor = setup(Fn("tool", slow, timeout=0.05), Fn("own", slow), timeout=0.1)
    outcomes = await executor.run([ToolCall("tool", {}), ToolCall("own", {})])
    assert [o.error_kind for o in outcomes] == ["timeout", "timeout"]
    assert "after 0.05s" in outcomes[0].result
    assert "after 0.1s" in outcomes[1].result
    [outcome] = await executor.run([ToolCall("own", {})], timeout=0.02)
    assert outcome.result == "Error executing own: timed out after 0.02s" + HINT


async def test_a_plain_functions_outcome_comes_at_the_deadline_and_its_thread_keeps_its_slot() -> None:
    go_on = threading.Event()

    def work(x: int = 0) -> str:
        call = current_call()
        go_on.wait(20)
        assert call is not None
        seen.append(call.cancelled)
        return "late"

    seen: list[bool] = []
    executor = setup(Plain("t", work), max_concurrency=2)
    [outcome] = await executor.run([ToolCall("t", {})], timeout=0.05)
    assert outcome.error_kind == "timeout"
    assert executor.running == 1
    go_on.set()
    for _ in range(500):
        if executor.running == 0:
            break
        await asyncio.sleep(0.01)
    assert executor.running == 0
    assert seen == [True]


async def test_a_coroutine_that_swallows_cancellation_is_reported_and_keeps_its_slot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("nanobot_tools.executor.GRACE", 0.05)
    release = asyncio.Event()

    async def stubborn(x: int = 0) -> str:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        return "late"

    executor = setup(Fn("t", stubborn))
    [outcome] = await executor.run([ToolCall("t", {})], timeout=0.05)
    assert outcome.error_kind == "timeout"
    assert "did not stop" in outcome.result
    assert executor.running == 1
    release.set()
    for _ in range(500):
        if executor.running == 0:
            break
        await asyncio.sleep(0.01)
    assert executor.running == 0


# -- cancelling -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 5])
async def test_cancelling_the_caller_cancels_every_call(count: int) -> None:
    cancelled: list[int] = []

    async def slow(x: int = 0) -> str:
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            cancelled.append(x)
            raise
        return "late"

    executor = setup(Fn("t", slow))
    task = asyncio.create_task(executor.run([ToolCall("t", {"x": i}) for i in range(count)]))
    await asyncio.sleep(0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert sorted(cancelled) == list(range(count))
    assert executor.running == 0


async def test_a_task_cancelled_before_its_first_step_ends_its_call() -> None:
    registry = ToolRegistry()

    async def cancel_siblings(x: int = 0) -> str:
        for task in asyncio.all_tasks():
            if task is not asyncio.current_task() and type(task.get_coro()).__name__ == "Job":
                task.cancel()
        return "ok"

    registry.register(Fn("t", cancel_siblings))
    executor = ToolExecutor(registry)
    outcomes = await asyncio.wait_for(executor.run([ToolCall("t", {}) for _ in range(3)]), 10)
    assert [o.error_kind for o in outcomes] == [None, "cancelled", "cancelled"]
    assert executor.running == 0


async def test_leaving_a_stream_early_cancels_the_rest() -> None:
    ended: list[str] = []

    async def work(x: int = 0) -> str:
        try:
            await asyncio.sleep(0.001 if x == 0 else 30)
        finally:
            ended.append("end")
        return "ok"

    executor = setup(Fn("t", work))
    async with aclosing(executor.stream([ToolCall("t", {"x": i}) for i in range(4)])) as events:
        async for event in events:
            if event.kind == "finished":
                break
    assert ended == ["end"] * 4
    assert executor.running == 0


async def test_a_stream_tells_of_starts_and_ends_as_they_happen() -> None:
    async def work(x: int = 0) -> str:
        await asyncio.sleep(0.01 * x)
        return str(x)

    executor = setup(Fn("t", work))
    calls = [ToolCall("t", {"x": 2}), ToolCall("missing", {}), ToolCall("t", {"x": 0})]
    events = [e async for e in executor.stream(calls)]
    kinds = [(e.kind, e.index) for e in events]
    assert kinds == [("started", 0), ("finished", 0), ("finished", 1), ("started", 2), ("finished", 2)]


# -- hooks ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("asynchronous", [False, True])
async def test_a_hook_may_refuse_or_rewrite_a_call(asynchronous: bool) -> None:
    def decide(call: ToolCall) -> Any:
        x = call.arguments.get("x")
        if x == 1:
            return False
        if x == 2:
            raise ToolRefusedError("ask the owner")
        if x == 3:
            return {"x": "30"}
        if x == 4:
            return ToolCall(call.name, {"x": "not a number"})
        if x == 5:
            raise RuntimeError("hook is broken")
        return None

    async def decide_async(call: ToolCall) -> Any:
        await asyncio.sleep(0)
        return decide(call)

    executor = setup(Fn("t", echo), before=decide_async if asynchronous else decide)
    outcomes = await executor.run([ToolCall("t", {"x": i}) for i in range(6)])
    assert [o.error_kind for o in outcomes] == [None, "refused", "refused", None, "refused", "refused"]
    assert outcomes[0].result == "got 0"
    assert outcomes[2].result == "Error: Tool 't' was refused: ask the owner" + HINT
    assert outcomes[3].result == "got 30"
    assert "x should be integer" in outcomes[4].result
    assert executor.running == 0


async def test_each_started_call_gets_exactly_one_of_after_and_on_error() -> None:
    seen: list[tuple[str, str]] = []

    async def after(call: ToolCall, outcome: Any) -> None:
        seen.append(("after", outcome.name))
        raise RuntimeError("a broken hook is logged")

    def on_error(call: ToolCall, outcome: Any) -> None:
        seen.append(("on_error", outcome.name))

    executor = setup(Fn("ok", echo), Fn("boom", boom), after=after, on_error=on_error)
    outcomes = await executor.run([ToolCall("ok", {}), ToolCall("boom", {}), ToolCall("missing", {})])
    assert sorted(seen) == [("after", "ok"), ("on_error", "boom")]
    assert [o.error_kind for o in outcomes] == [None, "exception", "not_found"]


async def test_hooks_surround_native_tools_too(tmp_path: Any) -> None:
    (tmp_path / "a.txt").write_text("needle\n")
    seen: list[str] = []
    executor = setup(GrepTool(workspace=tmp_path), after=lambda call, outcome: seen.append(call.name))
    [outcome] = await executor.run([ToolCall("grep", {"pattern": "needle"})])
    assert "needle" in outcome.result
    assert seen == ["grep"]


async def test_the_same_call_over_and_over_is_stopped() -> None:
    executor = setup(Fn("t", echo), repeat_limit=2)
    calls = [ToolCall("t", arguments) for arguments in ({"x": 1}, '{"x": 1}', {"x": 1}, {"x": 2})]
    outcomes = await executor.run(calls)
    kinds = [o.error_kind for o in outcomes]
    assert kinds[0] is None
    assert kinds.count("refused") == 1
    executor.reset_repeats()
    [outcome] = await executor.run([ToolCall("t", {"x": 1})])
    assert outcome.result == "got 1"


# -- two worlds -------------------------------------------------------------------------------------------


async def test_python_and_native_tools_run_in_one_batch(tmp_path: Any) -> None:
    (tmp_path / "a.txt").write_text("needle\n")
    started = time.monotonic()

    def plain(x: int = 0) -> str:
        time.sleep(0.05)
        return "plain"

    executor = setup(Fn("async", echo), Plain("plain", plain), GrepTool(workspace=tmp_path))
    calls = [ToolCall("async", {}), ToolCall("plain", {}), ToolCall("grep", {"pattern": "needle"})] * 3
    outcomes = await executor.run(calls)
    assert [o.is_error for o in outcomes] == [False] * 9
    assert time.monotonic() - started < 30


def test_an_executor_serves_several_loops_in_several_threads(tmp_path: Any) -> None:
    (tmp_path / "a.txt").write_text("needle\n")
    executor = setup(Fn("t", Gauge()), GrepTool(workspace=tmp_path), max_concurrency=2)
    failures: list[BaseException] = []

    def work() -> None:
        async def main() -> None:
            calls = [ToolCall("t", {"x": i}) for i in range(5)]
            calls += [ToolCall("grep", {"pattern": "needle"})] * 5
            outcomes = await executor.run(calls)
            assert not any(o.is_error for o in outcomes)

        try:
            asyncio.run(main())
        except BaseException as exc:
            failures.append(exc)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []
    assert executor.running == 0


async def test_no_calls_are_no_work() -> None:
    executor = setup()
    assert await executor.run([]) == []
    assert [e async for e in executor.stream([])] == []


def test_outcomes_and_calls_show_what_they_are() -> None:
    call = ToolCall("t", {"x": 1}, id="7")
    assert repr(call) == "ToolCall('t', {'x': 1}, id='7')"
    assert call == ToolCall("t", {"x": 1}, "7")
    assert call != ToolCall("t", {"x": 2}, "7")
    match call:
        case ToolCall(name, arguments, _):
            assert (name, arguments) == ("t", {"x": 1})
        case _:
            pytest.fail("does not match")
    assert sys.getrefcount(call) > 0


# -- memory -----------------------------------------------------------------------------------------------


def test_a_finished_run_keeps_nothing_alive() -> None:
    kept: list[weakref.ref[Any]] = []

    class Keeper(Fn):
        task: Any = None

        async def execute(self, **kwargs: Any) -> Any:
            self.task = asyncio.current_task()
            if kwargs.get("x"):
                raise ValueError("keeps its frame")
            return "ok"

    def fail(x: int = 0) -> str:
        raise ValueError("in a thread")

    async def main() -> None:
        tools = [Keeper("keeper", echo), Plain("plain", fail), Fn("boom", boom)]
        kept.extend(weakref.ref(tool) for tool in tools)
        kept.append(weakref.ref(asyncio.get_running_loop()))
        executor = setup(*tools, on_error=lambda call, outcome: None)
        plain = setup(*tools)
        calls = [ToolCall(name, {"x": x}) for name in ("keeper", "plain", "boom") for x in (0, 1)]
        await executor.run(calls)
        await plain.run(calls)
        [event async for event in plain.stream(calls)]

    asyncio.run(main())
    for _ in range(500):
        gc.collect()
        if all(ref() is None for ref in kept):
            break
        time.sleep(0.01)  # a thread of the pool may still be on its way out of the last call
    assert [ref() for ref in kept] == [None] * len(kept)
