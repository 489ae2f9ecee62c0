"""Promises of the calls for threads without an event loop."""

from __future__ import annotations

import asyncio
import contextvars
import os
import subprocess
import sys
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from mcp_servers import echo
from nanobot_tools import (
    LoopRunningError,
    MCPProvider,
    Tool,
    ToolCall,
    ToolCancelledError,
    ToolExecutor,
    ToolRegistry,
    is_tool_error_result,
    tool,
)
from nanobot_tools.tools.search import GrepTool

WHO = contextvars.ContextVar("who", default="nobody")


@tool
async def thread_name() -> str:
    """Say where it runs."""
    return threading.current_thread().name


@tool
async def who() -> str:
    """Read a context variable and change it."""
    before = WHO.get()
    WHO.set("the tool")
    return before


@tool
async def forever() -> str:
    """Never end."""
    await asyncio.Event().wait()
    return "never"


@tool
async def interrupts() -> str:
    """Raise what ends a process."""
    raise KeyboardInterrupt


@tool
async def is_cancelled() -> str:
    """Raise what only a cancelled call raises."""
    raise asyncio.CancelledError


@pytest.fixture
def registry() -> ToolRegistry:
    made = ToolRegistry()
    for one in (thread_name, who, forever, interrupts, is_cancelled):
        made.register(one)
    return made


