"""Checks against the types of openai, anthropic and google-genai; run by test_adapters_libraries.py."""

from __future__ import annotations

import base64
import json
from typing import Any

from anthropic.types import Message, MessageParam, ToolParam
from google.genai import types as genai
from harness import main
from nanobot_tools import Tool, ToolExecutor, ToolOutcome, ToolRegistry, ToolResult, tool
from nanobot_tools.adapters import anthropic, gemini, openai
from openai.types.chat import (
    ChatCompletion,
    ChatCompletionContentPartParam,
    ChatCompletionMessageParam,
    ChatCompletionToolParam,
)
from openai.types.responses import FunctionToolParam, Response, ResponseInputItemParam
from pydantic import TypeAdapter

PIXEL = base64.b64encode(b"\x89PNG not really").decode()


@tool(read_only=True)
async def add(a: int, b: int | None = None) -> int:
    """Add two numbers."""
    return a + (b or 1)


class Picture(Tool):
    """Shows a picture."""

    name = "picture"
    description = "Take a picture."
    parameters = {"type": "object", "properties": {}}
    read_only = True

    async def execute(self, **kwargs: Any) -> Any:
        return [
            {"type": "text", "text": "a pixel"},
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}},
        ]


class Fails(Tool):
    """Fails."""

    name = "fails"
    description = "Fail."
    parameters = {"type": "object", "properties": {}}
    read_only = True

    async def execute(self, **kwargs: Any) -> Any:
        return ToolResult.error("it is broken")


def registry() -> ToolRegistry:
    made = ToolRegistry()
    for one in (add, Picture(), Fails()):
        made.register(one)
    return made


def accepts(kind: Any, value: Any) -> None:
    """Fails unless the library's type takes the value, and knows each field in it."""
    adapter = TypeAdapter(kind)
    assert json.loads(adapter.dump_json(adapter.validate_python(value))) == value


async def outcomes(calls: list[Any]) -> list[ToolOutcome]:
    return await ToolExecutor(registry()).run(calls)


CHAT = {
    "id": "c", "object": "chat.completion", "created": 1, "model": "m",
    "choices": [{
        "index": 0, "finish_reason": "tool_calls", "logprobs": None,
        "message": {"role": "assistant", "content": None, "refusal": None, "tool_calls": [
            {"id": "one", "type": "function", "function": {"name": "add", "arguments": '{"a": "2"}'}},
            {"id": "odd", "type": "custom", "custom": {"name": "add", "input": "x"}},
            {"id": "two", "type": "function", "function": {"name": "picture", "arguments": ""}},
            {"id": "three", "type": "function", "function": {"name": "fails", "arguments": "{}"}},
        ]},
    }],
}  # fmt: skip

RESPONSE = {
    "id": "r", "object": "response", "created_at": 1, "model": "m", "parallel_tool_calls": True,
    "tool_choice": "auto", "tools": [], "error": None, "incomplete_details": None, "instructions": None,
    "metadata": {}, "temperature": 1, "top_p": 1,
    "output": [
        {"type": "reasoning", "id": "rs", "summary": []},
        {"type": "function_call", "id": "fc", "call_id": "one", "name": "add", "arguments": '{"a": 2}'},
        {"type": "function_call", "id": "fd", "call_id": "two", "name": "picture", "arguments": "{}"},
    ],
}  # fmt: skip

MESSAGE = {
    "id": "m", "type": "message", "role": "assistant", "model": "m", "stop_reason": "tool_use",
    "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1},
    "content": [
        {"type": "text", "text": "Let me see.", "citations": None},
        {"type": "tool_use", "id": "one", "name": "add", "input": {"a": 2}},
        {"type": "tool_use", "id": "two", "name": "picture", "input": {}},
        {"type": "tool_use", "id": "three", "name": "fails", "input": {}},
    ],
}  # fmt: skip


def test_chat_completions_take_the_tools() -> None:
    for one in openai.chat_tools(registry()):
        accepts(ChatCompletionToolParam, one)


def test_the_responses_api_takes_the_tools() -> None:
    for one in openai.responses_tools(registry()):
        accepts(FunctionToolParam, one)


