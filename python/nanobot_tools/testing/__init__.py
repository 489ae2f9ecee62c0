"""What helps to test tools, plugins and MCP clients.

The fixtures come with the pytest plugin, which pytest finds by itself where this package is installed. Tests
may be plain functions, or coroutines run by pytest-asyncio or anyio (on asyncio).

Example:
    A tool is tested in three lines.

    >>> async def test_weather(call_tool):
    ...     outcome = await call_tool(weather, city="Rome", days="2")
    ...     assert_ok(outcome, contains="sunny")

**Fixtures**

``call_tool``
    ``await call_tool(tool, **arguments)`` makes one call as a model's would be made: arguments are cast and
    validated, and the tool is opened before its first call and closed at the end of the test. The tool is an
    object, a function or a name in ``tool_registry``. ``call_tool.sync(...)`` is for tests that are no
    coroutines. See :class:`CallTool` and :class:`CallOutcome`.
``tool_registry``
    A fresh :class:`~nanobot_tools.ToolRegistry`. ``tool_registry.register(...)`` takes plain functions as
    well, and returns the tool. ``open()`` of tools is run before the first call, ``aclose()`` at the end of
    the test, both on its loop; what they raise fails it.
``tool_executor``
    A :class:`~nanobot_tools.ToolExecutor` over ``tool_registry``, for batches:
    ``await tool_executor.run([{"name": ..., "arguments": {...}}, ...])``.
``mcp_server``
    Makes MCP servers of the test's own functions, which may be closures:
    ``server = mcp_server(tools=[function], resources={uri: text}, prompts={name: function}, name="demo")``.

    - ``tools``: functions (as ``@tool`` takes them), tools, or dicts that are listed as they are and whose
      calls have an empty result. A coroutine function runs on the loop of the test, a plain one in a thread.
      A function returns what a tool does, or content of MCP (``{"content": [...]}``, or a list of blocks);
      one that raises makes an error result, and one that raises :class:`~nanobot_tools.MCPError` a JSON-RPC
      error.
    - ``resources``: address -> text, bytes or a function of them; ``{name}`` in an address makes it a
      template, whose function is given the names.
    - ``prompts``: name -> text, a list of messages, or a function of the arguments.
    - ``transport``: ``"stdio"``, where each client starts a real process that leads back to the test; or
      ``"http"``, Streamable HTTP on loopback.

    ``server.entry`` is what to configure a client with, and ``async with server.connect(tool_registry) as
    connection`` connects ours. The servers speak the protocol versions 2024-11-05 to 2025-11-25. What can be
    ordered, and what is known of the clients: see :class:`ScriptedServer`.
``mcp_cassette``
    ``async with mcp_cassette("name", entry) as connection:`` connects to a real server the first time, and
    records its answers in ``cassettes/name.json`` beside the test; from then on these are played back, and
    the server is not needed. Further arguments: ``registry`` (where the tools go, as ``mcp_<name>_<tool>``),
    ``callbacks``, ``server`` (the server's name, by default that of the cassette), ``mask`` (further texts to
    mask) and ``unstable`` (tools whose results are not compared).

    - What was not recorded is answered with an error that names the request, and fails the test.
    - ``pytest --nbtools-record`` records anew, and tells what has changed. ``pytest --nbtools-check``
      compares the real servers with the recordings, and fails with the differences.
    - Masked with ``***`` are the values of ``env`` and ``headers``, user, password and query values of the
      URL, and arguments for options with names like ``--token``; also in requests and results, where the
      value has 8 characters or more, or 4 if its name is that of a secret. A test sees masked answers while
      recording as well.
    - Nothing is kept of a test that fails. Tests of one process may share a cassette; with pytest-xdist,
      record without ``-n``.
    - Not recorded are the progress of calls, notifications, and what the server asks of its client.

**Assertions**: :func:`assert_ok`, :func:`assert_error`, :func:`assert_schema`.

**Servers to run**: ``python -m nanobot_tools.testing.echo_server`` is a small MCP server over stdio, and
``python -m nanobot_tools.testing.conformance`` the client for the official conformance suites.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._asserts import assert_error, assert_ok, assert_schema
    from ._calls import CallOutcome, CallTool
    from ._cassette import CassetteError
    from ._server import Call, ScriptedServer

__all__ = [
    "Call",
    "CallOutcome",
    "CallTool",
    "CassetteError",
    "ScriptedServer",
    "assert_error",
    "assert_ok",
    "assert_schema",
]

# Imported when first used: pytest imports this package at every start for its plugin.
_LAZY = {
    "Call": "_server",
    "CallOutcome": "_calls",
    "CallTool": "_calls",
    "CassetteError": "_cassette",
    "ScriptedServer": "_server",
    "assert_error": "_asserts",
    "assert_ok": "_asserts",
    "assert_schema": "_asserts",
}


def __getattr__(name: str) -> Any:
    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{module}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, *globals()})
