"""What tests of nanobot's promise that replace the MCP SDK by fakes, held against real servers instead.

Those tests cannot pass with a client that does not use the SDK; scripts/nanobot_tests_expected.toml names them.
"""

# ruff: noqa: E501 - programs for nanobot

from __future__ import annotations

import tomllib

import pytest
from test_compat_mcp import program
from under_nanobot import ROOT, UnderNanobot

# A server over stdio with tools, resources and prompts, on the SDK that nanobot depends on.
RICH = """
import os, pathlib, textwrap
os.mkdir("elsewhere")
pathlib.Path("server.py").write_text(textwrap.dedent('''
    import os
    from mcp.server.fastmcp import FastMCP
    server = FastMCP("rich")

    @server.tool()
    def where() -> str:
        return os.getcwd()

    @server.tool(name="odd name!")
    def odd() -> str:
        return "odd"

    @server.tool(name="n" * 80)
    def long() -> str:
        return "long"

    @server.resource("memo://a", name="notes on: everything")
    def memo() -> str:
        return "remember"

    @server.prompt()
    def review(code: str) -> str:
        return f"Review {code}"

    server.run()
'''))

def rich(**more):
    return MCPServerConfig(command=sys.executable, args=[os.path.abspath("server.py")], cwd=os.path.abspath("elsewhere"), **more)
"""

TOOLS = {
    "all by default": ({}, {"where", "odd", "long", "resource", "prompt"}),
    "raw names": ({"enabled_tools": ["where", "odd name!"]}, {"where", "odd"}),
    "wrapped names": ({"enabled_tools": ["mcp_rich_where"]}, {"where"}),
    "sanitised names": ({"enabled_tools": ["mcp_rich_odd_name_"]}, {"odd"}),
    "shortened names": ({"enabled_tools": ["LONG"]}, {"long"}),
    "none": ({"enabled_tools": []}, set()),
    "all and one": ({"enabled_tools": ["*", "where"]}, {"where", "odd", "long", "resource", "prompt"}),
}


def test_the_allow_list_takes_names_of_every_form_and_keeps_resources_and_prompts_out(
    nanobot: UnderNanobot,
) -> None:
    nanobot.run(
        program(
            f"""
            cases = {TOOLS!r}
            wrapped = {{
                "where": "mcp_rich_where", "odd": "mcp_rich_odd_name_",
                "long": mcp._sanitize_mcp_tool_name("mcp_rich_" + "n" * 80),
                "resource": "mcp_rich_resource_notes_on_everything", "prompt": "mcp_rich_prompt_review",
            }}
            assert len(wrapped["long"]) == 64
            for case, (more, expected) in cases.items():
                if more.get("enabled_tools") == ["LONG"]:
                    more = {{"enabled_tools": [wrapped["long"]]}}
                registry = ToolRegistry()
                connected = await mcp.connect_mcp_servers({{"rich": rich(**more)}}, registry)
                assert list(connected) == ["rich"], said
                assert set(registry.tool_names) == {{wrapped[name] for name in expected}}, (case, registry.tool_names)
                await connected["rich"].aclose()
            registry = ToolRegistry()
            await mcp.connect_mcp_servers({{"rich": rich()}}, registry)
            assert isinstance(registry.get(wrapped["resource"]), mcp.MCPResourceWrapper)
            assert isinstance(registry.get(wrapped["prompt"]), mcp.MCPPromptWrapper)
            assert await registry.execute(wrapped["resource"], {{}}) == "remember"
            assert await registry.execute(wrapped["prompt"], {{"code": "x"}}) == "Review x"
            assert await registry.execute(wrapped["where"], {{}}) == os.path.realpath("elsewhere")
            """
        ).replace("async def main", RICH + "\nasync def main", 1)
    )


def test_entries_of_the_allow_list_that_nothing_matches_are_warned_about(nanobot: UnderNanobot) -> None:
    nanobot.run(
        program(
            """
            registry = ToolRegistry()
            await mcp.connect_mcp_servers({"echo": echo(enabled_tools=["echo", "no_such_tool"])}, registry)
            assert registry.tool_names == ["mcp_echo_echo"]
            begin = "MCP server 'echo': enabledTools names what the server does not have: no_such_tool."
            await until(lambda: any(text.startswith(begin) for text in said))
            (text,) = (text for text in said if text.startswith(begin))
            assert "echo (mcp_echo_echo)" in text and "add (mcp_echo_add)" in text, text
            """
        )
    )


