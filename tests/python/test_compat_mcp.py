"""nanobot's MCP servers over our client: what nanobot calls stays, and its configuration stays the policy."""

# ruff: noqa: E501 - programs for nanobot

from __future__ import annotations

import textwrap

import pytest
from under_nanobot import UnderNanobot

# What every program begins with: nanobot with the drop-in, and the entry of the server in the package.
HEAD = """
import asyncio, os, sys, time
import nanobot_tools
nanobot_tools.install()
from loguru import logger
from nanobot.agent.tools import mcp
from nanobot.agent.tools.registry import ToolRegistry
from nanobot.config.schema import MCPServerConfig

said = []
logger.add(lambda message: said.append(message.record["message"]))

def echo(*options, **more):
    args = ["-m", "nanobot_tools.testing.echo_server", *options]
    env = {"PYTHONPATH": os.environ["PYTHONPATH"]}
    return MCPServerConfig(command=sys.executable, args=args, env=env, **more)

def lives(pid):
    # A process that has ended but was not waited for yet is gone as well.
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False

async def until(fact, seconds=30):
    deadline = time.monotonic() + seconds
    while not fact():
        assert time.monotonic() < deadline, said
        await asyncio.sleep(0.01)

def pid_of(connections, name):
    return connections[name].server.pid
"""


def program(body: str) -> str:
    """A program whose ``main`` has this body."""
    indented = textwrap.indent(textwrap.dedent(body), "    ")
    return f"{HEAD}\nasync def main():\n{indented}\nasyncio.run(main())\n"


def test_servers_connect_at_once_and_one_that_fails_costs_only_itself(nanobot: UnderNanobot) -> None:
    nanobot.run(
        program(
            """
            registry = ToolRegistry()
            servers = {"z": echo(), "none": MCPServerConfig(command="/no/such/program"), "a": echo(), "e": MCPServerConfig()}
            connected = await mcp.connect_mcp_servers(servers, registry)
            assert list(connected) == ["z", "a"], connected
            assert registry.get("mcp_a_echo").name == "mcp_a_echo" and registry.has("mcp_z_add")
            assert isinstance(registry.get("mcp_a_echo"), mcp.MCPToolWrapper)
            assert await registry.execute("mcp_a_add", {"a": "2", "b": 3}) == "5"
            failed = await registry.execute("mcp_a_fail", {"text": "no"})
            assert failed.is_error and failed.startswith("no"), failed
            assert any("/no/such/program" in text for text in said)
            assert "MCP server 'e': no command or url configured, skipping" in said
            # The same text without the registry, which alone adds the hint.
            assert await registry.get("mcp_a_fail").execute(text="no") == "no"
            for one in connected.values():
                await one.aclose()
            assert registry.tool_names == []
            """
        )
    )


def test_a_reload_keeps_processes_and_running_calls_where_only_limits_change(nanobot: UnderNanobot) -> None:
    nanobot.run(
        program(
            """
            import nanobot.agent.tools.mcp_oauth  # It takes its time, and a reload imports it.
            registry = ToolRegistry()
            servers = {"kept": echo(), "changed": echo(), "gone": echo()}
            provider = mcp.MCPProvider(servers, registry, server_loader=lambda: dict(servers))
            await provider.connect()
            assert provider.runtime_status() == dict.fromkeys(servers, "connected")
            pids = {name: pid_of(provider._connections, name) for name in servers}
            running = asyncio.create_task(registry.execute("mcp_changed_sleep", {"seconds": 3}))
            ending = asyncio.create_task(registry.execute("mcp_gone_sleep", {"seconds": 3}))
            await asyncio.sleep(0.2)
            servers["changed"] = echo(tool_timeout=77)
            servers["new"] = echo()
            del servers["gone"]
            result = await provider.reload()
            assert result["ok"] and result["message"] == "MCP config reloaded without restarting nanobot.", result
            assert (result["added"], result["changed"], result["removed"]) == (["new"], ["changed"], ["gone"]), result
            assert result["connected"] == result["configured"] == ["changed", "kept", "new"], result
            assert not running.done() and not ending.done()
            assert pid_of(provider._connections, "changed") == pids["changed"]
            assert registry.get("mcp_changed_echo")._tool_timeout == 77
            assert not registry.has("mcp_gone_echo")
            assert not (await running).startswith("Error") and not getattr(running.result(), "is_error", False)
            assert not getattr(await ending, "is_error", False), ending.result()
            await until(lambda: not lives(pids["gone"]))
            assert (await provider.reload())["message"] == "MCP config is already live."
            await provider.aclose()
            assert registry.tool_names == [] and not any(lives(pid) for pid in pids.values())
            """
        )
    )


