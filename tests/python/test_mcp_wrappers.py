"""What the wrappers of MCP tools, resources and prompts promise for sessions that are not ours."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, MagicMock

import pytest
from mcp_servers import echo
from nanobot_tools import (
    MCPConnectionError,
    MCPError,
    Tool,
    ToolCall,
    ToolExecutor,
    ToolRegistry,
    connect_mcp_servers,
    is_tool_error_result,
)
from nanobot_tools.mcp import MCPPromptWrapper, MCPResourceWrapper, MCPToolWrapper
from pydantic import BaseModel, Field

HINT = "\n\n[Analyze the error above and try a different approach.]"
TRANSIENT = (
    "ClosedResourceError", "BrokenResourceError", "EndOfStream", "BrokenPipeError", "ConnectionResetError",
    "ConnectionRefusedError", "ConnectionAbortedError", "ConnectionError",
)  # fmt: skip

Wrapper = MCPToolWrapper | MCPResourceWrapper | MCPPromptWrapper


def tool_def(name: str = "demo", **fields: Any) -> Any:
    fields = {"description": "A demo.", "inputSchema": {"type": "object", "properties": {}}, **fields}
    return SimpleNamespace(name=name, **fields)


def texts(*items: Any) -> Any:
    return SimpleNamespace(content=[SimpleNamespace(type="text", text=item) for item in items])


def wrap(call: Any, timeout: float = 20, *, artifacts: Path | None = None, **fields: Any) -> MCPToolWrapper:
    """A wrapper around a session whose ``call_tool`` is this."""
    session = SimpleNamespace(call_tool=call)
    return MCPToolWrapper(session, "srv", tool_def(**fields), tool_timeout=timeout, artifacts=artifacts)


def returning(result: Any, artifacts: Path | None = None) -> MCPToolWrapper:
    return wrap(AsyncMock(return_value=result), artifacts=artifacts)


def raising(*effects: Any) -> MCPToolWrapper:
    return wrap(AsyncMock(side_effect=effects))


def each_kind(call: Any, timeout: float = 20) -> list[tuple[str, Wrapper]]:
    """One wrapper of each kind on a session that answers everything like this, and what it says it does."""
    session = SimpleNamespace(call_tool=call, read_resource=call, get_prompt=call)
    resource = SimpleNamespace(name="r", uri="file:///r", description="")
    prompt = SimpleNamespace(name="p", description=None, arguments=None)
    return [
        ("tool call", MCPToolWrapper(session, "srv", tool_def(), timeout)),
        ("resource read", MCPResourceWrapper(session, "srv", resource, timeout)),
        ("prompt call", MCPPromptWrapper(session, "srv", prompt, timeout)),
    ]


def files(folder: Path, suffix: str) -> list[Path]:
    return [path for path in folder.rglob("*") if path.suffix == suffix]


def read(path: Path) -> bytes:
    return path.read_bytes()


class McpError(Exception):
    """As the SDK's exception of that name."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.error = SimpleNamespace(code=code, message=message, data=None)


