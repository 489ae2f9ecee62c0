"""Runs in the reference's interpreter, with this package on its path: our wrappers on the SDK's sessions.

Each function is one promise, checked against a server of the SDK on streams in memory, beside nanobot's own
wrappers on the same session. Prints a JSON object of the names and what went wrong, null if nothing did.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import traceback
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mcp.types as types
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import McpError
from mcp.shared.memory import create_connected_server_and_client_session
from nanobot.agent.tools import mcp as theirs
from nanobot_tools import ToolCall, ToolExecutor, ToolRegistry, is_tool_error_result
from nanobot_tools import mcp as ours

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mP8/x8AAwMCAO+/p9sAAAAASUVORK5CYII="
PROMISES = []


def promise(function: Any) -> Any:
    PROMISES.append(function)
    return function


SCHEMA = {
    "type": "object",
    "properties": {
        "n": {"anyOf": [{"type": "integer"}, {"type": "null"}], "description": "How many."},
        "tree": {"type": "object", "properties": {"next": {"$ref": "#/properties/tree"}}},
    },
    "required": ["n"],
}


def make_server(cancelled: list[str]) -> Server:
    server = Server("test")
    only_read = types.ToolAnnotations(readOnlyHint=True)
    any_object = {"type": "object"}

    @server.list_tools()
    async def list_tools() -> list[types.Tool]:
        names = ("blocks", "fails", "refuses", "slow", "structured")
        tools = [types.Tool(name=name, inputSchema=any_object) for name in names]
        tools.append(types.Tool(name="count_up", description="Counts.", inputSchema=SCHEMA))
        tools.append(types.Tool(name="look", inputSchema=any_object, annotations=only_read))
        return tools

    async def call(request: types.CallToolRequest) -> types.ServerResult:
        name, arguments = request.params.name, request.params.arguments or {}
        content: list[Any] = [types.TextContent(type="text", text=json.dumps(arguments, sort_keys=True))]
        fields: dict[str, Any] = {}
        if name == "refuses":
            raise McpError(types.ErrorData(code=-32001, message="not today"))
        if name == "fails":
            fields["isError"] = True
        if name == "structured":
            content, fields["structuredContent"] = [], {"n": 1}
        if name == "slow":
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                cancelled.append(name)
                raise
        if name == "blocks":
            text = types.TextResourceContents(uri="file:///t", text="inside")
            blob = types.BlobResourceContents(uri="file:///b", blob=PNG, mimeType="application/zip")
            content += [
                types.ImageContent(type="image", data=PNG, mimeType="image/png"),
                types.AudioContent(type="audio", data=PNG, mimeType="audio/wav"),
                types.EmbeddedResource(type="resource", resource=text),
                types.EmbeddedResource(type="resource", resource=blob),
                types.ResourceLink(type="resource_link", uri="file:///l", name="link"),
            ]
        return types.ServerResult(types.CallToolResult(content=content, **fields))

    server.request_handlers[types.CallToolRequest] = call

    @server.list_resources()
    async def list_resources() -> list[types.Resource]:
        return [types.Resource(uri=f"file:///{name}", name=name) for name in ("text", "blob", "gone")]

    async def read(request: types.ReadResourceRequest) -> types.ServerResult:
        uri = request.params.uri
        if str(uri).endswith("gone"):
            raise McpError(types.ErrorData(code=-32002, message="Resource not found"))
        one: Any = types.TextResourceContents(uri=uri, text="content")
        if str(uri).endswith("blob"):
            one = types.BlobResourceContents(uri=uri, blob="QUJDRA==")
        return types.ServerResult(types.ReadResourceResult(contents=[one]))

    server.request_handlers[types.ReadResourceRequest] = read

    @server.list_prompts()
    async def list_prompts() -> list[types.Prompt]:
        arguments = [
            types.PromptArgument(name="topic", description="What of.", required=True),
            types.PromptArgument(name="style"),
        ]
        return [types.Prompt(name="write", description="Writes.", arguments=arguments)]

    @server.get_prompt()
    async def get_prompt(name: str, arguments: dict[str, str] | None) -> types.GetPromptResult:
        text = types.TextContent(type="text", text=f"{name}: {sorted((arguments or {}).items())}")
        if arguments and arguments.get("topic") == "bad":
            raise McpError(types.ErrorData(code=-32602, message="bad topic"))
        message = types.PromptMessage(role="user", content=text)
        return types.GetPromptResult(messages=[message, message])

    return server


@asynccontextmanager
async def connected(cancelled: list[str] | None = None) -> Any:
    async with create_connected_server_and_client_session(make_server(cancelled or [])) as session:
        yield session


async def tools(session: Any, module: Any, timeout: float = 20) -> dict[str, Any]:
    listed = (await session.list_tools()).tools
    return {tool.name: module.MCPToolWrapper(session, "srv", tool, tool_timeout=timeout) for tool in listed}


def described(wrapper: Any) -> tuple[Any, ...]:
    return wrapper.name, wrapper.description, wrapper.parameters


@promise
async def the_sdks_definitions_are_described_as_nanobot_describes_them() -> None:
    async with connected() as session:
        mine, reference = await tools(session, ours), await tools(session, theirs)
        assert [described(w) for w in mine.values()] == [described(w) for w in reference.values()]
        for item in (await session.list_resources()).resources:
            made = [module.MCPResourceWrapper(session, "srv", item) for module in (ours, theirs)]
            assert described(made[0]) == described(made[1])
        for item in (await session.list_prompts()).prompts:
            made = [module.MCPPromptWrapper(session, "srv", item) for module in (ours, theirs)]
            assert described(made[0]) == described(made[1])
        assert mine["look"].read_only
        assert not mine["fails"].read_only


@promise
async def calls_through_the_registry_reach_the_server_cast_and_validated() -> None:
    async with connected() as session:
        registry = ToolRegistry()
        for wrapper in (await tools(session, ours)).values():
            registry.register(wrapper)
        assert await registry.execute("mcp_srv_count_up", {"n": "5"}) == '{"n": 5}'
        assert await registry.execute("mcp_srv_count_up", {"n": None}) == '{"n": null}'
        assert "Invalid parameters" in await registry.execute("mcp_srv_count_up", {"n": "five"})
        outcomes = await ToolExecutor(registry).run([ToolCall("mcp_srv_look", {"i": i}) for i in range(30)])
        assert [outcome.result for outcome in outcomes] == [f'{{"i": {i}}}' for i in range(30)]


@promise
async def text_errors_and_structured_content_are_shown() -> None:
    async with connected() as session:
        made, reference = await tools(session, ours), await tools(session, theirs)
        for name in ("look", "fails"):
            result, expected = await made[name].execute(a=1), await reference[name].execute(a=1)
            assert result == expected
            assert is_tool_error_result(result) == (name == "fails")
        assert await made["structured"].execute() == '{"n":1}'
        result = await made["refuses"].execute()
        assert result == "(MCP tool call failed: not today [code -32001])"
        assert is_tool_error_result(result)


@promise
async def blocks_of_every_kind_are_shown_and_none_is_pasted() -> None:
    async with connected() as session:
        (item,) = [tool for tool in (await session.list_tools()).tools if tool.name == "blocks"]
        with tempfile.TemporaryDirectory() as folder:
            wrapper = ours.MCPToolWrapper(session, "srv", item, artifacts=folder)
            result = await wrapper.execute(prompt="a cat")
            assert not is_tool_error_result(result)
            assert PNG[:20] not in result
            shown = json.loads(result)
            (artifact,) = shown["artifacts"]
            assert artifact["prompt"] == "a cat"
            assert Path(artifact["path"]).is_relative_to(folder)
            assert "inside" in shown["text"]
            assert "file:///l" in shown["text"]


@promise
async def a_timeout_ends_the_call_and_leaves_the_session_usable() -> None:
    async with connected() as session:
        made = await tools(session, ours, timeout=0.05)
        reference = await tools(session, theirs, timeout=0.05)
        result = await made["slow"].execute()
        assert result == await reference["slow"].execute() == "(MCP tool call timed out after 0.05s)"
        assert await (await tools(session, ours))["look"].execute(a=2) == '{"a": 2}'


@promise
async def a_cancelled_caller_is_cancelled_and_the_session_stays_usable() -> None:
    async with connected() as session:
        made = await tools(session, ours)
        task = asyncio.create_task(made["slow"].execute())
        await asyncio.sleep(0.05)
        task.cancel()
        await asyncio.wait([task], timeout=20)
        assert task.cancelled()
        assert await made["look"].execute(a=3) == '{"a": 3}'


@promise
async def resources_are_read_and_those_that_are_gone_are_errors() -> None:
    async with connected() as session:
        listed = (await session.list_resources()).resources
        made = {item.name: ours.MCPResourceWrapper(session, "srv", item) for item in listed}
        assert await made["text"].execute() == "content"
        assert await made["blob"].execute() == "[Binary resource: 4 bytes]"
        result = await made["gone"].execute()
        assert result == "(MCP resource read failed: Resource not found [code -32002])"
        assert is_tool_error_result(result)


@promise
async def prompts_are_filled_as_nanobot_fills_them() -> None:
    async with connected() as session:
        (item,) = (await session.list_prompts()).prompts
        made, reference = [m.MCPPromptWrapper(session, "srv", item) for m in (ours, theirs)]
        for arguments in ({"topic": "rust"}, {"topic": "rust", "style": "dry"}, {"topic": "bad"}):
            assert await made.execute(**arguments) == await reference.execute(**arguments)
        assert is_tool_error_result(await made.execute(topic="bad"))


@promise
async def a_session_that_has_ended_is_replaced_once() -> None:
    async with connected() as session:
        wrapper, reference = (await tools(session, ours))["look"], (await tools(session, theirs))["look"]
    pauses = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    real, asyncio.sleep = asyncio.sleep, sleep
    try:
        result, expected = await wrapper.execute(), await reference.execute()
    finally:
        asyncio.sleep = real
    assert result == expected == "(MCP tool call failed after retry: ClosedResourceError)"
    assert pauses == [1, 1]
    async with connected() as session:
        fresh, asked = (await tools(session, ours))["look"], []

        async def reconnect(*arguments: Any) -> Any:
            asked.append(arguments)
            return fresh

        wrapper.set_reconnect_handler(reconnect)
        assert await wrapper.execute(a=4) == '{"a": 4}'
        assert asked == [("srv", "mcp_srv_look", wrapper)]
        assert wrapper._session is session


@promise
async def a_call_on_a_session_that_is_closed_in_the_middle_ends_with_its_time_limit() -> None:
    async with connected() as session:
        # The SDK itself would wait for the reply for ever.
        wrapper = (await tools(session, ours, timeout=0.2))["slow"]
        task = asyncio.create_task(wrapper.execute())
        await asyncio.sleep(0.05)
    await asyncio.wait([task], timeout=20)
    assert is_tool_error_result(task.result())
    assert task.result() == "(MCP tool call timed out after 0.2s)"


@promise
async def nanobots_provider_takes_our_wrappers_for_its_own() -> None:
    kept = {name: getattr(theirs, name) for name in ("_MCPWrapperBase", "MCPToolWrapper")}
    theirs._MCPWrapperBase, theirs.MCPToolWrapper = ours.wrappers._MCPWrapperBase, ours.MCPToolWrapper
    try:
        registry = theirs.ToolRegistry()
        wrapper = ours.MCPToolWrapper(None, "srv", SimpleNamespace(name="t", description="", inputSchema={}))
        registry.register(wrapper)
        theirs.MCPProvider({}, registry)._attach_reconnect_handlers(["srv"])
        assert wrapper._reconnect is not None
        assert theirs._unregister_server_tools(registry, "srv") == 1
    finally:
        for name, value in kept.items():
            setattr(theirs, name, value)


async def check(function: Any) -> str | None:
    try:
        await asyncio.wait_for(function(), 30)
    except Exception:
        return traceback.format_exc()
    return None


if __name__ == "__main__":
    from loguru import logger

    logger.remove()
    found = {function.__name__: asyncio.run(check(function)) for function in PROMISES}
    sys.stdout.write("\n" + json.dumps(found))
