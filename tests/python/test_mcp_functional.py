"""Promises of the functions with which nanobot-ai 0.3.0 keeps the servers of an agent."""

from __future__ import annotations

import asyncio
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from mcp_servers import echo, eventually
from nanobot_tools import MCPProvider, Tool, ToolRegistry
from nanobot_tools.mcp import (
    close_mcp_servers,
    connect_missing_servers,
    handle_runtime_control,
    reload_servers,
    request_mcp_reload,
)


def agent(**servers: Any) -> SimpleNamespace:
    """What these functions see of an agent."""
    return SimpleNamespace(_mcp_servers=servers, _mcp_stacks={}, _mcp_connecting=False)


class Bus:
    """A bus whose messages go to one agent."""

    def __init__(self, state: Any, registry: ToolRegistry) -> None:
        self.state, self.registry = state, registry
        self.messages: list[Any] = []
        self.handled: list[asyncio.Task[bool]] = []

    async def publish_inbound(self, message: Any) -> None:
        self.messages.append(message)
        if self.state is not None:
            work = handle_runtime_control(self.state, message, self.registry)
            self.handled.append(asyncio.create_task(work))


async def test_missing_servers_are_connected_and_closed_with_their_agent() -> None:
    state, registry = agent(a=echo(), b=echo(), bad={"command": "no-such-program"}), ToolRegistry()
    await connect_missing_servers(state, registry)
    assert sorted(state._mcp_stacks) == ["a", "b"]
    assert state._mcp_connecting is False
    assert await registry.execute("mcp_b_echo", {"text": "x"}) == "x"
    before = dict(state._mcp_stacks)
    await connect_missing_servers(state, registry)
    assert state._mcp_stacks == before
    await close_mcp_servers(state)
    assert state._mcp_closing is True
    assert state._mcp_stacks == {}
    assert registry.tool_names == []
    await connect_missing_servers(state, registry)
    assert state._mcp_stacks == {}
    assert (await reload_servers(state, registry, server_loader=dict))["message"] == (
        "MCP connections are shutting down."
    )


async def test_an_agent_that_is_connecting_is_not_disturbed() -> None:
    state, registry = agent(a=echo()), ToolRegistry()
    state._mcp_connecting = True
    await connect_missing_servers(state, registry)
    assert state._mcp_stacks == {}


async def test_who_connects_at_the_same_time_finds_the_servers_too() -> None:
    state, registry = agent(a=echo(), b=echo()), ToolRegistry()

    async def one() -> list[str]:
        await connect_missing_servers(state, registry)
        return sorted(state._mcp_stacks)

    assert await asyncio.gather(*(one() for _ in range(4))) == [["a", "b"]] * 4
    assert state._mcp_connecting is False
    assert [one.status()["attempts"] for one in state._mcp_stacks.values()] == [0, 0]
    await close_mcp_servers(state)


async def test_closing_and_reloading_do_not_wait_for_a_handshake_that_hangs(tmp_path: Any) -> None:
    path = tmp_path / "hangs.py"
    path.write_text("import sys\nfor line in sys.stdin:\n    pass\n")
    state, registry = agent(h={"command": sys.executable, "args": [str(path)]}), ToolRegistry()
    connecting = asyncio.create_task(connect_missing_servers(state, registry))
    await asyncio.sleep(0.2)
    after = {"a": echo()}
    result = await asyncio.wait_for(reload_servers(state, registry, server_loader=lambda: after), 5)
    assert result["ok"]
    assert (result["removed"], result["connected"]) == (["h"], ["a"])
    await asyncio.wait_for(connecting, 5)
    await asyncio.wait_for(close_mcp_servers(state), 5)
    assert state._mcp_stacks == {}


async def test_reload_makes_the_agents_servers_those_of_the_configuration() -> None:
    state, registry = agent(a=echo(), b=echo()), ToolRegistry()
    await connect_missing_servers(state, registry)
    after = {"b": echo(toolTimeout=7), "c": echo()}
    result = await reload_servers(state, registry, server_loader=lambda: after)
    assert result["ok"]
    assert (result["added"], result["changed"], result["removed"]) == (["c"], ["b"], ["a"])
    assert sorted(state._mcp_stacks) == ["b", "c"]
    assert state._mcp_servers == after
    assert not [name for name in registry.tool_names if name.startswith("mcp_a_")]
    await close_mcp_servers(state)


async def test_a_server_that_joins_late_is_entered_in_the_agents_stacks(tmp_path: Any) -> None:
    path = tmp_path / "late.py"
    path.write_text(
        "import runpy, time\ntime.sleep(1)\n"
        "runpy.run_module('nanobot_tools.testing.echo_server', run_name='__main__')\n"
    )
    late = {**echo(startupWait=0.2), "args": [str(path)]}
    state, registry = agent(late=late), ToolRegistry()
    await connect_missing_servers(state, registry)
    assert state._mcp_stacks == {}
    await eventually(lambda: "late" in state._mcp_stacks)
    await close_mcp_servers(state)


async def test_stacks_from_elsewhere_are_closed_too() -> None:
    class Stack:
        closed = 0

        async def aclose(self) -> None:
            self.closed += 1

    state, registry, mine, kept = agent(x=echo()), ToolRegistry(), Stack(), Stack()
    state._mcp_stacks.update(gone=mine, kept=kept)
    state._mcp_servers = {"gone": {"command": "a"}, "kept": {"command": "b"}}
    await reload_servers(state, registry, server_loader=lambda: {"kept": {"command": "b"}})
    assert mine.closed == 1
    assert "gone" not in state._mcp_stacks
    await close_mcp_servers(state)
    assert kept.closed == 1


