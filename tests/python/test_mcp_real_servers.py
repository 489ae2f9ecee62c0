"""Servers that others wrote are understood, over every transport and in both eras of the protocol."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import http.server
import json
import logging
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from nanobot_tools import MCPConnectionError, MCPError, ToolRegistry, ToolTimeoutError
from nanobot_tools.mcp import MCPCallbacks, MCPConnection, MCPToolWrapper, connect_mcp_server
from real_servers import (
    GENEROUS,
    LEGACY,
    MODERN,
    everything_over,
    listening,
    raw_tools,
    rust,
    servers,
)

LISTED = ["everything", "filesystem", "memory", "git", "time", "fetch", "sqlite"]
ALL = [*LISTED, "sequential-thinking", "rust"]
TRANSPORTS = ["stdio", "sse", "streamableHttp"]


@contextlib.asynccontextmanager
async def connected(
    name: str, entry: dict[str, Any], callbacks: MCPCallbacks | None = None
) -> AsyncIterator[tuple[MCPConnection, ToolRegistry]]:
    registry = ToolRegistry()
    connection = await asyncio.wait_for(
        connect_mcp_server(name, entry, registry=registry, callbacks=callbacks), GENEROUS
    )
    async with connection:
        yield connection, registry
    assert len(registry) == 0


async def eventually(holds: Callable[[], bool], what: str) -> None:
    """Wait for what a notification brings about."""
    deadline = asyncio.get_running_loop().time() + GENEROUS
    while not holds():
        assert asyncio.get_running_loop().time() < deadline, what
        await asyncio.sleep(0.02)


def texts(result: dict[str, Any]) -> list[str]:
    assert not result.get("isError"), result
    return [block["text"] for block in result["content"] if block["type"] == "text"]


# ---- every server ----


async def call_one(name: str, folder: Path, registry: ToolRegistry) -> str:
    """A call through the registry, as a model makes it: the answer that shows that it was carried out."""

    async def call(tool: str, **arguments: Any) -> str:
        result = await registry.execute(f"mcp_{name}_{tool}", arguments)
        assert not getattr(result, "is_error", False), result
        return str(result)

    match name:
        case "everything":
            return await call("get-sum", a="1", b=2)
        case "filesystem":
            (folder / "note.txt").write_text("hello")
            return await call("read_text_file", path=str(folder / "note.txt"))
        case "memory":
            entity = {"name": "Ada", "entityType": "person", "observations": ["counts"]}
            await call("create_entities", entities=[entity])
            return await call("search_nodes", query="Ada")
        case "git":
            return await call("git_diff_unstaged", repo_path=str(folder / "repository"))
        case "time":
            return await call("get_current_time", timezone="UTC")
        case "fetch":
            with page("<html><body><main><p>The page of the test.</p></main></body></html>") as url:
                return str(await registry.execute("mcp_fetch_fetch", {"url": url, "raw": True}))
        case "sqlite":
            await call("create_table", query="CREATE TABLE t (x INTEGER)")
            await call("write_query", query="INSERT INTO t VALUES (42)")
            return await call("read_query", query="SELECT x FROM t")
        case "sequential-thinking":
            return await call(
                "sequentialthinking",
                thought="Think.",
                nextThoughtNeeded=False,
                thoughtNumber=1,
                totalThoughts=1,
            )
        case _:
            return await call("echo", text="hello")


ANSWERS = {
    "everything": "The sum of 1 and 2 is 3.",
    "filesystem": "hello",
    "memory": "Ada",
    "git": "+second",
    "time": "UTC",
    "fetch": "The page of the test.",
    "sqlite": "42",
    "sequential-thinking": '"thoughtNumber": 1',
    "rust": "hello",
}


@pytest.mark.parametrize("name", ALL)
async def test_a_server_is_connected_in_its_newest_era_listed_and_called(name: str, tmp_path: Path) -> None:
    server = servers(name, tmp_path)
    async with connected(name, server.entry()) as (connection, registry):
        assert connection.state == "ready"
        assert connection.protocol_version == server.version
        assert connection.server_info[0] == server.info
        assert "tools" in connection.capabilities
        await connection.ping()
        assert ANSWERS[name] in await call_one(name, tmp_path, registry)
    assert connection.state == "closed"


@pytest.mark.parametrize("name", ALL)
async def test_a_server_can_be_pinned_to_an_older_version(name: str, tmp_path: Path) -> None:
    server = servers(name, tmp_path)
    for version in {server.older, LEGACY}:
        async with connected(name, server.entry(protocol=version)) as (connection, registry):
            assert connection.protocol_version == version
            assert ANSWERS[name] in await call_one(name, tmp_path, registry)
            if name == "memory":
                (tmp_path / "memory.jsonl").unlink()
            if name == "sqlite":
                await registry.execute("mcp_sqlite_write_query", {"query": "DROP TABLE t"})


@pytest.mark.parametrize("name", LISTED)
async def test_the_tools_are_those_that_the_server_lists(name: str, tmp_path: Path) -> None:
    wanted = {tool["name"]: tool for tool in raw_tools(name)}
    async with connected(name, servers(name, tmp_path).entry()) as (connection, registry):
        listed = {tool["name"]: tool for tool in await connection.list_tools()}
        assert list(listed) == list(wanted)
        for raw, tool in listed.items():
            for member in ("description", "inputSchema", "annotations"):
                assert tool.get(member) == wanted[raw].get(member), (raw, member)
        for raw, tool in wanted.items():
            found = registry.get(f"mcp_{name}_{raw}")
            assert found is not None, raw
            assert found.description == tool["description"]
            assert found.read_only is bool(tool.get("annotations", {}).get("readOnlyHint"))


async def test_a_server_that_cannot_speak_the_pinned_version_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MCPConnectionError, match="'old'"):
        await connect_mcp_server("old", servers("everything", tmp_path).entry(protocol=MODERN))


@contextlib.contextmanager
def page(body: str) -> Iterator[str]:
    """A page on loopback, for as long as the block runs."""

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *arguments: object) -> None:
            """Say nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