@pytest.fixture(scope="session", autouse=True)
def _background_loop(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Starts the background loop, whose descriptors last as long as the process."""
    registry = ToolRegistry()
    registry.register(GrepTool(workspace=tmp_path_factory.mktemp("sync")))
    assert "No matches" in registry.execute_sync("grep", {"pattern": "nothing"})


def script(code: str, *, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run a program of its own that must end by itself."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=60,
        input=stdin,
        env={**os.environ, "PYTHONPATH": os.environ.get("PYTHONPATH", "")},
    )


TOOLS = """
import asyncio, os, signal, sys, threading, time
from nanobot_tools import MCPProvider, Tool, ToolExecutor, ToolRegistry, tool

@tool
async def add(a: int, b: int) -> int:
    "Add."
    return a + b

started = threading.Event()

@tool
async def forever() -> str:
    "Never end."
    started.set()
    try:
        await asyncio.Event().wait()
    finally:
        print("stopped", flush=True)

registry = ToolRegistry()
registry.register(add)
registry.register(forever)
"""


def test_a_tool_is_called_without_a_loop(registry: ToolRegistry) -> None:
    assert registry.execute_sync("thread_name", {}) == "nanobot-tools-sync"
    missing = registry.execute_sync("thread_nam", {})
    assert is_tool_error_result(missing)
    assert "thread_name" in missing


def test_all_calls_of_all_threads_share_one_thread(registry: ToolRegistry) -> None:
    with ThreadPoolExecutor(8) as pool:
        names = list(pool.map(lambda _: registry.execute_sync("thread_name"), range(40)))
    assert set(names) == {"nanobot-tools-sync"}
    assert [t.name for t in threading.enumerate()].count("nanobot-tools-sync") == 1


def test_a_batch_is_run_without_a_loop(registry: ToolRegistry) -> None:
    executor = ToolExecutor(registry)
    outcomes = executor.run_sync([ToolCall("thread_name"), ToolCall("forever")], timeout=0.05)
    assert [one.error_kind for one in outcomes] == [None, "timeout"]
    assert executor.running == 0


def test_a_call_that_is_over_its_time_gives_an_error_result(registry: ToolRegistry) -> None:
    result = registry.execute_sync("forever", {}, timeout=0.05)
    assert is_tool_error_result(result)
    assert "timed out after 0.05s" in result


async def test_on_the_thread_of_a_running_loop_it_is_refused_and_says_what_to_await(
    registry: ToolRegistry,
) -> None:
    provider = MCPProvider({}, registry)
    refused = {
        "await execute()": lambda: registry.execute_sync("thread_name", {}),
        "await run()": lambda: ToolExecutor(registry).run_sync([]),
        "await connect()": provider.connect_sync,
        "await aclose()": provider.close_sync,
    }
    for instead, call in refused.items():
        with pytest.raises(LoopRunningError, match=instead[:-2]):
            call()
    with pytest.raises(RuntimeError, match="await execute"):
        provider.call_sync("thread_name")
    # In a thread beside the loop nothing is blocked.
    assert await asyncio.to_thread(registry.execute_sync, "thread_name") == "nanobot-tools-sync"


def test_the_tool_sees_the_callers_context_variables_and_the_caller_what_it_changes(
    registry: ToolRegistry,
) -> None:
    def call() -> tuple[Any, str]:
        WHO.set("the caller")
        return registry.execute_sync("who"), WHO.get()

    assert contextvars.copy_context().run(call) == ("the caller", "the tool")
    assert WHO.get() == "nobody"


def test_what_would_end_a_process_reaches_the_caller_and_leaves_the_loop_running(
    registry: ToolRegistry,
) -> None:
    with pytest.raises(KeyboardInterrupt):
        registry.execute_sync("interrupts")
    with pytest.raises(ToolCancelledError):
        registry.execute_sync("is_cancelled")
    assert registry.execute_sync("thread_name") == "nanobot-tools-sync"


class Nested(Tool):
    """A plain function that makes a synchronous call of its own, down to a depth."""

    name = "nested"
    description = "Call yourself."
    parameters = {"type": "object", "properties": {"depth": {"type": "integer"}}}
    read_only = True

    def __init__(self, registry: ToolRegistry) -> None:
        self.registry = registry

    def execute(self, depth: int) -> str:  # type: ignore[override]
        if depth == 0:
            return "the ground"
        result: str = self.registry.execute_sync("nested", {"depth": depth - 1})
        return result


def test_plain_functions_that_call_synchronously_never_wait_for_a_thread_of_the_pool() -> None:
    registry = ToolRegistry()
    registry.register(Nested(registry))
    # More than the pool has threads, both beside and inside each other.
    calls = [ToolCall("nested", {"depth": 3}) for _ in range(40)]
    outcomes = ToolExecutor(registry).run_sync([*calls, ToolCall("nested", {"depth": 40})], timeout=60)
    assert [one.result for one in outcomes] == ["the ground"] * 41


def test_servers_are_connected_called_and_closed_without_a_loop(registry: ToolRegistry) -> None:
    provider = MCPProvider({"one": echo(), "two": echo()}, registry)
    try:
        provider.connect_sync()
        assert provider.connected_server_names == {"one", "two"}
        assert provider.call_sync("mcp_one_echo", {"text": "hello"}) == "hello"
        assert provider.call_sync("mcp_two_add", {"a": "2", "b": 3}) == "5"
        late = provider.call_sync("mcp_two_sleep", {"seconds": 60}, timeout=0.2)
        assert is_tool_error_result(late)
    finally:
        provider.close_sync()
    assert "mcp_one_echo" not in registry


def test_a_process_ends_without_closing_anything() -> None:
    done = script(
        TOOLS
        + """
echo = {"command": sys.executable, "args": ["-m", "nanobot_tools.testing.echo_server"],
        "env": {"PYTHONPATH": os.environ["PYTHONPATH"]}}
provider = MCPProvider({"echo": echo}, registry, cache_dir=None)
provider.connect_sync()
print(provider.call_sync("mcp_echo_add", {"a": 1, "b": 2}))
"""
    )
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "3\n")


def test_at_the_end_of_the_process_what_runs_is_cancelled_and_what_is_called_still_works() -> None:
    done = script(
        TOOLS
        + """
import atexit
from nanobot_tools import ToolCancelledError

def other():
    try:
        registry.execute_sync("forever")
    except ToolCancelledError:
        print("cancelled", flush=True)

threading.Thread(target=other).start()
started.wait()
atexit.register(lambda: print(registry.execute_sync("add", {"a": 1, "b": 2})))
"""
    )
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "stopped\ncancelled\n3\n")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_has_a_background_thread_of_its_own() -> None:
    done = script(
        TOOLS
        + """
import warnings
warnings.simplefilter("ignore", DeprecationWarning)  # forking a process that has threads
print(registry.execute_sync("add", {"a": 1, "b": 2}), flush=True)
child = os.fork()
if child == 0:
    print(registry.execute_sync("add", {"a": 2, "b": 2}), flush=True)
    sys.exit(3)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print(registry.execute_sync("add", {"a": 3, "b": 2}))
"""
    )
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "3\n4\n3\n5\n")


@pytest.mark.skipif(sys.platform == "win32", reason="signals as on POSIX")
def test_an_interrupt_while_waiting_cancels_the_call() -> None:
    done = script(
        TOOLS
        + """
# Whoever started the tests in the background may have had interrupts ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)

def interrupt():
    started.wait()
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=interrupt).start()
try:
    registry.execute_sync("forever")
except KeyboardInterrupt:
    print("interrupted", flush=True)
print(registry.execute_sync("add", {"a": 1, "b": 2}))
"""
    )
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "stopped\ninterrupted\n3\n")
