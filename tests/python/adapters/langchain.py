"""Checks against langchain_core; run by test_adapters_libraries.py."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from harness import main
from langchain_core.messages import ToolMessage
from langchain_core.tools import InjectedToolArg, InjectedToolCallId, ToolException
from langchain_core.tools import tool as lc_tool
from langchain_core.utils.function_calling import convert_to_openai_tool
from nanobot_tools import LoopRunningError, Tool, ToolCall, ToolExecutor, ToolRegistry, tool
from nanobot_tools.adapters.langchain import from_langchain, to_langchain


@tool(read_only=True)
async def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


class Odd(Tool):
    """Has arguments whose names LangChain uses itself."""

    name = "odd"
    description = "Say what came."
    parameters = {
        "type": "object",
        "properties": {"config": {"type": "string"}, "run_manager": {"type": "string"}},
        "required": ["config"],
    }

    async def execute(self, **kwargs: Any) -> Any:
        return str(sorted(kwargs.items()))


class Picture(Tool):
    """Shows a picture."""

    name = "picture"
    description = "Take a picture."
    parameters = {"type": "object", "properties": {}}

    async def execute(self, **kwargs: Any) -> Any:
        return [{"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD"}}]


def registry(*tools: Any) -> ToolRegistry:
    made = ToolRegistry()
    for one in tools or (add, Odd(), Picture()):
        made.register(one)
    return made


def named(name: str) -> Any:
    [one] = to_langchain(registry(), [name])
    return one


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_call", "id": "one", "name": name, "args": arguments}


def test_a_model_is_shown_the_same_as_by_the_registry() -> None:
    known = {d["function"]["name"]: d["function"] for d in registry().get_definitions()}
    for one in to_langchain(registry()):
        shown = convert_to_openai_tool(one)["function"]
        assert shown["description"] == known[one.name]["description"]
        for name, schema in known[one.name]["parameters"].get("properties", {}).items():
            assert shown["parameters"]["properties"][name] == schema


async def test_a_call_becomes_a_tool_message() -> None:
    message = await named("add").ainvoke(call("add", a="2"))
    assert isinstance(message, ToolMessage)
    assert (message.content, message.status, message.tool_call_id) == ("3", "success", "one")
    assert await named("add").ainvoke({"a": 2, "b": 2}) == "4"


async def test_a_failure_reaches_the_model_as_an_error() -> None:
    message = await named("add").ainvoke(call("add", a="two"))
    assert message.status == "error"
    assert "a should be integer" in message.content


async def test_arguments_may_have_the_names_of_langchains_own() -> None:
    message = await named("odd").ainvoke(call("odd", config="c", run_manager="r"))
    assert message.content == "[('config', 'c'), ('run_manager', 'r')]"


async def test_images_stay_blocks() -> None:
    message = await named("picture").ainvoke(call("picture"))
    assert message.content[0]["image_url"]["url"] == "data:image/png;base64,QUJD"


def test_a_thread_without_a_loop_invokes_it() -> None:
    assert named("add").invoke({"a": 2}) == "3"


async def test_on_a_running_loop_invoke_says_what_to_await() -> None:
    refusal = ""
    try:
        named("add").invoke({"a": 2})
    except LoopRunningError as exc:
        refusal = str(exc)
    assert "await ainvoke()" in refusal


@lc_tool
def shout(text: str, times: int = 1) -> str:
    """Make text loud."""
    return text.upper() * times


@lc_tool
async def secret(
    text: str, key: Annotated[str, InjectedToolArg] = "k", *, id: Annotated[str, InjectedToolCallId]
) -> str:
    """Use what the model must not see."""
    if text == "fail":
        raise ToolException("no such text")
    return f"{text} {key} {id}"


async def test_a_tool_of_langchains_is_called_by_the_registry() -> None:
    made = registry(from_langchain(shout, read_only=True))
    assert made.get("shout").concurrency_safe
    definition = made.get_definitions()[0]["function"]
    assert definition["description"] == "Make text loud."
    assert definition["parameters"]["required"] == ["text"]
    assert await made.execute("shout", {"text": "a", "times": "2"}) == "AA"
    assert "text" in await made.execute("shout", {})


async def test_what_langchain_injects_is_not_the_models_and_its_errors_are_errors() -> None:
    secret.handle_tool_error = True
    made = registry(from_langchain(secret))
    assert made.get_definitions()[0]["function"]["parameters"]["properties"].keys() == {"text"}
    well, badly = await ToolExecutor(made).run(
        [ToolCall("secret", {"text": "a"}, "x"), ToolCall("secret", {"text": "fail"}, "y")]
    )
    assert well.result == "a k x"
    assert (badly.error_kind, "no such text" in badly.result) == ("tool_error", True)
    assert (await made.execute("secret", {"text": "a"})).startswith("a k ")


async def test_tools_run_beside_each_other() -> None:
    results = await asyncio.gather(*(named("add").ainvoke({"a": n}) for n in range(20)))
    assert results == [str(n + 1) for n in range(20)]


if __name__ == "__main__":
    main(globals().copy())