# ---- server-everything, over its three transports ----


@pytest.fixture(scope="module", params=TRANSPORTS)
def everything(request: pytest.FixtureRequest) -> Iterator[dict[str, Any]]:
    """An entry for server-everything; over HTTP one process serves all tests."""
    mode: str = request.param
    if mode == "stdio":
        yield servers("everything", Path()).entry()
        return
    with everything_over(mode) as url:
        yield {"type": mode, "url": url, "allowPrivate": True}


async def test_everything_has_its_tools_resources_and_prompts(everything: dict[str, Any]) -> None:
    async with connected("srv", everything) as (connection, registry):
        assert (connection.pid is not None) == ("command" in everything)
        assert connection.protocol_version == LEGACY
        assert connection.instructions
        assert [len(await listed()) for listed in (
            connection.list_tools, connection.list_resources,
            connection.list_resource_templates, connection.list_prompts,
        )] == [13, 7, 2, 4]  # fmt: skip
        names = registry.tool_names
        kinds = [
            len([n for n in names if n.startswith(f"mcp_srv_{kind}_")]) for kind in ("resource", "prompt")
        ]
        assert kinds == [7, 4]
        assert len(names) == 13 + 7 + 4
        prompt = await registry.execute("mcp_srv_prompt_args-prompt", {"city": "Bern"})
        assert "Bern" in prompt
        resource = next(name for name in names if name.startswith("mcp_srv_resource_"))
        assert len(await registry.execute(resource, {})) > 20