def test_a_server_that_comes_late_registers_its_tools_and_one_that_is_removed_never_does(
    nanobot: UnderNanobot,
) -> None:
    nanobot.run(
        program(
            """
            def late(name):
                code = f"import os, runpy, sys; os.path.exists({name!r}) or sys.exit('not yet'); " \\
                       "sys.argv[1:] = []; runpy.run_module('nanobot_tools.testing.echo_server', run_name='__main__')"
                return MCPServerConfig(command=sys.executable, args=["-c", code], env={"PYTHONPATH": os.environ["PYTHONPATH"]}, cwd=os.getcwd())

            registry = ToolRegistry()
            servers = {"late": late("a"), "removed": late("b")}
            provider = mcp.MCPProvider(servers, registry, server_loader=lambda: dict(servers))
            await provider.connect()
            assert provider.connected_server_names == set() and registry.tool_names == []
            assert any("not yet" in text for text in said), said
            del servers["removed"]
            result = await provider.reload()
            assert result["failed"] == ["late"] and result["removed"] == ["removed"], result
            open("a", "w").close(); open("b", "w").close()
            await until(lambda: registry.has("mcp_late_echo"))
            assert provider.runtime_status() == {"late": "connected"}
            assert await registry.execute("mcp_late_echo", {"text": "here"}) == "here"
            # A turn asks again; nothing is waited for, and the server is now nanobot's as well.
            await provider.connect()
            assert provider.connected_server_names == {"late"}
            await asyncio.sleep(2.5)
            assert not registry.has("mcp_removed_echo")
            await provider.aclose()
            """
        )
    )


def test_a_turn_does_not_wait_for_a_server_that_is_known_to_be_down(nanobot: UnderNanobot) -> None:
    nanobot.configure(options={"mcpServers": {"silent": {"startupWait": 0.2, "connectTimeout": 60}}})
    nanobot.run(
        program(
            """
            registry = ToolRegistry()
            silent = MCPServerConfig(command=sys.executable, args=["-c", "import time; time.sleep(60)"])
            provider = mcp.MCPProvider({"silent": silent}, registry)
            await provider.connect()
            for _ in range(20):
                await asyncio.wait_for(provider.connect(), 5)
            assert provider.runtime_status() == {"silent": "connecting"}
            await asyncio.wait_for(provider.aclose(), 10)
            """
        )
    )


def test_closing_ends_what_is_being_connected_too(nanobot: UnderNanobot) -> None:
    nanobot.run(
        program(
            """
            registry = ToolRegistry()
            silent = MCPServerConfig(command=sys.executable, args=["-c", "import os, time; open('pid', 'w').write(str(os.getpid())); time.sleep(60)"], cwd=os.getcwd())
            provider = mcp.MCPProvider({"silent": silent, "well": echo()}, registry)
            connecting = asyncio.create_task(provider.connect())
            await until(lambda: os.path.exists("pid") and open("pid").read())
            pid = int(open("pid").read())
            await asyncio.wait_for(provider.aclose(), 15)
            await asyncio.wait_for(connecting, 5)
            assert not lives(pid) and registry.tool_names == [] and provider.connected_server_names == set()
            """
        )
    )


def test_closing_does_not_wait_for_servers_that_hang_or_calls_that_run(nanobot: UnderNanobot) -> None:
    nanobot.run(
        program(
            """
            registry = ToolRegistry()
            provider = mcp.MCPProvider({name: echo() for name in ("stopped", "busy", "well")}, registry)
            await provider.connect()
            pids = [pid_of(provider._connections, name) for name in provider.connected_server_names]
            call = asyncio.create_task(registry.execute("mcp_busy_sleep", {"seconds": 60}))
            await asyncio.sleep(0.1)
            os.kill(pid_of(provider._connections, "stopped"), 19)
            await asyncio.wait_for(provider.aclose(), 15)
            assert (await asyncio.wait_for(call, 5)).is_error
            await until(lambda: not any(lives(pid) for pid in pids))
            """
        )
    )


def test_a_cancelled_connect_leaves_nothing(nanobot: UnderNanobot) -> None:
    nanobot.run(
        program(
            """
            registry = ToolRegistry()
            silent = MCPServerConfig(command=sys.executable, args=["-c", "import os, time; open('pid', 'w').write(str(os.getpid())); time.sleep(60)"], cwd=os.getcwd())
            try:
                await asyncio.wait_for(mcp.connect_mcp_servers({"well": echo(), "silent": silent}, registry), 1.5)
                raise AssertionError("it was not cancelled")
            except TimeoutError:
                pass
            assert registry.tool_names == []
            pid = int(open("pid").read())
            await until(lambda: not lives(pid))
            """
        )
    )


