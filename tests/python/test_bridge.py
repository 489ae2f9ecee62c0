"""What holds where native threads and event loops meet."""

from __future__ import annotations

import asyncio
import contextvars
import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import pytest
from nanobot_tools import Tool, ToolRegistry
from nanobot_tools.tools.search import GrepTool


@pytest.fixture
def registry(tmp_path: Path) -> ToolRegistry:
    (tmp_path / "a.txt").write_text("needle\n")
    registry = ToolRegistry()
    registry.register(GrepTool(workspace=tmp_path))
    return registry


def run_script(script: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        capture_output=True, text=True, timeout=60, env={**os.environ, **env}, check=False,
    )  # fmt: skip


def test_one_loop_after_another_is_served(registry: ToolRegistry) -> None:
    for _ in range(20):
        assert "needle" in asyncio.run(registry.execute("grep", {"pattern": "needle"}))


def test_loops_in_several_threads_are_served_at_once(registry: ToolRegistry) -> None:
    results: list[Any] = []

    def work() -> None:
        async def main() -> list[Any]:
            calls = (registry.execute("grep", {"pattern": "needle"}) for _ in range(20))
            return await asyncio.gather(*calls)

        results.extend(asyncio.run(main()))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(results) == 80
    assert all("needle" in r for r in results)


def test_a_loop_that_cannot_watch_descriptors_is_served(registry: ToolRegistry) -> None:
    class Plain(asyncio.SelectorEventLoop):
        def add_reader(self, *args: Any) -> Any:
            raise NotImplementedError

    async def main() -> Any:
        return await asyncio.gather(*(registry.execute("grep", {"pattern": "needle"}) for _ in range(5)))

    with asyncio.Runner(loop_factory=Plain) as runner:
        assert all("needle" in r for r in runner.run(main()))


def test_closing_the_loop_while_a_call_runs_does_no_harm(registry: ToolRegistry) -> None:
    loop = asyncio.new_event_loop()
    task = loop.create_task(registry.execute("grep", {"pattern": "needle"}))
    loop.run_until_complete(asyncio.sleep(0))
    task.cancel()
    loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
    loop.close()
    assert "needle" in asyncio.run(registry.execute("grep", {"pattern": "needle"}))


def test_a_native_call_without_a_loop_is_refused_aloud(registry: ToolRegistry) -> None:
    coroutine = registry.execute("grep", {"pattern": "needle"})
    with pytest.raises(RuntimeError, match="no running event loop"):
        coroutine.send(None)


async def test_the_loop_does_not_keep_the_first_callers_context(registry: ToolRegistry) -> None:
    class Big:
        pass

    import gc
    import weakref

    variable: contextvars.ContextVar[Any] = contextvars.ContextVar("variable")

    async def first() -> Any:
        big = Big()
        variable.set(big)
        await registry.execute("grep", {"pattern": "needle"})
        return weakref.ref(big)

    gone = await asyncio.create_task(first())
    await asyncio.sleep(0)
    gc.collect()
    assert gone() is None


async def test_a_thread_without_a_loop_can_call_tools_of_every_kind(registry: ToolRegistry) -> None:
    class Here(Tool):
        name = "here"
        description = "Say where it runs."
        parameters: Any = {"type": "object", "properties": {"x": {"type": "integer"}}}

        async def execute(self, x: int = 0) -> Any:
            await asyncio.sleep(0.01)
            if x == 2:
                raise ValueError("two")
            return {"main": threading.current_thread() is threading.main_thread(), "x": x}

    registry.register(Here())
    call = registry.call_blocking
    assert "needle" in await asyncio.to_thread(call, "grep", {"pattern": "needle"})
    assert await asyncio.to_thread(call, "here", {"x": "1"}) == {"main": True, "x": 1}
    assert "two" in await asyncio.to_thread(call, "here", {"x": 2})
    assert "timed out after 0.001s" in await asyncio.to_thread(call, "here", {}, 0.001)
    assert "should be integer" in await asyncio.to_thread(call, "here", {"x": "abc"})
    with pytest.raises(RuntimeError, match="would block"):
        call("here", {})


def test_a_forked_child_has_a_runtime_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("needle\n")
    done = run_script(
        """
        import asyncio, os, sys
        from nanobot_tools import ToolRegistry
        from nanobot_tools.tools.search import GrepTool

        registry = ToolRegistry()
        registry.register(GrepTool(workspace=os.environ["WORKSPACE"]))
        call = lambda: asyncio.run(registry.execute("grep", {"pattern": "needle"}))
        assert "needle" in call()
        pid = os.fork()
        if pid == 0:
            os._exit(0 if "needle" in call() else 1)
        _, status = os.waitpid(pid, 0)
        assert "needle" in call()
        sys.exit(os.waitstatus_to_exitcode(status))
        """,
        WORKSPACE=str(tmp_path),
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_interpreter_exits_cleanly_while_calls_run(tmp_path: Path) -> None:
    for i in range(500):
        (tmp_path / f"{i}.txt").write_text("x" * 5000)
    done = run_script(
        """
        import asyncio, os
        from nanobot_tools import ToolRegistry
        from nanobot_tools.tools.search import GrepTool

        registry = ToolRegistry()
        registry.register(GrepTool(workspace=os.environ["WORKSPACE"]))

        async def main():
            for _ in range(20):
                asyncio.ensure_future(registry.execute("grep", {"pattern": "y+z"}))
            await asyncio.sleep(0)

        asyncio.run(main())
        """,
        WORKSPACE=str(tmp_path),
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_core_logs_through_logging() -> None:
    done = run_script(
        """
        import logging
        logging.basicConfig(level="WARNING", format="%(name)s|%(levelname)s|%(message)s")
        from types import SimpleNamespace
        from nanobot_tools import ToolRegistry, _native

        class Bad:
            name = "bad"
            def to_schema(self):
                raise RuntimeError("not today")

        registry = ToolRegistry()
        registry.register(Bad())
        registry.get_definitions()
        registry.refresh()
        _native.flush_logs()
        """
    )
    assert "nanobot_tools.registry|WARNING|tool left out" in done.stderr
    assert "not today" in done.stderr