async def test_everything_reads_resources_gets_prompts_and_completes(everything: dict[str, Any]) -> None:
    async with connected("srv", everything) as (connection, _):
        text = await connection.read_resource("demo://resource/dynamic/text/1")
        assert "plaintext resource" in text["contents"][0]["text"]
        blob = await connection.read_resource("demo://resource/dynamic/blob/2")
        assert b"Resource 2" in base64.b64decode(blob["contents"][0]["blob"])
        with pytest.raises(MCPError) as caught:
            await connection.read_resource("demo://nowhere")
        assert caught.value.rpc_code == -32602
        prompt = await connection.get_prompt("args-prompt", {"city": "Bern", "state": "BE"})
        assert "Bern, BE" in prompt["messages"][0]["content"]["text"]
        ref = {"type": "ref/prompt", "name": "completable-prompt"}
        found = await connection.complete(ref, {"name": "department", "value": "S"})
        assert found["completion"]["values"] == ["Sales", "Support"]
        settled = {"arguments": {"department": "Sales"}}
        found = await connection.complete(ref, {"name": "name", "value": ""}, context=settled)
        assert found["completion"]["values"] == ["David", "Eve", "Frank"]


async def test_everything_gives_results_of_every_kind(everything: dict[str, Any]) -> None:
    async with connected("srv", everything) as (connection, registry):
        assert await registry.execute("mcp_srv_echo", {"message": "häß\u2028lich"}) == "Echo: häß\u2028lich"
        image = await connection.call_tool("get-tiny-image")
        assert [block["type"] for block in image["content"]] == ["text", "image", "text"]
        shown = await registry.execute("mcp_srv_get-tiny-image", {})
        assert "iVBOR" not in shown
        annotated = await connection.call_tool(
            "get-annotated-message", {"messageType": "error", "includeImage": True}
        )
        assert annotated["content"][0]["annotations"]["priority"] == 1
        weather = await connection.call_tool("get-structured-content", {"location": "New York"})
        assert weather["structuredContent"]["temperature"] == 33
        links = await connection.call_tool("get-resource-links", {"count": 2})
        assert [block["type"] for block in links["content"]].count("resource_link") == 2
        assert "demo://resource/" in await registry.execute("mcp_srv_get-resource-links", {"count": 2})
        for kind, member in (("Text", "text"), ("Blob", "blob")):
            result = await connection.call_tool(
                "get-resource-reference", {"resourceType": kind, "resourceId": 1}
            )
            assert result["content"][1]["resource"][member]
        wrong = await connection.call_tool("get-sum", {"a": "x"})
        assert wrong["isError"]
        gzipped = {"name": "x.gz", "data": "data:text/plain,hello", "outputType": "resource"}
        result = await connection.call_tool("gzip-file-as-resource", gzipped)
        assert result["content"][0]["resource"]["mimeType"] == "application/gzip"


async def test_everything_reports_progress_and_hears_of_cancelling(everything: dict[str, Any]) -> None:
    async with connected("srv", everything) as (connection, registry):
        seen: list[tuple[float, float | None]] = []
        result = await connection.call_tool(
            "trigger-long-running-operation",
            {"duration": 0.4, "steps": 4},
            progress=lambda done, total, _: seen.append((done, total)),
        )
        assert "Duration: 0.4 seconds" in texts(result)[0]
        assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]
        long = {"duration": 50, "steps": 2}
        with pytest.raises(ToolTimeoutError):
            await connection.call_tool("trigger-long-running-operation", long, timeout=0.2)
        task = asyncio.create_task(registry.execute("mcp_srv_trigger-long-running-operation", long))
        await asyncio.sleep(0.2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await registry.execute("mcp_srv_echo", {"message": "next"}) == "Echo: next"


async def test_calls_to_everything_in_parallel_do_not_wait_for_each_other(everything: dict[str, Any]) -> None:
    async with connected("srv", everything) as (connection, registry):
        slow = {"duration": 30, "steps": 1}
        waiting = asyncio.create_task(connection.call_tool("trigger-long-running-operation", slow))
        quick = [registry.execute("mcp_srv_echo", {"message": str(i)}) for i in range(40)]
        assert await asyncio.wait_for(asyncio.gather(*quick), GENEROUS / 3) == [
            f"Echo: {i}" for i in range(40)
        ]
        assert not waiting.done()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)