def test_a_server_that_pollutes_its_stdout_works_and_one_that_only_does_that_is_told_of(
    nanobot: UnderNanobot,
) -> None:
    nanobot.configure(options={"defaults": {"startupWait": 3, "connectTimeout": 3}})
    nanobot.run(
        program(
            """
            noise = "print('Server starting...', flush=True); import runpy, sys; sys.argv[1:] = []; runpy.run_module('nanobot_tools.testing.echo_server', run_name='__main__')"
            registry = ToolRegistry()
            noisy = MCPServerConfig(command=sys.executable, args=["-c", noise], env={"PYTHONPATH": os.environ["PYTHONPATH"]})
            only = MCPServerConfig(command=sys.executable, args=["-c", "print('only noise', flush=True); import time; time.sleep(60)"])
            connected = await mcp.connect_mcp_servers({"noisy": noisy, "only": only}, registry)
            assert list(connected) == ["noisy"], connected
            assert await registry.execute("mcp_noisy_echo", {"text": "well"}) == "well"
            await until(lambda: any("only noise" in text and "log to stderr" in text for text in said))
            """
        )
    )


# A server over HTTP with answers in JSON or, under /sse, over the older transport. It redirects, keeps quiet or
# forgets its sessions on demand, and as a proxy it answers for anybody.
WEB = """
import http.server, json, queue, threading
from nanobot.security import network

class Web(http.server.ThreadingHTTPServer):
    daemon_threads = True

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *arguments): ...
    def answer(self, status, data=b"", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(data))); self.end_headers(); self.wfile.write(data)
    def do_DELETE(self):
        self.answer(405)
    def do_GET(self):
        self.server.seen.append(self.path)
        if "redirect" in self.path:
            return self.answer(307, Location=self.server.target)
        if "sse" not in self.path:
            return self.answer(405)
        self.send_response(200); self.send_header("Content-Type", "text/event-stream"); self.end_headers()
        self.wfile.write(b"event: endpoint\\ndata: /messages\\n\\n")
        while (data := self.server.events.get()) is not None:
            self.wfile.write(b"event: message\\ndata: " + data + b"\\n\\n")
    def do_POST(self):
        self.server.seen.append(self.path)
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if "redirect" in self.path:
            return self.answer(307, Location=self.server.target)
        if "silent" in self.path or body["method"] in self.server.silent:
            self.server.kept.set()
            self.server.release.wait(60)
            return
        if self.server.forgets and "Mcp-Session-Id" in self.headers:
            return self.answer(404)
        results = {
            "initialize": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "web", "version": "1"}},
            "tools/list": {"tools": [{"name": "greet", "inputSchema": {"type": "object"}}]},
            "tools/call": {"content": [{"type": "text", "text": "hello"}]},
        }
        if "id" not in body:
            return self.answer(202)
        result = results.get(body["method"])
        answer = {"jsonrpc": "2.0", "id": body["id"], **({"result": result} if result else {"error": {"code": -32601, "message": "no"}})}
        data = json.dumps(answer).encode()
        if "messages" in self.path:
            self.server.events.put(data)
            return self.answer(202)
        self.answer(200, data, Content_Type="application/json", Mcp_Session_Id="1")

def web(host="127.0.0.1"):
    server = Web((host, 0), Handler)
    server.seen, server.target, server.silent, server.forgets = [], "", (), False
    server.kept, server.release, server.events = threading.Event(), threading.Event(), queue.Queue()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server, f"http://{host}:{server.server_address[1]}"
"""


def web_program(body: str) -> str:
    """A program with such a server."""
    return program(body).replace("async def main", WEB + "\nasync def main", 1)