def test_a_killed_server_is_back_for_the_next_call(nanobot: UnderNanobot) -> None:
    nanobot.run(
        program(
            """
            registry = ToolRegistry()
            connected = await mcp.connect_mcp_servers({"echo": echo()}, registry)
            pid = pid_of(connected, "echo")
            os.kill(pid, 9)
            assert await registry.execute("mcp_echo_echo", {"text": "again"}) == "again"
            assert pid_of(connected, "echo") not in (None, pid)
            await connected["echo"].aclose()
            """
        )
    )


def test_read_only_tools_of_servers_run_beside_each_other(nanobot: UnderNanobot) -> None:
    nanobot.run(
        program(
            """
            from nanobot.agent import runner
            from nanobot.agent.hook import AgentHook, AgentHookContext
            from nanobot.providers.base import ToolCallRequest

            order = []

            class Hook(AgentHook):
                async def before_execute_tool(self, context, call, tool, params):
                    order.append(f"begin {call.id}")
                async def after_execute_tool(self, context, call, tool, params, result):
                    order.append(f"end {call.id}")

            registry = ToolRegistry()
            servers = {name: echo() for name in "abc"}
            connected = await mcp.connect_mcp_servers(servers, registry)
            assert registry.get("mcp_a_sleep").concurrency_safe
            calls = [ToolCallRequest(id=name, name=f"mcp_{name}_sleep", arguments={"seconds": seconds})
                     for name, seconds in (("a", 0.6), ("b", 0.3), ("c", 0.1))]
            results, events = await runner.execute_tool_calls(
                registry, calls, concurrent=True, external_lookup_counts={}, workspace_violation_counts={},
                hook=Hook(), context=AgentHookContext(iteration=0, messages=[]),
            )
            assert order == ["begin a", "begin b", "begin c", "end c", "end b", "end a"], order
            assert [event["name"] for event in events] == [call.name for call in calls]
            assert {event["status"] for event in events} == {"ok"}
            for one in connected.values():
                await one.aclose()
            """
        )
    )


HTTP = """
import socket, subprocess
from nanobot.security import network

SERVER = '''
import sys
from mcp.server.fastmcp import FastMCP
server = FastMCP("web", host="127.0.0.1", port=int(sys.argv[1]))

@server.tool()
def greet(name: str) -> str:
    return f"Hello, {name}"

server.run(transport="streamable-http")
'''

def web_server():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen([sys.executable, "-c", SERVER, str(port)], stderr=subprocess.DEVNULL)
    return process, f"http://127.0.0.1:{port}/mcp"

async def listening(url):
    port = int(url.rpartition(":")[2].partition("/")[0])
    def there():
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0
    await until(there)
"""


def web_program(body: str) -> str:
    """A program that can start a server over HTTP."""
    return program(body).replace("\nasync def main", f"\n{HTTP}\nasync def main", 1)


def test_nanobots_rules_for_addresses_hold_and_its_whitelist_opens_them(nanobot: UnderNanobot) -> None:
    nanobot.run(
        web_program(
            """
            process, url = web_server()
            try:
                await listening(url)
                registry = ToolRegistry()
                servers = {"web": MCPServerConfig(url=url)}
                assert await mcp.connect_mcp_servers(servers, registry) == {}
                assert any(text.startswith("MCP server 'web': blocked unsafe URL http://127.0.0.1:") for text in said), said
                network.configure_ssrf_whitelist(["127.0.0.0/8"])
                connected = await mcp.connect_mcp_servers(servers, registry)
                assert await registry.execute("mcp_web_greet", {"name": "you"}) == "Hello, you"
                await connected["web"].aclose()
            finally:
                process.terminate()
                process.wait()
            """
        )
    )


