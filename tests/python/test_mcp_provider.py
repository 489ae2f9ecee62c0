"""Promises of the provider: servers of a configuration that come, go, change and fail."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import textwrap
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp_servers import echo, eventually
from nanobot_tools import MCPProvider, ToolRegistry, is_tool_error_result

REFERENCE_KEYS = {
    "ok", "message", "added", "changed", "removed", "retried", "connected", "configured", "failed",
    "tools_removed", "requires_restart",
}  # fmt: skip


def hangs(tmp_path: Path, **entry: Any) -> dict[str, Any]:
    """A server that reads and never answers."""
    path = tmp_path / "hangs.py"
    path.write_text("import sys\nfor line in sys.stdin:\n    pass\n")
    return {"command": sys.executable, "args": [str(path)], **entry}


def slow(tmp_path: Path, seconds: float, **entry: Any) -> dict[str, Any]:
    """A server that takes long to start."""
    path = tmp_path / f"slow{seconds}.py"
    path.write_text(
        textwrap.dedent(f"""
            import runpy, time
            time.sleep({seconds})
            runpy.run_module("nanobot_tools.testing.echo_server", run_name="__main__")
        """)
    )
    env = {"PYTHONPATH": os.environ.get("PYTHONPATH", "")}
    return {"command": sys.executable, "args": [str(path)], "env": env, **entry}


@asynccontextmanager
async def provider(
    servers: dict[str, Any], loader: Callable[[], dict[str, Any]] | None = None, **more: Any
) -> AsyncIterator[tuple[MCPProvider, ToolRegistry]]:
    registry = ToolRegistry()
    made = MCPProvider(servers, registry, server_loader=loader, **more)
    try:
        yield made, registry
    finally:
        await made.aclose()


async def test_servers_connect_at_once_and_a_bad_one_costs_only_itself(tmp_path: Path) -> None:
    servers = {
        "good": echo(),
        "missing": {"command": "no-such-program"},
        "faulty": {"args": []},
        "off": echo(disabled=True),
        "unset": {"command": "${NO_SUCH_VARIABLE_HERE}"},
        "other": echo(),
    }
    async with provider(servers) as (made, registry):
        await made.connect()
        assert made.connected_server_names == {"good", "other"}
        assert made.configured_server_names == set(servers)
        assert made.runtime_status() == {
            "good": "connected", "other": "connected", "missing": "failed", "faulty": "failed",
            "unset": "failed",
        }  # fmt: skip
        assert await registry.execute("mcp_other_echo", {"text": "x"}) == "x"
        status = made.status()
        assert status["good"]["state"] == "ready"
        assert status["good"]["tools"] == 4
        assert status["off"]["state"] == "disabled"
        assert "no-such-program" in status["missing"]["failure"]
        assert "NO_SUCH_VARIABLE_HERE" in status["unset"]["failure"]
        assert status["missing"]["next_attempt"] is not None
    assert registry.tool_names == []


async def test_a_slow_server_is_not_waited_for_and_joins_later(tmp_path: Path) -> None:
    servers = {"late": slow(tmp_path, 1.5, startupWait=0.3), "good": echo()}
    async with provider(servers) as (made, registry):
        await made.connect()
        assert made.connected_server_names == {"good"}
        assert made.runtime_status()["late"] == "connecting"
        await eventually(lambda: "mcp_late_echo" in registry)
        assert await registry.execute("mcp_late_echo", {"text": "x"}) == "x"
        assert made.connected_server_names == {"good", "late"}


async def test_with_a_warm_cache_tools_are_there_before_their_servers(tmp_path: Path) -> None:
    servers = {f"s{n}": slow(tmp_path, 0.5) for n in range(3)}
    async with provider(servers) as (made, registry):
        await made.connect()
        definitions, fingerprint = registry.get_definitions(), registry.fingerprint()
    async with provider(servers) as (made, registry):
        await made.connect()
        assert all(one["cached"] for one in made.status().values())
        assert (registry.get_definitions(), registry.fingerprint()) == (definitions, fingerprint)
        assert await registry.execute("mcp_s1_echo", {"text": "x"}) == "x"
        await eventually(lambda: not any(one["cached"] for one in made.status().values()))
        assert registry.fingerprint() == fingerprint
    async with provider(servers, cache_dir=None) as (made, registry):
        await made.connect()
        assert not any(one["cached"] for one in made.status().values())


async def test_reload_removes_adds_and_changes_and_leaves_the_rest_alone() -> None:
    servers = {"stays": echo(), "goes": echo(), "narrows": echo(), "moves": echo()}
    after = {
        "stays": echo(),
        "narrows": echo(enabledTools=["echo"], toolTimeout=5),
        "moves": echo(env={"CHANGED": "1"}),
        "comes": echo(),
    }
    async with provider(servers, lambda: after) as (made, registry):
        await made.connect()
        pids = {name: made.connection(name).pid for name in servers}
        kept = registry.get("mcp_stays_echo")
        result = await made.reload()
        assert result.keys() - {"pending"} == REFERENCE_KEYS
        assert result["ok"]
        assert result["message"] == "MCP config reloaded without restarting nanobot."
        assert (result["added"], result["removed"]) == (["comes"], ["goes"])
        assert (result["changed"], result["retried"], result["failed"]) == (["moves", "narrows"], [], [])
        assert result["connected"] == result["configured"] == ["comes", "moves", "narrows", "stays"]
        assert registry.get("mcp_stays_echo") is kept
        assert made.connection("stays").pid == pids["stays"]
        assert made.connection("narrows").pid == pids["narrows"], "this needs no restart"
        assert made.connection("moves").pid != pids["moves"]
        names = set(registry.tool_names)
        assert "mcp_goes_echo" not in names
        assert "mcp_comes_echo" in names
        assert {name for name in names if name.startswith("mcp_narrows")} == {"mcp_narrows_echo"}
        assert await registry.execute("mcp_moves_echo", {"text": "x"}) == "x"
        again = await made.reload()
        assert again["message"] == "MCP config is already live."
        assert again["ok"]


async def test_reloads_tell_what_the_reference_tells(reference_python: Path) -> None:
    bad = {"command": "no-such-program"}
    # A new variable of the environment is a restart for both.
    other = echo(env={"OTHER": "1"})
    steps: list[dict[str, Any]] = [
        {"a": echo()},
        {"a": echo()},
        {"a": echo(), "b": echo()},
        {"a": other, "bad": bad},
        {"a": other, "bad": bad},
        {"a": bad},
        {},
    ]
    script = Path(__file__).with_name("reference_reload.py")
    process = await asyncio.create_subprocess_exec(
        str(reference_python),
        *("-W", "ignore", str(script)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    out, _ = await asyncio.wait_for(process.communicate(json.dumps(steps).encode()), 120)
    theirs = json.loads(out)

    current: dict[str, Any] = {}
    ours = []
    async with provider({}, lambda: current, cache_dir=None) as (made, registry):
        for current in [*steps, {}]:  # noqa: B007 - the loader reads it
            if len(ours) == len(steps):
                await made.aclose()
            result = await made.reload()
            # Ours, for servers that a reload does not wait for any longer.
            assert result.pop("pending", []) == []
            names = sorted(made.connected_server_names)
            ours.append([result, names, made.runtime_status(), sorted(registry.tool_names)])
    assert ours == theirs


async def test_running_calls_survive_a_reload_that_restarts_their_server() -> None:
    after = {"s": echo(env={"CHANGED": "1"})}
    async with provider({"s": echo()}, lambda: after) as (made, registry):
        await made.connect()
        running = asyncio.create_task(registry.execute("mcp_s_sleep", {"seconds": 1}))
        await asyncio.sleep(0.2)
        result = await made.reload()
        assert result["changed"] == ["s"]
        assert not running.done()
        assert await registry.execute("mcp_s_echo", {"text": "new"}) == "new"
        assert not is_tool_error_result(await running)


async def test_a_faulty_entry_in_a_reload_costs_only_itself() -> None:
    after = {"good": echo(), "bad": {"command": 5}, "worse": echo(env={"A": "${NO_SUCH_VARIABLE_HERE}"})}
    async with provider({"good": echo(), "bad": echo()}, lambda: after) as (made, registry):
        await made.connect()
        result = await made.reload()
        assert not result["ok"]
        assert result["failed"] == ["bad", "worse"]
        expected = "MCP config reloaded, but some servers did not connect: bad, worse"
        assert result["message"] == expected
        assert {name.split("_")[1] for name in registry.tool_names} == {"good"}
        assert await registry.execute("mcp_good_echo", {"text": "x"}) == "x"


async def test_an_entry_that_is_no_entry_costs_only_itself() -> None:
    loop: dict[str, Any] = {"command": "x"}
    loop["env"] = loop
    faulty: dict[str, Any] = {
        "number": 5,
        "nothing": None,
        "object": {"command": object()},
        "loop": loop,
        "unset": {"command": "${NBTOOLS_NO_SUCH_VARIABLE}"},
    }
    async with provider({"a": echo(), **faulty}, lambda: {"b": echo(), **faulty}) as (made, registry):
        await made.connect()
        assert made.runtime_status() == {"a": "connected", **dict.fromkeys(faulty, "failed")}
        assert {made.status()[name]["state"] for name in faulty} == {"faulty"}
        result = await made.reload()
        assert (result["connected"], result["failed"]) == (["b"], sorted(faulty))
        assert await registry.execute("mcp_b_echo", {"text": "x"}) == "x"


async def test_a_configuration_that_cannot_be_read_changes_nothing() -> None:
    def broken() -> dict[str, Any]:
        raise ValueError("no JSON at line 3")

    async with provider({"s": echo()}, broken) as (made, registry):
        await made.connect()
        result = await made.reload()
        assert result == {
            "ok": False,
            "message": "Could not reload MCP config. Restart nanobot to pick up changes.",
            "requires_restart": True,
            "error": "no JSON at line 3",
        }
        assert await registry.execute("mcp_s_echo", {"text": "x"}) == "x"


async def test_nothing_waits_behind_a_handshake_that_hangs(tmp_path: Path) -> None:
    after = {"hung": hangs(tmp_path), "good": echo(), "new": echo()}
    async with provider({"hung": hangs(tmp_path), "good": echo()}, lambda: after) as (made, registry):
        connecting = asyncio.create_task(made.connect())
        await eventually(lambda: made.runtime_status().get("good") == "connected")
        begun = time.monotonic()
        result = await made.reload()
        assert time.monotonic() - begun < 8
        assert result["added"] == ["new"]
        assert result["pending"] == ["hung"]
        assert await registry.execute("mcp_new_echo", {"text": "x"}) == "x"
        begun = time.monotonic()
        await made.aclose()
        assert time.monotonic() - begun < 8
        await connecting
    assert registry.tool_names == []


async def test_closing_during_a_reload_ends_what_was_to_be_replaced(tmp_path: Path) -> None:
    hanging = hangs(tmp_path)
    async with provider({"a": echo()}, lambda: {"a": hanging}) as (made, registry):
        await made.connect()
        pid = made.connection("a").pid
        assert pid is not None
        reload = asyncio.create_task(made.reload())
        await eventually(lambda: made.runtime_status() == {"a": "connecting"})
        await asyncio.wait_for(made.aclose(), 5)
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
        assert (await asyncio.wait_for(reload, 5))["message"] == "MCP connections are shutting down."
        assert registry.tool_names == []


async def test_reloads_from_several_threads_leave_the_servers_of_the_last() -> None:
    names = ("a", "b", "c")
    current: dict[str, Any] = {}
    turn = threading.Lock()

    def load() -> dict[str, Any]:
        with turn:
            some = names[len(current) % 3]
            current[f"turn{len(current)}"] = None
        return {some: echo()}

    async with provider({}, load) as (made, registry):
        threads = [threading.Thread(target=lambda: asyncio.run(made.reload())) for _ in range(6)]
        for thread in threads:
            thread.start()
        await asyncio.to_thread(lambda: [thread.join(60) for thread in threads])
        assert len(made.configured_server_names) == 1
        (name,) = made.configured_server_names
        await eventually(lambda: made.connected_server_names == {name})
        await eventually(lambda: all(tool.startswith(f"mcp_{name}_") for tool in registry.tool_names))
        assert set(made._fleet._connections) == {name}


async def test_after_closing_nothing_is_connected_any_more() -> None:
    async with provider({"s": echo()}) as (made, registry):
        await made.connect()
        await made.aclose()
        await made.connect()
        assert registry.tool_names == []
        assert made.connected_server_names == set()
        assert await made.reload() == {
            "ok": False,
            "message": "MCP connections are shutting down.",
            "requires_restart": True,
        }


async def test_changes_of_state_are_told_and_a_callback_that_fails_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    told: list[tuple[str, str]] = []

    async def hear(name: str, state: str, failure: str | None) -> None:
        told.append((name, state))
        if state == "ready":
            raise RuntimeError("I cannot take good news")

    async with provider({"s": echo()}, on_state_change=hear) as (made, _):
        await made.connect()
        pid = made.connection("s").pid
        assert pid is not None
        os.kill(pid, 9)
        await eventually(lambda: made.connection("s").pid not in (None, pid))
        await eventually(lambda: len(told) >= 4)
    states = [state for _, state in told]
    assert states[:2] == ["connecting", "ready"]
    assert states[-1] in ("ready", "closed")
    assert "reconnecting" in states
    assert "I cannot take good news" in caplog.text


async def test_several_loops_and_threads_may_use_one_provider() -> None:
    async with provider({"s": echo()}) as (made, registry):
        await made.connect()
        errors: list[BaseException] = []

        async def work() -> None:
            for n in range(5):
                assert await registry.execute("mcp_s_echo", {"text": str(n)}) == str(n)
                await made.reload()
                assert made.runtime_status() == {"s": "connected"}

        def thread() -> None:
            try:
                asyncio.run(work())
            except BaseException as exc:
                errors.append(exc)

        threads = [threading.Thread(target=thread) for _ in range(3)]
        for one in threads:
            one.start()
        await work()
        await asyncio.to_thread(lambda: [one.join() for one in threads])
        assert errors == []


def test_servers_outlive_the_loop_that_opened_them() -> None:
    registry = ToolRegistry()
    made = MCPProvider({"s": echo()}, registry)

    async def killed() -> None:
        connection = made.connection("s")
        pid = connection.pid
        assert pid is not None
        os.kill(pid, 9)
        await eventually(lambda: connection.pid not in (None, pid))
        assert await registry.execute("mcp_s_echo", {"text": "x"}) == "x"
        await made.aclose()

    asyncio.run(made.connect())
    assert made.connected_server_names == {"s"}
    asyncio.run(killed())
    assert registry.tool_names == []


async def test_what_a_server_wrote_to_stderr_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "dies.py"
    path.write_text("import sys\nsys.exit('the licence has expired')\n")
    async with provider({"s": {"command": sys.executable, "args": [str(path)]}}) as (made, _):
        await made.connect()
        assert "the licence has expired" in made.status()["s"]["failure"]
        with pytest.raises(KeyError):
            made.stderr("other")


async def test_repeated_failures_are_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "dies.py"
    path.write_text("import sys\nsys.exit('no')\n")
    with caplog.at_level(logging.INFO):
        async with provider({"s": {"command": sys.executable, "args": [str(path)]}}) as (made, _):
            await made.connect()
            await eventually(lambda: made.status()["s"]["attempts"] >= 3)
    lines = [
        r.getMessage() for r in caplog.records if "exit" in r.getMessage() and "tried again" in r.getMessage()
    ]
    assert len(lines) == 1, lines
