"""The pytest plugin ``nanobot_tools``; what it offers is described in :mod:`nanobot_tools.testing`.

Nothing of the runtime is imported before a fixture is used.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, ExitStack
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ..executor import ToolExecutor
    from ..mcp import MCPCallbacks, MCPConnection
    from ..registry import ToolRegistry
    from ._calls import CallTool, OpeningRegistry
    from ._cassette import Deck
    from ._server import ScriptedServer

_deck: pytest.StashKey[Deck] = pytest.StashKey()
_PROPERTY = "nanobot_tools.cassette"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options for cassettes."""
    group = parser.getgroup("nanobot-tools", "MCP cassettes (nanobot-tools)")
    group.addoption(
        "--nbtools-record",
        action="store_true",
        help="record the cassettes of mcp_cassette anew, from the real MCP servers",
    )
    group.addoption(
        "--nbtools-check",
        action="store_true",
        help="compare the real MCP servers with the cassettes of mcp_cassette, and write nothing",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Refuse options that contradict each other."""
    if config.getoption("--nbtools-record") and config.getoption("--nbtools-check"):
        raise pytest.UsageError("--nbtools-record and --nbtools-check cannot be given together")


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Tell what was recorded."""
    told = [
        text
        for reports in terminalreporter.stats.values()
        for report in reports
        for name, text in getattr(report, "user_properties", ())
        if name == _PROPERTY
    ]
    if told:
        terminalreporter.section("MCP cassettes")
        for text in dict.fromkeys(told):
            terminalreporter.line(text)


@pytest.fixture
def tool_registry(request: pytest.FixtureRequest) -> Iterator[OpeningRegistry]:
    """A fresh registry; a tool is opened before its first call, and closed at the end of the test."""
    from ._calls import OpeningRegistry, closing

    registry = OpeningRegistry()
    item: Any = request.node
    test = getattr(item, "obj", None)
    if inspect.iscoroutinefunction(test):
        # Closed by the test itself, so that it happens on its loop, whoever runs that.
        item.obj = closing(test, registry)
    try:
        yield registry
    finally:
        if inspect.iscoroutinefunction(test):
            item.obj = test
        registry.finish()


@pytest.fixture
def tool_executor(tool_registry: OpeningRegistry) -> ToolExecutor:
    """An executor over ``tool_registry``, with the default limits."""
    from ._calls import OpeningExecutor

    return OpeningExecutor(tool_registry)


@pytest.fixture
def call_tool(tool_registry: OpeningRegistry, tool_executor: Any) -> Iterator[CallTool]:
    """Makes one call as a model's would be made: ``await call_tool(tool, **arguments)``."""
    from ._calls import CallTool

    call = CallTool(tool_registry, tool_executor)
    yield call
    call.finish()


@pytest.fixture
def mcp_server() -> Iterator[Callable[..., ScriptedServer]]:
    """Makes scripted MCP servers, which end with the test: ``mcp_server(tools=[function])``."""
    from ._server import ScriptedServer

    with ExitStack() as stack:

        def make(
            tools: Iterable[Any] = (),
            *,
            resources: Mapping[str, Any] | None = None,
            prompts: Mapping[str, Any] | None = None,
            name: str = "demo",
            transport: str = "stdio",
            instructions: str | None = None,
        ) -> ScriptedServer:
            server = ScriptedServer(
                tools,
                resources=resources,
                prompts=prompts,
                name=name,
                transport=transport,
                instructions=instructions,
            )
            stack.callback(server.close)
            return server

        yield make


@pytest.fixture
def mcp_cassette(
    request: pytest.FixtureRequest,
) -> Callable[..., AbstractAsyncContextManager[MCPConnection]]:
    """Connects to a recorded MCP server: ``async with mcp_cassette(name, entry) as connection:``."""
    from ._cassette import Deck, cassette

    config, node = request.config, request.node
    deck = config.stash.setdefault(_deck, Deck())
    if config.getoption("--nbtools-record"):
        deck.mode = "record"
    elif config.getoption("--nbtools-check"):
        deck.mode = "check"

    def connect(
        name: str,
        entry: Any,
        *,
        registry: ToolRegistry | None = None,
        callbacks: MCPCallbacks | None = None,
        server: str | None = None,
        mask: Iterable[str] = (),
        unstable: Iterable[str] = (),
    ) -> AbstractAsyncContextManager[MCPConnection]:
        if not name or name.startswith(".") or any(sign in name for sign in "/\\:\0"):
            raise ValueError(f"{name!r} cannot be the name of a cassette's file")
        return cassette(
            node.path.parent / "cassettes" / f"{name}.json",
            entry,
            deck,
            name=server or name,
            registry=registry,
            callbacks=callbacks,
            mask=mask,
            unstable=unstable,
            tell=lambda text: node.user_properties.append((_PROPERTY, text)),
        )

    return connect