def test_our_options_are_read_from_a_file_beside_nanobots_and_a_change_counts_at_reload(
    nanobot: UnderNanobot,
) -> None:
    nanobot.configure(
        options={"defaults": {"retry": "never"}, "mcpServers": {"b": {"disabledTools": ["fail"]}}}
    )
    nanobot.run(
        program(
            """
            import json, pathlib
            registry = ToolRegistry()
            servers = {"a": echo(), "b": echo()}
            provider = mcp.MCPProvider(servers, registry, server_loader=lambda: dict(servers))
            await provider.connect()
            assert registry.has("mcp_a_fail") and not registry.has("mcp_b_fail") and registry.has("mcp_b_echo")
            pid = pid_of(provider._connections, "b")
            file = pathlib.Path.home() / ".nanobot/nanobot-tools.json"
            file.write_text(json.dumps({"mcpServers": {"b": {"disabledTools": ["echo"]}}}))
            result = await provider.reload()
            assert result["changed"] == ["a", "b"] and result["message"] == "MCP config reloaded without restarting nanobot.", result
            assert registry.has("mcp_b_fail") and not registry.has("mcp_b_echo")
            assert pid_of(provider._connections, "b") == pid
            assert (await provider.reload())["message"] == "MCP config is already live."
            file.write_text('{"mcpServers": {"a": {"command": "x", "backend": "other"}, "b": 5}, "more": 1')
            await provider.reload()
            assert any("nanobot-tools.json" in text and "line 1" in text for text in said), said
            file.write_text('{"mcpServers": {"a": {"command": "x", "backend": "other"}, "b": 5}, "more": 1}')
            await provider.reload()
            for complaint in ("a: command belongs into nanobot's own configuration", "a: backend must be one of native, sdk",
                              "mcpServers.b must be an object", "unknown key 'more'"):
                assert any(complaint in text for text in said), (complaint, said)
            await provider.aclose()
            """
        )
    )


def test_a_server_is_left_to_nanobots_own_client_on_demand(nanobot: UnderNanobot) -> None:
    nanobot.configure(options={"mcpServers": {"theirs": {"backend": "sdk"}}})
    nanobot.run(
        program(
            """
            registry = ToolRegistry()
            oauth = MCPServerConfig(url="https://127.0.0.1:9/mcp", auth="oauth")
            from nanobot.security import network
            network.configure_ssrf_whitelist(["127.0.0.0/8"])
            connected = await mcp.connect_mcp_servers({"theirs": echo(), "oauth": oauth, "ours": echo()}, registry)
            assert list(connected) == ["theirs", "ours"], connected
            assert type(registry.get("mcp_theirs_echo")) is mcp.MCPToolWrapper
            assert type(connected["theirs"]) is mcp._OwnedMCPConnection
            assert "MCP server 'oauth': waiting for browser authorization" in said, said
            for name in connected:
                assert await registry.execute(f"mcp_{name}_echo", {"text": name}) == name
                await connected[name].aclose()
            """
        )
    )


def test_images_of_a_result_go_where_nanobot_keeps_them(nanobot: UnderNanobot) -> None:
    nanobot.run(
        program(
            """
            import base64, json, pathlib, struct, textwrap, zlib

            def chunk(kind, data):
                return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

            png = b"\\x89PNG\\r\\n\\x1a\\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0)) \\
                + chunk(b"IDAT", zlib.compress(b"\\0\\0")) + chunk(b"IEND", b"")
            pathlib.Path("server.py").write_text(textwrap.dedent(f'''
from mcp.server.fastmcp import FastMCP
from mcp.types import ImageContent
server = FastMCP("pictures")

@server.tool()
def picture(prompt: str) -> ImageContent:
    return ImageContent(type="image", data={base64.b64encode(png).decode()!r}, mimeType="image/png")

server.run()
'''))
            registry = ToolRegistry()
            config = MCPServerConfig(command=sys.executable, args=["server.py"], cwd=os.getcwd())
            connected = await mcp.connect_mcp_servers({"pictures": config}, registry)
            shown = json.loads(await registry.execute("mcp_pictures_picture", {"prompt": "a dot"}))
            record = shown["artifacts"][0]
            kept = pathlib.Path(record["path"])
            assert kept.read_bytes() == png and pathlib.Path.home() / ".nanobot/media/generated" in kept.parents, record
            assert (record["prompt"], record["provider"], record["mime"]) == ("a dot", "mcp:pictures", "image/png"), record
            assert shown["next_step"] == json.loads(mcp._mcp_image_tool_result([], [record]))["next_step"]
            await connected["pictures"].aclose()
            """
        )
    )


@pytest.mark.parametrize("value", ["sdk", "off"])
def test_all_servers_are_left_to_nanobot_by_a_switch(nanobot: UnderNanobot, value: str) -> None:
    nanobot.run(
        """
        import nanobot.agent.loop
        from nanobot.agent.tools import mcp
        before = [mcp.connect_mcp_servers, mcp.MCPToolWrapper.execute, mcp.MCPProvider.reload, mcp._unregister_server_tools]
        import nanobot_tools
        assert "mcp" not in nanobot_tools.install().active
        assert before == [mcp.connect_mcp_servers, mcp.MCPToolWrapper.execute, mcp.MCPProvider.reload, mcp._unregister_server_tools]
        """,
        NBTOOLS_MCP=value,
    )
