"""Promises of the adapters that need no library: their shapes as dicts, and results of every kind."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
from nanobot_tools import Tool, ToolCall, ToolExecutor, ToolOutcome, ToolRegistry, ToolResult, tool
from nanobot_tools.adapters import anthropic, gemini, openai

BLOCKS = [
    {"type": "text", "text": "look"},
    {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
    {"type": "image", "source": {"type": "base64", "media_type": "image/tiff", "data": "QUJD"}},
    {"type": "input_audio", "input_audio": {"format": "mp3", "data": "QUJD"}},
    {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,QUJD"}},
    {"type": "document", "source": {"type": "url", "url": "https://example.com/b.pdf"}, "title": "b.pdf"},
]


class Returns(Tool):
    """Returns what it was made with."""

    name = "returns"
    description = "Return it."
    parameters = {"type": "object", "properties": {}}

    def __init__(self, result: Any) -> None:
        self.result = result

    async def execute(self, **kwargs: Any) -> Any:
        return self.result


async def outcomes(result: Any) -> list[ToolOutcome]:
    registry = ToolRegistry()
    registry.register(Returns(result))
    return await ToolExecutor(registry).run([ToolCall("returns", {}, "one")])


@pytest.mark.parametrize("module", ["openai", "anthropic", "gemini"])
def test_no_library_is_imported(module: str) -> None:
    code = f"""
import sys, nanobot_tools.adapters.{module}
others = ("openai", "anthropic", "google", "langchain_core", "pydantic_ai", "pydantic")
print([name for name in others if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("[]\n", "")


async def test_results_without_images_are_text_everywhere() -> None:
    @dataclass
    class Point:
        x: int

    shown = {"text": "text", None: "", 3: "3", True: "true"}
    for result, text in [*shown.items(), (Point(1), '{"x": 1}'), ([{"a": 1}], '[{"a": 1}]')]:
        made = await outcomes(result)
        assert openai.tool_messages(made) == [{"role": "tool", "tool_call_id": "one", "content": text}]
        assert openai.function_call_outputs(made)[0]["output"] == text
        assert anthropic.tool_results(made)[0]["content"] == text
        assert gemini.function_responses(made)[0]["functionResponse"]["response"] == {"output": text}
    # What has no form in JSON is shown as whatever it says of itself.
    assert "object object" in openai.tool_messages(await outcomes(object()))[0]["content"]


async def test_an_error_is_marked_where_the_provider_has_a_mark_for_it() -> None:
    made = await outcomes(ToolResult.error("it is broken"))
    [block] = anthropic.tool_results(made)
    assert block["is_error"] is True
    [part] = gemini.function_responses(made)
    assert part["functionResponse"]["response"].keys() == {"error"}
    assert openai.tool_messages(made)[0]["content"].startswith("it is broken")


async def test_every_kind_of_block_is_shown_or_mentioned_to_chat_completions() -> None:
    tool_message, images = openai.tool_messages(await outcomes(BLOCKS))
    assert tool_message["content"].split("\n") == [
        "look", "[image: https://example.com/a.png]", "[image: image/tiff]", "[audio: audio/mp3]",
        "[file: a.pdf]", "[file: b.pdf]",
    ]  # fmt: skip
    assert [piece.get("image_url", {}).get("url") for piece in images["content"]] == [
        None, "https://example.com/a.png", "data:image/tiff;base64,QUJD",
    ]  # fmt: skip


async def test_every_kind_of_block_is_shown_or_mentioned_to_the_responses_api() -> None:
    [item] = openai.function_call_outputs(await outcomes(BLOCKS))
    assert [piece["type"] for piece in item["output"]] == [
        "input_text", "input_image", "input_image", "input_text", "input_file", "input_file",
    ]  # fmt: skip
    assert item["output"][4]["file_data"] == "data:application/pdf;base64,QUJD"
    assert item["output"][5]["file_url"] == "https://example.com/b.pdf"


async def test_every_kind_of_block_is_shown_or_mentioned_to_anthropic() -> None:
    [block] = anthropic.tool_results(await outcomes([*BLOCKS, {"type": "text", "text": ""}]))
    assert [piece["type"] for piece in block["content"]] == [
        "text", "image", "text", "text", "document", "document",
    ]  # fmt: skip
    # A kind of image that the API would refuse with the whole request.
    assert block["content"][2]["text"] == "[image: image/tiff]"


async def test_every_kind_of_block_is_shown_or_mentioned_to_gemini() -> None:
    [part] = gemini.function_responses(await outcomes(BLOCKS))
    response = part["functionResponse"]
    assert response["response"]["output"].startswith("look\n[image: https://example.com/a.png]")
    assert [p["inlineData"]["mimeType"] for p in response["parts"]] == [
        "image/tiff", "audio/mp3", "application/pdf",
    ]  # fmt: skip


def test_an_answer_without_calls_has_none() -> None:
    assert openai.tool_calls({"choices": []}) == []
    assert openai.tool_calls({"choices": [{"message": {"content": "hello", "tool_calls": None}}]}) == []
    assert openai.tool_calls(SimpleNamespace(output=[SimpleNamespace(type="message")])) == []
    assert anthropic.tool_calls({"content": "hello"}) == []
    assert gemini.tool_calls({"candidates": [{"content": {"parts": None}}]}) == []
    assert gemini.tool_calls({"candidates": None}) == []
    assert [call.name for call in gemini.tool_calls([{"name": "one"}, {"text": "hello"}])] == ["one"]
    assert [openai.tool_calls([]), anthropic.tool_calls([]), gemini.tool_calls([])] == [[], [], []]


async def test_a_faulty_call_gets_an_answer_like_any_other() -> None:
    calls = openai.tool_calls([{"id": "one", "function": {"name": "returns", "arguments": "{"}}])
    made = await ToolExecutor(ToolRegistry()).run(calls)
    [message] = openai.tool_messages(made)
    assert message["tool_call_id"] == "one"
    assert "not found" in message["content"]


def test_what_is_given_is_the_callers_own_and_follows_the_registry() -> None:
    @tool
    async def first(a: int) -> str:
        """First."""
        return "1"

    @tool
    async def second() -> str:
        """Second."""
        return "2"

    registry = ToolRegistry()
    registry.register(first)
    for tools in (openai.chat_tools, openai.responses_tools, anthropic.tools, gemini.function_declarations):
        [one] = tools(registry)
        one["cache_control"] = {"type": "ephemeral"}
        assert "cache_control" not in tools(registry)[0]
    registry.register(second)
    assert [one["name"] for one in anthropic.tools(registry)] == ["first", "second"]
    assert gemini.tools(ToolRegistry()) == []
    # No parameters at all is what Gemini wants of a tool without any.
    assert "parameters" not in gemini.function_declarations(registry)[1]