async def test_everything_changes_its_list_at_the_start_and_asks_the_client(
    everything: dict[str, Any], tmp_path: Path
) -> None:
    asked: list[tuple[str, str]] = []

    async def sample(server: str, params: dict[str, Any]) -> dict[str, Any]:
        asked.append((server, params["messages"][0]["content"]["text"]))
        return {"role": "assistant", "content": {"type": "text", "text": "a poem"}, "model": "test"}

    def elicit(server: str, params: dict[str, Any]) -> dict[str, Any] | str:
        asked.append((server, params["message"]))
        return "decline" if params.get("mode") == "url" else {"action": "accept", "content": {"name": "Ada"}}

    callbacks = MCPCallbacks(sampling=sample, elicitation=elicit, roots=[tmp_path])
    async with connected("srv", everything, callbacks) as (connection, registry):
        conditional = [
            "get-roots-list",
            "trigger-elicitation-request",
            "trigger-sampling-request",
            "trigger-url-elicitation",
        ]
        await eventually(
            lambda: all(f"mcp_srv_{name}" in registry.tool_names for name in conditional),
            "the registry does not follow",
        )
        assert len([tool for tool in connection.tools if isinstance(tool, MCPToolWrapper)]) == 17
        assert len(await connection.list_tools()) == 17
        sampled = texts(
            await connection.call_tool("trigger-sampling-request", {"prompt": "Write.", "maxTokens": 9})
        )
        assert "a poem" in sampled[0]
        elicited = texts(await connection.call_tool("trigger-elicitation-request"))
        # What the user left out has the schema's defaults.
        assert "- Name: Ada" in elicited[1]
        assert "- Favorite Integer: 42" in elicited[1]
        declined = await connection.call_tool(
            "trigger-url-elicitation", {"url": "https://example.org/sign-in"}
        )
        assert "decline" in json.dumps(declined)
        roots = texts(await connection.call_tool("get-roots-list"))
        assert tmp_path.as_uri() in roots[0]
        assert [server for server, _ in asked] == ["srv"] * 3
        assert "Write." in asked[0][1]


async def test_everything_tells_of_resources_that_were_subscribed_to(everything: dict[str, Any]) -> None:
    updated: list[tuple[str, str]] = []
    callbacks = MCPCallbacks(resource_updated=lambda server, uri: updated.append((server, uri)))
    async with connected("srv", everything, callbacks) as (connection, _):
        uri = "demo://resource/dynamic/text/1"
        await connection.subscribe_resource(uri)
        await connection.call_tool("toggle-subscriber-updates")
        await eventually(lambda: ("srv", uri) in updated, "no update")
        await connection.unsubscribe_resource(uri)
        await connection.call_tool("toggle-subscriber-updates")


async def test_what_everything_logs_goes_to_a_logger_of_its_own(
    everything: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, "nanobot_tools.mcp.server.srv"):
        async with connected("srv", everything) as (connection, _):
            await connection.set_logging_level("debug")
            await connection.subscribe_resource("demo://resource/dynamic/text/1")

            def logged() -> bool:
                return any(
                    record.name == "nanobot_tools.mcp.server.srv" and "Subscribe" in record.getMessage()
                    for record in caplog.records
                )

            await eventually(logged, "nothing is logged")


# ---- what single servers do ----