async def test_calls_of_a_chat_completion_are_run_and_their_results_are_messages() -> None:
    completion = ChatCompletion.model_validate(CHAT)
    calls = openai.tool_calls(completion)
    assert calls == openai.tool_calls(completion.choices[0].message) == openai.tool_calls(CHAT)
    assert [call.id for call in calls] == ["one", "two", "three"]
    messages = openai.tool_messages(await outcomes(calls))
    for message in messages[:3]:
        accepts(ChatCompletionMessageParam, message)
    # One by one: a union reads the pieces of its message only once.
    for piece in messages[3]["content"]:
        accepts(ChatCompletionContentPartParam, piece)
    assert [m["role"] for m in messages] == ["tool", "tool", "tool", "user"]
    assert messages[0] == {"role": "tool", "tool_call_id": "one", "content": "3"}
    assert "it is broken" in messages[2]["content"]
    assert messages[3]["content"][1]["image_url"]["url"].endswith(PIXEL)


async def test_calls_of_a_response_are_run_and_their_results_are_items() -> None:
    response = Response.model_validate(RESPONSE)
    calls = openai.tool_calls(response)
    assert calls == openai.tool_calls(response.output) == openai.tool_calls(RESPONSE)
    assert [call.id for call in calls] == ["one", "two"]
    items = openai.function_call_outputs(await outcomes(calls))
    for item in items:
        accepts(ResponseInputItemParam, item)
    assert items[0] == {"type": "function_call_output", "call_id": "one", "output": "3"}
    assert [piece["type"] for piece in items[1]["output"]] == ["input_text", "input_image"]


def test_messages_take_the_tools() -> None:
    for one in anthropic.tools(registry()):
        accepts(ToolParam, one)
        accepts(ToolParam, {**one, "cache_control": {"type": "ephemeral"}})


async def test_tool_use_blocks_are_run_and_their_results_are_blocks() -> None:
    message = Message.model_validate(MESSAGE)
    calls = anthropic.tool_calls(message)
    assert calls == anthropic.tool_calls(message.content) == anthropic.tool_calls(MESSAGE)
    blocks = anthropic.tool_results(await outcomes(calls))
    accepts(MessageParam, {"role": "user", "content": blocks})
    assert blocks[0] == {"type": "tool_result", "tool_use_id": "one", "content": "3"}
    assert blocks[1]["content"][1]["source"] == {"type": "base64", "media_type": "image/png", "data": PIXEL}
    assert blocks[2]["is_error"] is True


def test_gemini_takes_the_declarations() -> None:
    made = [genai.Tool.model_validate(one) for one in gemini.tools(registry())]
    declarations = {one.name: one for one in made[0].function_declarations or ()}
    assert declarations.keys() == {"add", "picture", "fails"}
    parameters = declarations["add"].parameters
    assert parameters is not None
    assert parameters.required == ["a"]
    assert declarations["picture"].parameters is None


async def test_function_calls_are_run_and_their_results_are_parts() -> None:
    parts = [
        {"text": "Let me see."},
        {"functionCall": {"id": "one", "name": "add", "args": {"a": 2}}},
        {"functionCall": {"name": "picture", "args": {}}},
        {"functionCall": {"name": "fails"}},
    ]
    given = {"candidates": [{"content": {"role": "model", "parts": parts}}]}
    response = genai.GenerateContentResponse.model_validate(given)
    calls = gemini.tool_calls(response)
    assert calls == gemini.tool_calls(given) == gemini.tool_calls(parts)
    assert calls[0] == gemini.tool_calls(response.function_calls)[0]
    made = gemini.function_responses(await outcomes(calls))
    responses = [genai.Part.model_validate(part).function_response for part in made]
    assert [r.name for r in responses] == ["add", "picture", "fails"]
    assert [r.id for r in responses] == ["one", None, None]
    assert responses[0].response == {"output": "3"}
    assert responses[1].parts[0].inline_data.data == b"\x89PNG not really"
    assert "it is broken" in responses[2].response["error"]


if __name__ == "__main__":
    main(globals().copy())