@pytest.fixture
def naps(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that were made, none of which takes any time."""
    made: list[float] = []
    sleep = asyncio.sleep

    async def nap(seconds: float) -> None:
        made.append(seconds)
        await sleep(0)

    monkeypatch.setattr("nanobot_tools.mcp._foreign.asyncio.sleep", nap)
    return made


# -- what a wrapper says of itself ------------------------------------------------------------------------


def test_wrappers_describe_themselves_as_the_reference_does() -> None:
    session = object()
    tool = MCPToolWrapper(session, "my server", tool_def("a.b", description=None))
    assert (tool.name, tool.description, tool.read_only) == ("mcp_my_server_a_b", "a.b", False)
    assert (tool._session, tool._server_name, tool._original_name) == (session, "my server", "a.b")
    assert (tool._tool_timeout, tool._reconnect) == (30, None)
    resource = MCPResourceWrapper(session, "srv", SimpleNamespace(name="r", uri="f:///x", description="It."))
    assert (resource.name, resource.read_only) == ("mcp_srv_resource_r", True)
    assert resource.description == "[MCP Resource] It.\nURI: f:///x"
    assert resource.parameters == {"type": "object", "properties": {}, "required": []}
    assert (resource._uri, resource._resource_timeout) == ("f:///x", 30)
    arguments = [
        SimpleNamespace(name="topic", description="What of.", required=True),
        SimpleNamespace(name="style", description=None, required=None),
    ]
    prompt = MCPPromptWrapper(session, "srv", SimpleNamespace(name="p", description="", arguments=arguments))
    assert (prompt.name, prompt.read_only) == ("mcp_srv_prompt_p", True)
    assert prompt.description == (
        "[MCP Prompt] p\nReturns a filled prompt template that can be used as a workflow guide."
    )
    assert prompt.parameters == {
        "type": "object",
        "properties": {"topic": {"type": "string", "description": "What of."}, "style": {"type": "string"}},
        "required": ["topic"],
    }
    assert (prompt._prompt_name, prompt._prompt_timeout) == ("p", 30)
    for wrapper in (tool, resource, prompt):
        assert isinstance(wrapper, Tool)
        assert wrapper._plugin_discoverable is False


def test_definitions_may_be_dicts_objects_or_models() -> None:
    class Definition(BaseModel):
        name: str
        description: str | None = None
        input_schema: dict[str, Any] = Field(alias="inputSchema")

    schema = {"type": "object", "properties": {"x": {"type": ["integer", "null"]}}}
    plain = {"name": "t", "description": "D", "inputSchema": schema}
    made = [
        MCPToolWrapper(None, "s", definition)
        for definition in (plain, SimpleNamespace(**plain), Definition.model_validate(plain))
    ]
    assert {(tool.name, tool.description) for tool in made} == {("mcp_s_t", "D")}
    expected = {
        "type": "object",
        "properties": {"x": {"type": "integer", "nullable": True}},
        "required": [],
    }
    assert [tool.parameters for tool in made] == [expected] * 3
    prompt = {"name": "p", "arguments": [{"name": "a", "required": True}]}
    assert MCPPromptWrapper(None, "s", prompt).parameters["required"] == ["a"]
    assert MCPResourceWrapper(None, "s", {"name": "r", "uri": "f:///r"})._uri == "f:///r"


@pytest.mark.parametrize("schema", [None, "x", [], {}, {"type": "string"}, {"properties": 3}, {"$ref": "#"}])
async def test_an_odd_schema_costs_nobody_a_call(schema: Any) -> None:
    wrapper = wrap(AsyncMock(return_value=texts("ok")), inputSchema=schema)
    assert wrapper.parameters["type"] == "object"
    registry = ToolRegistry()
    registry.register(wrapper)
    assert await registry.execute("mcp_srv_demo", {}) == "ok"


def test_a_schema_that_contains_itself_is_no_failure() -> None:
    schema: dict[str, Any] = {"type": "object"}
    schema["properties"] = {"self": schema}
    assert wrap(None, inputSchema=schema).parameters["type"] == "object"


def test_names_without_a_letter_that_providers_accept_stay_apart() -> None:
    kinds: list[Callable[[str], Wrapper]] = [
        lambda name: MCPToolWrapper(None, "s", {"name": name}),
        lambda name: MCPResourceWrapper(None, "s", {"name": name, "uri": "u"}),
        lambda name: MCPPromptWrapper(None, "s", {"name": name}),
    ]
    for make in kinds:
        one, two = make("\u67e5\u8be2").name, make("\u5929\u6c14").name
        assert one != two
        assert max(len(one), len(make("x" * 200).name)) <= 64


async def test_calls_are_checked_against_the_servers_own_schema() -> None:
    schema = {
        "type": "object",
        "properties": {"n": {"anyOf": [{"type": "integer"}, {"type": "null"}]}, "m": {"$ref": "#/x/m"}},
        "required": ["n"],
        "x": {"m": {"enum": ["fast", "slow"]}},
        "not": {"required": ["forbidden"]},
    }
    call = AsyncMock(return_value=texts("ok"))
    wrapper = wrap(call, inputSchema=schema)
    assert "not" not in wrapper.parameters
    registry = ToolRegistry()
    registry.register(wrapper)
    assert await registry.execute(wrapper.name, {"n": "5", "m": "slow"}) == "ok"
    call.assert_awaited_with("demo", arguments={"n": 5, "m": "slow"})
    assert await registry.execute(wrapper.name, {"n": None}) == "ok"
    for bad in ({"n": 1, "m": "other"}, {"n": 1, "forbidden": 1}, {}):
        refused = await registry.execute(wrapper.name, bad)
        assert is_tool_error_result(refused)
        assert "Invalid parameters" in refused
    assert wrapper.cast_params({"n": "5"}) == {"n": 5}
    assert wrapper.validate_params({"n": 1, "forbidden": 1}) != []
    assert call.await_count == 2


async def test_a_subclass_with_parameters_of_its_own_is_checked_against_those() -> None:
    class Narrow(MCPToolWrapper):
        @property
        def parameters(self) -> dict[str, Any]:
            return {"type": "object", "properties": {"x": {"const": 1}}}

    registry = ToolRegistry()
    registry.register(
        Narrow(SimpleNamespace(call_tool=AsyncMock(return_value=texts("ok"))), "srv", tool_def())
    )
    assert await registry.execute("mcp_srv_demo", {"x": 1}) == "ok"
    assert is_tool_error_result(await registry.execute("mcp_srv_demo", {"x": 2}))


async def test_tools_that_a_server_annotates_as_read_only_run_side_by_side() -> None:
    hints = [SimpleNamespace(readOnlyHint=True), {"readOnlyHint": True}, SimpleNamespace(read_only_hint=True)]
    assert [wrap(None, annotations=hint).concurrency_safe for hint in hints] == [True] * 3
    for hint in (None, {}, {"readOnlyHint": False}, {"readOnlyHint": "yes"}, MagicMock()):
        assert wrap(None, annotations=hint).read_only is False
    both = asyncio.Barrier(2)

    async def call(_name: str, arguments: Any) -> Any:
        async with both:
            return texts("met")

    registry = ToolRegistry()
    registry.register(wrap(call, annotations=hints[0]))
    outcomes = await ToolExecutor(registry).run([ToolCall("mcp_srv_demo", {})] * 2)
    assert [outcome.result for outcome in outcomes] == ["met", "met"]


async def test_an_argument_may_have_any_name() -> None:
    call = AsyncMock(return_value=texts("ok"))
    arguments = {"self": 1, "name": 2, "arguments": 3, "session": 4, "class": 5}
    assert await wrap(call).execute(**arguments) == "ok"
    call.assert_awaited_with("demo", arguments=arguments)


# -- failures ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TRANSIENT)
async def test_a_connection_that_hiccups_is_asked_once_more_after_a_second(
    name: str, naps: list[float]
) -> None:
    hiccup = type(name, (Exception,), {})
    for what, wrapper in each_kind(AsyncMock(side_effect=hiccup("gone"))):
        result = await wrapper.execute()
        assert result == f"(MCP {what} failed after retry: {name})"
        assert is_tool_error_result(result)
    assert naps == [1, 1, 1]
    wrapper = raising(hiccup("gone"), texts("back"))
    assert await wrapper.execute() == "back"
    assert naps == [1, 1, 1, 1]


async def test_what_the_server_says_is_shown_with_its_code() -> None:
    for what, wrapper in each_kind(AsyncMock(side_effect=McpError(-32602, "no such thing"))):
        result = await wrapper.execute()
        assert result == f"(MCP {what} failed: no such thing [code -32602])"
        assert is_tool_error_result(result)


async def test_of_other_exceptions_only_the_class_is_shown(caplog: pytest.LogCaptureFixture) -> None:
    class Unspeakable(Exception):
        def __str__(self) -> str:
            raise ValueError("no")

    odd = ValueError("x")
    odd.error = SimpleNamespace(code="E1", message="text")  # type: ignore[attr-defined]
    secret = RuntimeError("https://user:secret@host/")
    for failure in (secret, odd, Unspeakable(), ExceptionGroup("group", [secret])):
        for what, wrapper in each_kind(AsyncMock(side_effect=failure)):
            assert await wrapper.execute() == f"(MCP {what} failed: {type(failure).__name__})"
    assert "secret" not in caplog.text
    assert await wrap(None).execute() == "(MCP tool call failed: TypeError)"


async def test_our_own_errors_say_what_happened() -> None:
    assert await raising(MCPError(-1, "no")).execute() == "(MCP tool call failed: no [code -1])"
    lost = MCPConnectionError("the server exited with 1")
    assert await raising(lost).execute() == "(MCP tool call failed: the server exited with 1)"


async def test_a_call_that_takes_too_long_is_ended_on_the_other_side_too() -> None:
    ended = []

    async def call(*_args: Any, **_kwargs: Any) -> Any:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            ended.append(True)
            raise

    for what, wrapper in each_kind(call, timeout=0.01):
        result = await wrapper.execute()
        assert result == f"(MCP {what} timed out after 0.01s)"
        assert is_tool_error_result(result)
    assert ended == [True, True, True]
    # A session's own time limit is one as well, and is not tried again.
    wrapper = wrap(AsyncMock(side_effect=TimeoutError("mine")), timeout=30)
    assert await wrapper.execute() == "(MCP tool call timed out after 30s)"
    assert wrapper._session.call_tool.await_count == 1


async def test_a_cancelled_caller_is_cancelled_and_so_is_the_request() -> None:
    running, ended = asyncio.Event(), asyncio.Event()

    async def call(*_args: Any, **_kwargs: Any) -> Any:
        running.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    for _, wrapper in each_kind(call):
        running.clear()
        ended.clear()
        task = asyncio.create_task(wrapper.execute())
        await running.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ended.is_set()


async def test_a_cancellation_that_the_session_leaks_is_a_failure_of_the_call(naps: list[float]) -> None:
    for what, wrapper in each_kind(AsyncMock(side_effect=asyncio.CancelledError)):
        result = await wrapper.execute()
        assert result == f"(MCP {what} was cancelled)"
        assert is_tool_error_result(result)

    async def cancels_its_own_task(*_args: Any, **_kwargs: Any) -> Any:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.Event().wait()

    assert await wrap(cancels_its_own_task).execute() == "(MCP tool call was cancelled)"
    group = BaseExceptionGroup("group", [asyncio.CancelledError()])
    assert await raising(group).execute() == "(MCP tool call failed: BaseExceptionGroup)"
    assert naps == []


# -- a session that has ended -----------------------------------------------------------------------------

ENDED = [
    McpError(-32000, "Session terminated"),
    McpError(-32000, "Connection closed"),
    RuntimeError("peer: connection CLOSED"),
    BrokenPipeError(),
]


@pytest.mark.parametrize("ended", ENDED, ids=["terminated", "closed", "text", "transient"])
async def test_an_ended_session_is_replaced_and_the_call_made_once_more(
    ended: Exception, naps: list[float]
) -> None:
    for number, (_, wrapper) in enumerate(each_kind(AsyncMock(side_effect=ended))):
        answers = [
            texts("fresh"),
            SimpleNamespace(contents=[SimpleNamespace(text="fresh")]),
            SimpleNamespace(
                messages=[SimpleNamespace(role="user", content=SimpleNamespace(type="text", text="fresh"))]
            ),
        ]
        _, fresh = each_kind(AsyncMock(return_value=answers[number]))[number]
        reconnect = AsyncMock(return_value=fresh)
        wrapper.set_reconnect_handler(reconnect)
        assert await wrapper.execute() == "fresh"
        reconnect.assert_awaited_once_with("srv", wrapper.name, wrapper)
        # It stays with the new session.
        assert wrapper._session is fresh._session
        assert await wrapper.execute() == "fresh"
        assert reconnect.await_count == 1
    assert naps == []


async def test_a_call_is_replayed_only_once(naps: list[float]) -> None:
    wrapper, fresh = raising(McpError(-1, "Session terminated")), raising(McpError(-2, "Session terminated"))
    reconnect = AsyncMock(return_value=fresh)
    wrapper.set_reconnect_handler(reconnect)
    assert await wrapper.execute() == "(MCP tool call failed: Session terminated [code -2])"
    assert reconnect.await_count == 1
    # A hiccup of the new session still has its own retry.
    wrapper, fresh = raising(BrokenPipeError()), raising(BrokenPipeError(), texts("at last"))
    wrapper.set_reconnect_handler(AsyncMock(return_value=fresh))
    assert await wrapper.execute() == "at last"
    assert naps == [1]


@pytest.mark.parametrize(
    "reconnect",
    [
        AsyncMock(return_value=None),
        AsyncMock(return_value=SimpleNamespace()),
        AsyncMock(side_effect=OSError("down")),
    ],
    ids=["none", "no session", "raises"],
)
async def test_without_a_new_session_the_call_fails_as_it_did(
    reconnect: AsyncMock, naps: list[float]
) -> None:
    ended = McpError(-32000, "Connection closed")
    wrapper = raising(ended, ended)
    old = wrapper._session
    wrapper.set_reconnect_handler(reconnect)
    assert await wrapper.execute() == "(MCP tool call failed: Connection closed [code -32000])"
    assert wrapper._session is old
    wrapper = raising(BrokenPipeError(), texts("back"))
    wrapper.set_reconnect_handler(reconnect)
    assert await wrapper.execute() == "back"
    assert naps == [1]


async def test_no_new_session_is_asked_for_when_the_old_one_lives() -> None:
    reconnect = AsyncMock()
    wrapper = raising(McpError(-1, "no"), ValueError("x"))
    wrapper.set_reconnect_handler(reconnect)
    await wrapper.execute()
    await wrapper.execute()
    reconnect.assert_not_awaited()


# -- results ----------------------------------------------------------------------------------------------


@dataclass
class TextBlock:
    text: str
    type: str = "text"


class ModelBlock(BaseModel):
    type: str
    mime_type: str | None = Field(default=None, alias="mimeType")
    data: str | None = None
    text: str | None = None


PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mP8/x8AAwMCAO+/p9sAAAAASUVORK5CYII="


async def test_text_in_whatever_form_is_joined_by_newlines() -> None:
    blocks = [
        TextBlock("a"), {"type": "text", "text": "b"}, ModelBlock(type="text", text="c"), "d", 42,
        SimpleNamespace(text="e"), {"text": "f"},
    ]  # fmt: skip
    expected = "a\nb\nc\nd\n42\ne\nf"
    assert await returning(SimpleNamespace(content=blocks)).execute() == expected
    assert await returning({"content": blocks}).execute() == expected
    assert await returning(SimpleNamespace(content=tuple(blocks), isError=False)).execute() == expected
    assert await returning(SimpleNamespace(content="as it is")).execute() == "as it is"


async def test_data_is_never_pasted(tmp_path: Path) -> None:
    blocks = [
        {"data": PNG, "mime_type": "audio/wav"},
        ModelBlock(type="audio", data=PNG, mimeType="audio/wav"),
        SimpleNamespace(resource=SimpleNamespace(uri="f:///x", blob=PNG * 9, mimeType="application/zip")),
        SimpleNamespace(data=PNG * 9, mimeType="application/pdf"),
        {"type": "novel", "payload": PNG * 9},
    ]
    result = await returning(SimpleNamespace(content=blocks), tmp_path).execute()
    assert not is_tool_error_result(result)
    assert len(result.split("\n")) == len(blocks)
    assert PNG[:24] not in result


async def test_images_in_whatever_form_become_files(tmp_path: Path) -> None:
    blocks = [
        TextBlock("here"),
        SimpleNamespace(type="image", data=PNG, mimeType="image/png"),
        SimpleNamespace(data=PNG, mime_type="image/png"),
        {"type": "image", "data": PNG},
        SimpleNamespace(data=base64.b64decode(PNG)),
        SimpleNamespace(data="not base64!!", mimeType="image/png"),
    ]
    result = await returning(SimpleNamespace(content=blocks), tmp_path).execute(prompt="a cat", model=7)
    assert PNG[:24] not in result
    shown = json.loads(result)
    assert shown["text"] == "here\n(MCP tool returned an image that could not be stored)"
    assert len(shown["artifacts"]) == 4
    for artifact in shown["artifacts"]:
        assert read(Path(artifact["path"])) == base64.b64decode(PNG)
        assert Path(artifact["path"]).is_relative_to(tmp_path)
        assert artifact["prompt"] == "a cat"
        assert (artifact["model"], artifact["provider"]) == ("7", "mcp:srv")


async def test_a_result_that_is_too_long_is_shown_in_part(tmp_path: Path) -> None:
    session = SimpleNamespace(call_tool=AsyncMock(return_value=texts("word " * 10_000)))
    wrapper = MCPToolWrapper(session, "srv", tool_def(), artifacts=tmp_path, max_result_bytes=2000)
    result = await wrapper.execute()
    assert result.startswith("word word")
    assert len(result) < 4000
    (kept,) = files(tmp_path, ".txt")
    assert read(kept) == b"word " * 10_000
    assert str(kept) in result


async def test_resources_inside_a_result_and_links_are_shown() -> None:
    blocks = [
        SimpleNamespace(type="resource", resource=SimpleNamespace(uri="f:///x", text="inside")),
        SimpleNamespace(type="resource_link", uri="f:///y", name="why"),
        SimpleNamespace(uri="f:///z", name="zed"),
    ]
    result = await returning(SimpleNamespace(content=blocks)).execute()
    assert result.split("\n")[0] == "inside"
    assert "f:///y" in result
    assert "f:///z" in result


async def test_a_result_that_is_an_error_is_an_error_result() -> None:
    for result in (
        SimpleNamespace(content=[TextBlock("bad")], isError=True),
        SimpleNamespace(content=[TextBlock("bad")], is_error=True),
        {"content": [{"type": "text", "text": "bad"}], "isError": True},
    ):
        shown = await returning(result).execute()
        assert shown == "bad"
        assert is_tool_error_result(shown)
    fine = await returning(SimpleNamespace(content=[TextBlock("Error: not one")], isError=False)).execute()
    assert not is_tool_error_result(fine)


async def test_structured_content_is_shown_when_there_is_no_text() -> None:
    for result in (
        SimpleNamespace(content=[], structuredContent={"n": 12345678901234567890}),
        SimpleNamespace(content=None, structured_content={"n": 12345678901234567890}),
        {"structuredContent": {"n": 12345678901234567890}},
    ):
        assert await returning(result).execute() == '{"n":12345678901234567890}'


async def test_nothing_at_all_is_no_output() -> None:
    assert await returning(SimpleNamespace(content=[])).execute() == "(no output)"
    assert await returning({}).execute() == "(no output)"
    session = SimpleNamespace(
        read_resource=AsyncMock(return_value=SimpleNamespace(contents=[])),
        get_prompt=AsyncMock(return_value={"messages": []}),
    )
    assert await MCPResourceWrapper(session, "s", {"name": "r", "uri": "u"}).execute() == "(no output)"
    assert await MCPPromptWrapper(session, "s", {"name": "p"}).execute() == "(no output)"


async def test_content_that_cannot_be_understood_is_named() -> None:
    loop: list[Any] = []
    loop.append(loop)
    for what, wrapper in each_kind(AsyncMock(return_value=None)):
        result = await wrapper.execute()
        assert result == f"(MCP {what.split()[0]} returned malformed content: AttributeError)"
        assert is_tool_error_result(result)
    for result, kind in (
        (SimpleNamespace(content=None), "TypeError"),
        (SimpleNamespace(content=7), "TypeError"),
        (SimpleNamespace(other=1), "AttributeError"),
        ({"content": [{"type": "x", "y": loop}]}, "ValueError"),
    ):
        shown = await returning(result).execute()
        assert shown == f"(MCP tool returned malformed content: {kind})"
        assert is_tool_error_result(shown)


async def test_objects_without_meaning_are_shown_as_their_text() -> None:
    class Odd:
        def __str__(self) -> str:
            return "odd one"

    mock = MagicMock()
    mock.__str__.return_value = "a mock"  # type: ignore[attr-defined]
    blocks = [Odd(), mock, None, 1.5, {"type": 7}, SimpleNamespace(type="text", text=None), object]
    result = await returning(SimpleNamespace(content=blocks)).execute()
    assert result.startswith("odd one\na mock\nNone\n1.5\n")
    assert not is_tool_error_result(result)


async def test_resources_are_shown_as_text_and_data_by_its_size() -> None:
    contents = [
        SimpleNamespace(uri="f:///a", text="one"), {"uri": "f:///b", "text": "two"}, "three",
        SimpleNamespace(uri="f:///c", blob="QUJD"), {"blob": b"ABCDE"},
    ]  # fmt: skip
    for result in (SimpleNamespace(contents=contents), {"contents": contents}):
        session = SimpleNamespace(read_resource=AsyncMock(return_value=result))
        wrapper = MCPResourceWrapper(session, "s", {"name": "r", "uri": "f:///r"})
        shown = await wrapper.execute()
        assert shown == "one\ntwo\nthree\n[Binary resource: 3 bytes]\n[Binary resource: 5 bytes]"
        session.read_resource.assert_awaited_once_with("f:///r")


async def test_data_of_a_resource_is_kept_where_a_folder_is_named(tmp_path: Path) -> None:
    session = SimpleNamespace(read_resource=AsyncMock(return_value={"contents": [{"blob": b"ABCDE"}]}))
    wrapper = MCPResourceWrapper(session, "s", {"name": "r", "uri": "f:///r"}, artifacts=tmp_path)
    shown = await wrapper.execute()
    (kept,) = files(tmp_path, ".bin")
    assert read(kept) == b"ABCDE"
    assert str(kept) in shown


async def test_the_messages_of_a_prompt_are_joined() -> None:
    messages = [
        SimpleNamespace(role="user", content=TextBlock("one")),
        SimpleNamespace(role="assistant", content=[TextBlock("two"), SimpleNamespace(text="three")]),
        {"role": "user", "content": {"type": "text", "text": "four"}},
        {"content": "five"},
    ]
    session = SimpleNamespace(get_prompt=AsyncMock(return_value=SimpleNamespace(messages=messages)))
    wrapper = MCPPromptWrapper(session, "s", {"name": "p", "arguments": [{"name": "topic"}]})
    registry = ToolRegistry()
    registry.register(wrapper)
    assert await registry.execute("mcp_s_prompt_p", {"topic": 5}) == "one\ntwo\nthree\nfour\nfive"
    session.get_prompt.assert_awaited_once_with("p", arguments={"topic": "5"})


async def test_the_registry_adds_the_hint_to_failures() -> None:
    registry = ToolRegistry()
    registry.register(returning(SimpleNamespace(content=None)))
    result = await registry.execute("mcp_srv_demo", {})
    assert result == f"(MCP tool returned malformed content: TypeError){HINT}"
    assert is_tool_error_result(result)


# -- our own connections ----------------------------------------------------------------------------------


async def test_wrappers_of_a_connection_run_its_native_tools() -> None:
    registry = ToolRegistry()
    connections = await connect_mcp_servers({"srv": echo()}, registry)
    async with connections["srv"] as connection:
        registered = registry.get("mcp_srv_echo")
        assert registered._session is connection
        assert (registered._server_name, registered._original_name) == ("srv", "echo")
        assert (registered._tool_timeout, registered._reconnect) == (30, None)
        registered.set_reconnect_handler(AsyncMock())
        # Made by hand with what the entry says, it is the same tool.
        made = MCPToolWrapper(connection, "srv", {"name": "echo"})
        assert made._native_tool is not None
        assert (made.name, made.description) == (registered.name, registered.description)
        assert (made.parameters, made.read_only) == (registered.parameters, registered.read_only)
        mine = ToolRegistry()
        mine.register(made)
        for run in (made.execute(text="hi"), mine.execute(made.name, {"text": "hi"})):
            assert await run == await registered.execute(text="hi")


async def test_a_wrapper_with_a_limit_of_its_own_keeps_it_on_a_connection_too() -> None:
    connections = await connect_mcp_servers({"srv": echo()}, ToolRegistry())
    async with connections["srv"] as connection:
        other = MCPToolWrapper(connection, "srv", {"name": "echo"}, tool_timeout=7)
        renamed = MCPToolWrapper(connection, "alias", {"name": "echo"})
        assert (other._native_tool, renamed._native_tool) == (None, None)
        assert renamed.name == "mcp_alias_echo"
        assert await other.execute(text="hi") == await renamed.execute(text="hi") == "hi"
        slow = MCPToolWrapper(connection, "srv", {"name": "sleep"}, tool_timeout=0.05)
        assert await slow.execute(seconds=5) == "(MCP tool call timed out after 0.05s)"
        unknown = MCPToolWrapper(connection, "srv", {"name": "nothing"})
        assert is_tool_error_result(await unknown.execute())


async def test_a_subclass_that_overrides_execute_is_run_as_it_says() -> None:
    class Loud(MCPToolWrapper):
        async def execute(self, /, **kwargs: Any) -> Any:
            return f"{await super().execute(**kwargs)}!"

    connections = await connect_mcp_servers({"srv": echo()}, ToolRegistry())
    async with connections["srv"] as connection:
        registry = ToolRegistry()
        registry.register(Loud(connection, "srv", {"name": "echo"}))
        assert await registry.execute("mcp_srv_echo", {"text": "hi"}) == "hi!"