async def test_a_filesystem_server_without_a_folder_works_in_the_clients_roots(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("hello")
    entry = servers("filesystem", tmp_path).entry()
    entry["args"] = entry["args"][:-1]
    async with connected("files", entry, MCPCallbacks(roots=[tmp_path])) as (connection, registry):

        async def allowed() -> bool:
            return str(tmp_path) in json.dumps(await connection.call_tool("list_allowed_directories"))

        for _ in range(500):
            if await allowed():
                break
            await asyncio.sleep(0.02)
        arguments = {"path": str(tmp_path / "note.txt")}
        assert "hello" in await registry.execute("mcp_files_read_text_file", arguments)
        outside = await registry.execute("mcp_files_read_text_file", {"path": "/etc/hostname"})
        assert getattr(outside, "is_error", False)


async def test_a_sqlite_server_has_a_resource_that_changes_and_a_prompt(tmp_path: Path) -> None:
    async with connected("db", servers("sqlite", tmp_path).entry()) as (connection, _):
        await connection.call_tool("append_insight", {"insight": "Numbers grow."})
        memo = await connection.read_resource("memo://insights")
        assert "Numbers grow." in memo["contents"][0]["text"]
        [prompt] = await connection.list_prompts()
        filled = await connection.get_prompt(prompt["name"], {"topic": "bees"})
        assert "bees" in filled["messages"][0]["content"]["text"]


async def test_a_fetch_server_offers_its_prompt_and_says_why_a_call_failed(tmp_path: Path) -> None:
    async with connected("web", servers("fetch", tmp_path).entry()) as (connection, registry):
        assert [prompt["name"] for prompt in await connection.list_prompts()] == ["fetch"]
        assert "mcp_web_prompt_fetch" in registry.tool_names
        failed = await registry.execute("mcp_web_fetch", {"url": "http://127.0.0.1:9/"})
        assert getattr(failed, "is_error", False)
        assert "127.0.0.1" in failed


# ---- the Rust SDK's server, in both eras ----


@pytest.fixture(scope="module", params=["stdio", "http"])
def rust_server(request: pytest.FixtureRequest) -> Iterator[dict[str, Any]]:
    """An entry for the server that is made with the Rust SDK."""
    if request.param == "stdio":
        yield servers("rust", Path()).entry()
        return
    with listening([*rust("rmcp_server"), "http"]) as url:
        yield {"url": url, "allowPrivate": True}


@pytest.mark.parametrize("version", [None, MODERN, "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"])
async def test_the_rust_server_speaks_every_version(rust_server: dict[str, Any], version: str | None) -> None:
    entry = rust_server if version is None else {**rust_server, "protocol": version}
    async with connected("rs", entry) as (connection, registry):
        assert connection.protocol_version == (version or MODERN)
        assert connection.instructions == "Ask for what you need."
        # On two pages.
        assert [tool["name"] for tool in await connection.list_tools()] == ["echo", "ask", "count", "region"]
        assert await registry.execute("mcp_rs_echo", {"text": "hi"}) == "hi"
        seen: list[float] = []
        await connection.call_tool("count", {"to": 3}, progress=lambda done, *_: seen.append(done))
        assert seen == [1, 2, 3]
        assert await registry.execute("mcp_rs_resource_one", {}) == "a note"
        assert "Greet Ada." in await registry.execute("mcp_rs_prompt_greet", {"who": "Ada"})
        ref = {"type": "ref/prompt", "name": "greet"}
        found = await connection.complete(ref, {"name": "who", "value": "A"})
        assert found["completion"]["values"] == ["Ada", "Alan"]
        [template] = await connection.list_resource_templates()
        assert template["uriTemplate"] == "note://{name}"


async def test_a_result_that_wants_input_first_is_one_call_to_the_caller(rust_server: dict[str, Any]) -> None:
    def elicit(server: str, params: dict[str, Any]) -> dict[str, Any]:
        assert params["message"] == "Which city?"
        return {"action": "accept", "content": {"city": "Bern"}}

    async with connected("rs", rust_server, MCPCallbacks(elicitation=elicit)) as (connection, registry):
        [text] = texts(await connection.call_tool("ask"))
        answer = json.loads(text)
        assert answer["state"] == "state of the server"
        assert answer["answers"]["city"]["content"] == {"city": "Bern"}
        assert "Bern" in await registry.execute("mcp_rs_ask", {})


async def test_a_parameter_travels_in_the_header_that_its_schema_names(rust_server: dict[str, Any]) -> None:
    async with connected("rs", rust_server) as (_, registry):
        over_http = "url" in rust_server
        wanted = "eu-west" if over_http else "no header"
        assert await registry.execute("mcp_rs_region", {"region": "eu-west"}) == wanted
