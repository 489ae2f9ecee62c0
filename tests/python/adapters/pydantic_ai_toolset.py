"""Checks against pydantic-ai; run by test_adapters_libraries.py."""

from __future__ import annotations

from typing import Any

from harness import main
from nanobot_tools import Tool, ToolRegistry, tool
from nanobot_tools.adapters.pydantic_ai import RegistryToolset
from pydantic_ai import Agent, BinaryContent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel


@tool(read_only=True)
async def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


@tool
async def late() -> str:
    """Registered later."""
    return "here"


class Picture(Tool):
    """Shows a picture."""

    name = "picture"
    description = "Take a picture."
    parameters = {"type": "object", "properties": {}}

    async def execute(self, **kwargs: Any) -> Any:
        return [
            {"type": "text", "text": "a picture"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD"}},
        ]


def registry() -> ToolRegistry:
    made = ToolRegistry()
    for one in (add, Picture()):
        made.register(one)
    return made


async def run(made: ToolRegistry, *turns: list[ToolCallPart]) -> tuple[list[ToolReturnPart], list[AgentInfo]]:
    """Run an agent whose model makes these calls, turn by turn; the results, and what the model was told."""
    left, seen = list(turns), []

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        seen.append(info)
        if not left:
            return ModelResponse(parts=[TextPart("done")])
        if len(seen) == 2:
            made.register(late)
        return ModelResponse(parts=left.pop(0))

    async with Agent(FunctionModel(model), toolsets=[RegistryToolset(made, id="tools")]) as agent:
        result = await agent.run("go")
    assert result.output == "done"
    returned = [p for m in result.all_messages() for p in m.parts if isinstance(p, ToolReturnPart)]
    return returned, seen


async def test_a_model_is_shown_the_tools_and_calls_them() -> None:
    returned, seen = await run(
        registry(), [ToolCallPart("add", {"a": "2"}, "one"), ToolCallPart("add", '{"a": 5}', "two")]
    )
    assert [(part.tool_call_id, part.content) for part in returned] == [("one", "3"), ("two", "6")]
    shown = {one.name: one for one in seen[0].function_tools}
    assert shown.keys() == {"add", "picture"}
    assert shown["add"].description == "Add two numbers."
    assert shown["add"].parameters_json_schema["required"] == ["a"]
    assert (shown["add"].sequential, shown["picture"].sequential) == (False, True)


async def test_a_failure_is_told_to_the_model_and_ends_no_run() -> None:
    returned, _ = await run(registry(), *([ToolCallPart("add", {"a": "two"}, str(n))] for n in range(4)))
    assert len(returned) == 4
    assert all("a should be integer" in str(part.content) for part in returned)
    assert {part.outcome for part in returned} == {"failed"}


async def test_tools_that_come_while_the_agent_runs_are_there_in_its_next_step() -> None:
    returned, seen = await run(
        registry(),
        [ToolCallPart("add", {"a": 1}, "1")],
        [ToolCallPart("add", {"a": 1}, "2")],
        [ToolCallPart("late", {}, "3")],
    )
    assert returned[-1].content == "here"
    assert "late" in {one.name for one in seen[-1].function_tools}


async def test_images_are_shown_as_such() -> None:
    returned, _ = await run(registry(), [ToolCallPart("picture", {}, "one")])
    text, image = returned[0].content
    assert text == "a picture"
    assert isinstance(image, BinaryContent)
    assert (image.data, image.media_type) == (b"ABC", "image/png")


if __name__ == "__main__":
    main(globals().copy())