class Cancelled:
    """A stack whose server's cleanup raises what only a caller should."""

    async def aclose(self) -> None:
        raise asyncio.CancelledError


async def test_a_stack_that_cancels_itself_keeps_no_other_from_closing() -> None:
    closed: list[str] = []

    class Stack:
        async def aclose(self) -> None:
            closed.append("second")

    state, registry = agent(), ToolRegistry()
    state._mcp_stacks.update(first=Cancelled(), second=Stack())
    state._mcp_servers = {"first": {"command": "a"}, "second": {"command": "b"}}
    await reload_servers(state, registry, server_loader=lambda: {"second": {"command": "b"}})
    assert closed == []
    state._mcp_stacks["first"] = Cancelled()
    await close_mcp_servers(state)
    assert closed == ["second"]
    assert state._mcp_stacks == {}


async def test_who_is_cancelled_while_closing_hears_of_it() -> None:
    started = asyncio.Event()

    class Stack:
        async def aclose(self) -> None:
            started.set()
            await asyncio.Event().wait()

    state = agent()
    state._mcp_stacks["x"] = Stack()
    closing = asyncio.create_task(close_mcp_servers(state))
    await asyncio.wait_for(started.wait(), 10)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing


class Elsewhere(Tool):
    """A tool of a server that was connected by other means."""

    def __init__(self, name: str) -> None:
        self._name = name

    @property
    def name(self) -> str:
        return self._name

    @property
    def description(self) -> str:
        return "elsewhere"

    @property
    def parameters(self) -> dict[str, Any]:
        return {"type": "object", "properties": {}}

    async def execute(self, **_: Any) -> str:
        return "elsewhere"


async def test_servers_from_elsewhere_stay_while_they_are_wanted_and_go_with_their_tools() -> None:
    tasks: list[asyncio.Task[Any] | None] = []

    class Stack:
        async def aclose(self) -> None:
            tasks.append(asyncio.current_task())

    state, registry = agent(a_=echo(), b=echo(), ab=echo()), ToolRegistry()
    kept = Stack()
    state._mcp_stacks.update({"a_": Stack(), "b": Stack(), "ab": kept})
    for name in ("mcp_a_go", "mcp_b_go", "mcp_ab_go"):
        registry.register(Elsewhere(name))
    after = {"b": echo(toolTimeout=7), "ab": echo()}
    result = await reload_servers(state, registry, server_loader=lambda: after)
    assert result["ok"]
    assert (result["changed"], result["removed"], result["retried"]) == (["b"], ["a_"], [])
    assert result["connected"] == ["ab", "b"]
    assert result["configured"] == ["ab", "b"]
    assert result["tools_removed"] == 2
    assert state._mcp_stacks["ab"] is kept
    # Some kinds of stacks must be left in the task that asks for it.
    assert tasks == [asyncio.current_task()] * 2
    names = registry.tool_names
    assert "mcp_ab_go" in names
    assert "mcp_ab_echo" not in names
    assert await registry.execute("mcp_b_echo", {"text": "x"}) == "x"
    assert "mcp_a_go" not in names
    assert "mcp_b_go" not in names
    await close_mcp_servers(state)


async def test_a_changed_server_that_fails_is_no_longer_in_the_agents_stacks() -> None:
    state, registry = agent(a=echo()), ToolRegistry()
    await connect_missing_servers(state, registry)
    after = {"a": {"command": "no-such-program"}}
    result = await reload_servers(state, registry, server_loader=lambda: after)
    assert result["failed"] == ["a"]
    assert result["message"] == "MCP config reloaded, but some servers did not connect: a"
    assert state._mcp_stacks == {}
    assert registry.tool_names == []
    await close_mcp_servers(state)


async def test_a_reload_can_be_asked_for_over_the_bus() -> None:
    registry = ToolRegistry()
    async with MCPProvider({"a": echo()}, registry, server_loader=lambda: {"a": echo(), "b": echo()}) as made:
        bus = Bus(made, registry)
        result = await request_mcp_reload(bus)
        assert result["ok"]
        assert result["added"] == ["b"]
        [message] = bus.messages
        assert (message.channel, message.sender_id, message.chat_id) == (
            "system",
            "webui-settings",
            "runtime",
        )
        assert message.content == "mcp_reload" == message.metadata["_runtime_control"]
        assert message.session_key == "system:runtime"
        assert [task.result() for task in bus.handled] == [True]


async def test_other_messages_are_left_to_others() -> None:
    state, registry = agent(), ToolRegistry()
    for metadata in (None, {}, {"_runtime_control": "something_else"}):
        assert not await handle_runtime_control(state, SimpleNamespace(metadata=metadata), registry)


async def test_nobody_answering_and_nonsense_are_told() -> None:
    silent = await request_mcp_reload(Bus(None, ToolRegistry()), timeout=0.05)
    assert silent == {
        "ok": False,
        "message": "MCP hot reload timed out. Restart nanobot to pick up changes.",
        "requires_restart": True,
    }

    class Mad(Bus):
        async def publish_inbound(self, message: Any) -> None:
            message.metadata["_ack"].set_result("fine")

    assert await request_mcp_reload(Mad(None, ToolRegistry())) == {
        "ok": False,
        "message": "MCP hot reload returned an unexpected response.",
        "requires_restart": True,
    }


async def test_without_nanobot_its_configuration_cannot_be_read() -> None:
    result = await reload_servers(agent(), ToolRegistry())
    assert result["ok"] is False
    assert result["requires_restart"] is True
    assert "nanobot" in result["error"]
    assert result["message"] == "Could not reload MCP config. Restart nanobot to pick up changes."