@pytest.mark.parametrize(("kind", "path"), [("streamableHttp", "/json"), ("sse", "/sse")])
def test_a_redirect_is_followed_only_to_where_nanobot_goes(
    nanobot: UnderNanobot, kind: str, path: str
) -> None:
    nanobot.run(
        web_program(
            f"""
            server, address = web()
            allowed, near = web()
            forbidden, far = web("127.0.0.2")
            network.configure_ssrf_whitelist(["127.0.0.1/32"])
            entry = MCPServerConfig(type={kind!r}, url=address + "/redirect")
            registry = ToolRegistry()
            server.target = far + {path!r}
            assert await mcp.connect_mcp_servers({{"far": entry}}, registry) == {{}}
            assert registry.tool_names == [] and server.seen and forbidden.seen == []
            await until(lambda: any("127.0.0.2" in text for text in said))
            server.target = near + {path!r}
            connected = await mcp.connect_mcp_servers({{"near": entry}}, registry)
            assert await registry.execute("mcp_near_greet", {{}}) == "hello", said
            await connected["near"].aclose()
            """
        )
    )


@pytest.mark.parametrize(("kind", "path"), [("streamableHttp", "/json"), ("sse", "/sse")])
def test_a_proxy_of_the_environment_is_used_but_for_names_that_go_without(
    nanobot: UnderNanobot, kind: str, path: str
) -> None:
    nanobot.configure(options={"mcpServers": {"direct": {"startupWait": 2}}})
    nanobot.run(
        web_program(
            f"""
            proxy, address = web()
            os.environ.update(HTTP_PROXY=address, http_proxy=address, NO_PROXY="direct.invalid", no_proxy="direct.invalid")
            # What nanobot's own rules make of a name that cannot be resolved here is theirs.
            mcp.validate_url_target = lambda url, **more: (True, "")
            mcp.resolve_url_target = lambda url, **more: (True, "", ())
            registry = ToolRegistry()
            servers = {{
                name: MCPServerConfig(type={kind!r}, url=f"http://mcp.{{name}}.invalid" + {path!r})
                for name in ("proxied", "direct")
            }}
            connected = await mcp.connect_mcp_servers(servers, registry)
            assert list(connected) == ["proxied"], said
            assert await registry.execute("mcp_proxied_greet", {{}}) == "hello"
            assert proxy.seen and all(path.startswith("http://mcp.proxied.invalid/") for path in proxy.seen), proxy.seen
            await connected["proxied"].aclose()
            """
        )
    )


def test_a_server_over_http_that_never_answers_holds_nothing_up_for_ever(nanobot: UnderNanobot) -> None:
    nanobot.configure(options={"mcpServers": {"silent": {"startupWait": 1}}})
    nanobot.run(
        web_program(
            """
            server, address = web()
            network.configure_ssrf_whitelist(["127.0.0.0/8"])
            registry = ToolRegistry()
            servers = {"silent": MCPServerConfig(url=address + "/silent"), "well": MCPServerConfig(url=address + "/json")}
            provider = mcp.MCPProvider(servers, registry)
            await asyncio.wait_for(provider.connect(), 30)
            assert provider.connected_server_names == {"well"}
            assert await registry.execute("mcp_well_greet", {}) == "hello"
            await asyncio.wait_for(provider.aclose(), 15)
            server.release.set()
            """
        )
    )


def test_a_call_over_http_that_is_never_answered_ends_by_its_limit(nanobot: UnderNanobot) -> None:
    nanobot.run(
        web_program(
            """
            server, address = web()
            network.configure_ssrf_whitelist(["127.0.0.0/8"])
            server.silent = ("tools/call",)
            registry = ToolRegistry()
            entry = MCPServerConfig(url=address + "/json", tool_timeout=1)
            connected = await mcp.connect_mcp_servers({"web": entry}, registry)
            result = await asyncio.wait_for(registry.execute("mcp_web_greet", {}), 30)
            assert server.kept.is_set() and result.is_error and "timed out after 1s" in result, result
            server.release.set()
            await connected["web"].aclose()
            """
        )
    )


def test_a_cancelled_connect_takes_back_what_was_there_already(nanobot: UnderNanobot) -> None:
    nanobot.run(
        program(
            """
            from nanobot_tools.compat._pool import find_pool
            registry = ToolRegistry()
            write = "import os, time; open('new', 'w').write(str(os.getpid())); os.rename('new', 'pid'); time.sleep(60)"
            silent = MCPServerConfig(command=sys.executable, args=["-c", write], cwd=os.getcwd())
            connecting = asyncio.create_task(mcp.connect_mcp_servers({"well": echo(), "silent": silent}, registry))
            well = lambda: find_pool(registry) and find_pool(registry).get("well")
            await until(lambda: well() and well().state == "ready" and os.path.exists("pid"))
            pids = [well().pid, int(open("pid").read())]
            assert all(lives(pid) for pid in pids) and not connecting.done()
            connecting.cancel()
            try:
                await connecting
                raise AssertionError("it was not cancelled")
            except asyncio.CancelledError:
                pass
            assert registry.tool_names == []
            await until(lambda: not any(lives(pid) for pid in pids))
            """
        )
    )


def test_closing_while_a_session_is_being_renewed_over_http_ends_the_call_and_nothing_else(
    nanobot: UnderNanobot,
) -> None:
    nanobot.run(
        web_program(
            """
            unhandled = []
            asyncio.get_running_loop().set_exception_handler(lambda loop, context: unhandled.append(context))
            server, address = web()
            network.configure_ssrf_whitelist(["127.0.0.0/8"])
            registry = ToolRegistry()
            provider = mcp.MCPProvider({"web": MCPServerConfig(url=address + "/json")}, registry)
            await provider.connect()
            assert await registry.execute("mcp_web_greet", {}) == "hello"
            server.silent, server.forgets = ("initialize",), True
            call = asyncio.create_task(registry.get("mcp_web_greet").execute())
            await until(server.kept.is_set)
            assert not call.done()
            await asyncio.wait_for(provider.aclose(), 15)
            result = await asyncio.wait_for(call, 15)
            assert isinstance(result, str) and result != "hello", result
            assert unhandled == [] and registry.tool_names == []
            server.release.set()
            """
        )
    )


def test_closing_while_a_session_is_being_renewed_ends_the_call_and_nothing_else(
    nanobot: UnderNanobot,
) -> None:
    nanobot.run(
        program(
            """
            unhandled = []
            asyncio.get_running_loop().set_exception_handler(lambda loop, context: unhandled.append(context))
            registry = ToolRegistry()
            provider = mcp.MCPProvider({"echo": echo()}, registry)
            await provider.connect()
            tool = registry.get("mcp_echo_echo")
            pid = pid_of(provider._connections, "echo")
            os.kill(pid, 19)
            call = asyncio.create_task(tool.execute(text="second"))
            await asyncio.sleep(0.1)
            os.kill(pid, 9)
            await asyncio.wait_for(provider.aclose(), 15)
            result = await asyncio.wait_for(call, 15)
            assert isinstance(result, str)
            assert unhandled == [] and registry.tool_names == []
            """
        )
    )


def test_commands_that_windows_starts_by_a_shell_are_started_by_it(nanobot: UnderNanobot) -> None:
    nanobot.run(
        program(
            r"""
            from types import SimpleNamespace
            from nanobot_tools.compat import _mcp, _options
            windows = SimpleNamespace(name="nt", environ={"COMSPEC": "C:\\cmd.exe"})
            _mcp.os = mcp.os = windows
            mcp.shutil = SimpleNamespace(which=lambda command, path=None: "C:\\nodejs\\npx.cmd")
            entry = await _mcp._entry(mcp, "npx", MCPServerConfig(command="npx", args=["-y", "server"]), _options.read())
            assert (entry["command"], entry["args"]) == ("C:\\cmd.exe", ["/d", "/c", "npx", "-y", "server"]), entry
            """
        )
    )


def test_each_test_of_nanobots_that_cannot_pass_has_one_of_ours() -> None:
    listed = tomllib.loads((ROOT / "scripts/nanobot_tests_expected.toml").read_text(encoding="utf-8"))["test"]
    assert len(listed) <= 24
    assert len({item["id"] for item in listed}) == len(listed)
    for item in listed:
        path, _, name = item["promised_by"].partition("::")
        assert f"def {name.partition('[')[0]}(" in (ROOT / path).read_text(encoding="utf-8"), item
