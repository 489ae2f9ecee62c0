"""What MCP servers offer, as tools: one class each for tools, resources and prompts.

Constructors, attributes and texts are those of nanobot-ai 0.3.5. A wrapper takes any session with the methods
of the Python SDK's ``ClientSession``, which it asks by nanobot's rules (``_foreign``), or an
:class:`~nanobot_tools.MCPConnection`. Where a connection has a native tool, the wrapper carries it
(``_native_tool``), and the registry runs that one without coming through here; it reconnects by itself.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from .. import _native
from .._field import field
from .._native import CompiledSchema, MCPRenderer, NativeTool
from .._native_tool import run_native
from ..base import Tool, ToolResult, _compiled, _describes_object
from ..schema import normalize_schema
from . import _foreign_render
from ._foreign import Failed, ask

__all__ = ["MCPPromptWrapper", "MCPResourceWrapper", "MCPToolWrapper"]

_log = logging.getLogger("nanobot_tools.mcp")

# Any object with what is used of the SDK's classes will do; the names say what is meant.
ClientSession: TypeAlias = Any
MCPToolDefinition: TypeAlias = Any
Resource: TypeAlias = Any
Prompt: TypeAlias = Any

_Reconnect = Callable[[str, str, Tool], Awaitable[Tool | None]]
_WrapperT = TypeVar("_WrapperT", bound="_MCPWrapperBase")


class _MCPWrapperBase(Tool):
    """What the three wrappers share: a session, a description, and a way to a new session."""

    _plugin_discoverable = False
    _kind: str
    _asks_for: str
    _session: ClientSession
    _server_name: str
    _name: str
    _description: str
    _parameters: dict[str, Any]
    #: What calls are cast and validated against: the model may be shown something else.
    _original_schema: dict[str, Any]
    _native_tool: NativeTool | None = None
    _reconnect: _Reconnect | None = None
    _renderer: MCPRenderer | None = None
    _artifacts: str | Path | None = None
    _max_result_bytes: int | None = None

    def _keep(self, artifacts: str | Path | None, max_result_bytes: int | None) -> None:
        self._artifacts = artifacts
        self._max_result_bytes = max_result_bytes

    def _describe(
        self,
        session: ClientSession,
        server_name: str,
        name: str,
        description: str,
        schema: dict[str, Any],
    ) -> None:
        self._session = session
        self._server_name = server_name
        self._name = _native.mcp_name(self._kind, server_name, name)
        self._description = description
        self._parameters = normalize_schema(schema)
        self._original_schema = schema if _describes_object(schema) else self._parameters

    @classmethod
    def _of_native(
        cls: type[_WrapperT], session: ClientSession, native: NativeTool, server_name: str, **attributes: Any
    ) -> _WrapperT:
        """A wrapper around a native tool of a connection; ``attributes`` are the class's own."""
        wrapper = cls.__new__(cls)
        wrapper._adopt(session, native, server_name)
        for name, value in attributes.items():
            setattr(wrapper, name, value)
        return wrapper

    def _adopt(self, session: ClientSession, native: NativeTool, server_name: str) -> None:
        self._session = session
        self._server_name = server_name
        self._name = native.name
        self._description = native.description
        self._native_tool = native

    def set_reconnect_handler(self, reconnect: _Reconnect) -> None:
        """Say how to get a new session when this one has ended.

        Args:
            reconnect: Awaited as ``reconnect(server_name, tool_name, wrapper)``. It returns the wrapper that
                replaces this one, whose session is taken over for one more attempt, or ``None``. It is not
                called for a native tool, whose connection reconnects by itself.
        """
        self._reconnect = reconnect

    @property
    def name(self) -> str:
        """The name that the model uses."""
        return self._name

    @property
    def description(self) -> str:
        """What the model is told about the tool."""
        return self._description

    @property
    def parameters(self) -> dict[str, Any]:
        """The JSON Schema of the arguments as the model sees it, normalised for providers."""
        if self._native_tool is not None:
            parameters: dict[str, Any] = self._native_tool.parameters
            return parameters
        return self._parameters

    @property
    def read_only(self) -> bool:
        """Whether a call has no side effect."""
        return self._native_tool.read_only if self._native_tool is not None else self._is_read_only()

    def _is_read_only(self) -> bool:
        return True

    @property
    def _checked_schema(self) -> dict[str, Any]:
        """What the registry checks calls against; a subclass with its own ``parameters`` means those."""
        if self._native_tool is not None or type(self).parameters is not _MCPWrapperBase.parameters:
            return self.parameters
        return self._original_schema

    def _schema(self) -> tuple[CompiledSchema | None, dict[str, Any]]:
        schema = self._checked_schema
        return _compiled(schema), schema

    async def _ask(
        self,
        timeout: float | None,
        arguments: dict[str, Any],
        request: Callable[[Any], Any],
        result: Callable[[Any], dict[str, Any]],
    ) -> str:
        """Make a request and show its reply.

        Args:
            timeout: Seconds for each attempt.
            arguments: Those of the call, of which an image's record tells.
            request: Makes the request on a session.
            result: Brings the reply into the protocol's form.
        """
        return await ask_session(
            self, self._kind, self._asks_for, timeout, arguments, request, result,
            artifacts=self._artifacts, max_result_bytes=self._max_result_bytes,
        )  # fmt: skip

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._name!r}>"


async def ask_session(
    wrapper: Any,
    kind: str,
    asks_for: str,
    timeout: float | None,
    arguments: dict[str, Any],
    request: Callable[[Any], Any],
    result: Callable[[Any], dict[str, Any]],
    *,
    artifacts: str | Path | None = None,
    max_result_bytes: int | None = None,
) -> str:
    """Make a request on a wrapper's session, which is not ours, and show its reply.

    Args:
        wrapper: One of ours or of nanobot's. It gets the renderer of its results as ``_renderer``.
        kind: ``"tool"``, ``"resource"`` or ``"prompt"``.
        asks_for: What is asked for, as the texts name it.
        timeout: Seconds for each attempt.
        arguments: Those of the call, of which an image's record tells.
        request: Makes the request on a session.
        result: Brings the reply into the protocol's form.
        artifacts: As in the wrappers.
        max_result_bytes: Likewise.
    """
    reconnect = None if getattr(wrapper, "_reconnect", None) is None else lambda: _take_over(wrapper)
    try:
        reply = await ask(
            f"MCP {asks_for}", wrapper._name, timeout, lambda: request(wrapper._session), reconnect
        )
    except Failed as failed:
        return failed.result
    try:
        renderer: MCPRenderer | None = getattr(wrapper, "_renderer", None)
        if renderer is None:
            renderer = MCPRenderer(kind, wrapper._server_name, wrapper._name, artifacts, max_result_bytes)
            wrapper._renderer = renderer
        shown = renderer.render(result(reply), arguments)
        text, is_error = shown if type(shown) is tuple else await shown
        return ToolResult.error(text) if is_error else text
    except Exception as exc:
        failure = type(exc).__name__
        _log.warning("MCP %s %r returned malformed content: %s", kind, wrapper._name, failure)
        return ToolResult.error(f"(MCP {kind} returned malformed content: {failure})")


async def _take_over(wrapper: Any) -> bool:
    """Ask the wrapper's handler for a new session; whether there is one."""
    server = wrapper._server_name
    try:
        fresh = await wrapper._reconnect(server, wrapper._name, wrapper)
    except Exception as exc:
        _log.warning("MCP server %r: reconnecting failed: %s", server, type(exc).__name__)
        return False
    session = getattr(fresh, "_session", None)
    if session is None:
        _log.warning("MCP server %r: there is no new session", server)
        return False
    wrapper._session = session
    return True


class MCPToolWrapper(_MCPWrapperBase):
    """A tool of an MCP server, as ``mcp_<server>_<tool>``.

    Calls are cast and validated against the server's own schema, whatever the model is shown. A tool that
    its server annotates as read-only is one.

    Args:
        session: Has ``call_tool(name, arguments=...)``: the SDK's ``ClientSession``, an
            :class:`~nanobot_tools.MCPConnection`, or anything like them.
        server_name: The server's name in the configuration.
        tool_def: The tool as the server lists it: an object or a dict with ``name``, ``description``,
            ``inputSchema`` and perhaps ``annotations``.
        tool_timeout: Seconds that a call may take. With a connection whose entry says the same, calls are
            made natively, and what the entry says of results holds.
        artifacts: Folder for images, audio and other data of results; by default the user's own.
        max_result_bytes: Length from which a text is kept in a file and the model is shown a preview;
            by default none is.
    """

    _kind = "tool"
    _asks_for = "tool call"

    def __init__(
        self,
        session: ClientSession,
        server_name: str,
        tool_def: MCPToolDefinition,
        tool_timeout: float = 30,
        *,
        artifacts: str | Path | None = None,
        max_result_bytes: int | None = None,
    ) -> None:
        name = str(_required(tool_def, "name"))
        self._original_name = name
        self._keep(artifacts, max_result_bytes)
        self._tool_timeout = tool_timeout
        self._hinted_read_only = (
            field(field(tool_def, "annotations"), "readOnlyHint", "read_only_hint") is True
        )
        native = _native_tool_of(session, server_name, name, tool_timeout)
        if native is not None:
            self._adopt(session, native, server_name)
            return
        schema = field(tool_def, "inputSchema", "input_schema")
        self._describe(
            session,
            server_name,
            name,
            str(field(tool_def, "description") or name),
            dict(schema) if isinstance(schema, Mapping) and schema else {"type": "object", "properties": {}},
        )

    def _is_read_only(self) -> bool:
        return self._hinted_read_only

    async def execute(self, /, **kwargs: Any) -> Any:
        """Call the tool with arguments that were cast and validated.

        Returns:
            Text for the model; a ``ToolResult`` that is an error when the call failed or timed out.
        """
        if self._native_tool is not None:
            return await run_native(self._native_tool, kwargs)
        return await self._ask(
            self._tool_timeout,
            kwargs,
            lambda session: session.call_tool(self._original_name, arguments=kwargs),
            _foreign_render.call_result,
        )

    # The registry runs `_native_tool` itself where there is one, unless a subclass overrides this.
    execute._runs_native_tool = True  # type: ignore[attr-defined]


class MCPResourceWrapper(_MCPWrapperBase):
    """A resource of an MCP server, as the read-only tool ``mcp_<server>_resource_<name>`` without arguments.

    Args:
        session: Has ``read_resource(uri)``.
        server_name: The server's name in the configuration.
        resource_def: The resource as the server lists it: an object or a dict with ``uri``, ``name`` and
            ``description``.
        resource_timeout: Seconds that reading may take.
        artifacts: Folder for images, audio and other data of results. By default only its size is shown.
        max_result_bytes: Length from which a text is kept in a file and the model is shown a preview;
            by default none is.
    """

    _kind = "resource"
    _asks_for = "resource read"

    def __init__(
        self,
        session: ClientSession,
        server_name: str,
        resource_def: Resource,
        resource_timeout: float = 30,
        *,
        artifacts: str | Path | None = None,
        max_result_bytes: int | None = None,
    ) -> None:
        name = str(_required(resource_def, "name"))
        self._uri = _required(resource_def, "uri")
        self._keep(artifacts, max_result_bytes)
        self._resource_timeout = resource_timeout
        self._describe(
            session,
            server_name,
            name,
            f"[MCP Resource] {field(resource_def, 'description') or name}\nURI: {self._uri}",
            {"type": "object", "properties": {}, "required": []},
        )

    async def execute(self, /, **kwargs: Any) -> Any:
        """Read the resource.

        Returns:
            Text for the model; a ``ToolResult`` that is an error when reading failed or timed out.
        """
        if self._native_tool is not None:
            return await run_native(self._native_tool, kwargs)
        return await self._ask(
            self._resource_timeout,
            kwargs,
            lambda session: session.read_resource(self._uri),
            _foreign_render.resource_result,
        )

    execute._runs_native_tool = True  # type: ignore[attr-defined]


class MCPPromptWrapper(_MCPWrapperBase):
    """A prompt of an MCP server, as the read-only tool ``mcp_<server>_prompt_<name>``.

    Args:
        session: Has ``get_prompt(name, arguments=...)``.
        server_name: The server's name in the configuration.
        prompt_def: The prompt as the server lists it: an object or a dict with ``name``, ``description`` and
            ``arguments``, each of which has ``name``, ``description`` and ``required``.
        prompt_timeout: Seconds that getting the prompt may take.
        artifacts: Folder for images, audio and other data of results. By default only its size is shown.
        max_result_bytes: Length from which a text is kept in a file and the model is shown a preview;
            by default none is.
    """

    _kind = "prompt"
    _asks_for = "prompt call"

    def __init__(
        self,
        session: ClientSession,
        server_name: str,
        prompt_def: Prompt,
        prompt_timeout: float = 30,
        *,
        artifacts: str | Path | None = None,
        max_result_bytes: int | None = None,
    ) -> None:
        name = str(_required(prompt_def, "name"))
        self._prompt_name = name
        self._keep(artifacts, max_result_bytes)
        self._prompt_timeout = prompt_timeout
        properties: dict[str, Any] = {}
        required: list[str] = []
        for argument in field(prompt_def, "arguments") or ():
            key = str(_required(argument, "name"))
            properties[key] = {"type": "string"}
            if description := field(argument, "description"):
                properties[key]["description"] = str(description)
            if field(argument, "required"):
                required.append(key)
        self._describe(
            session,
            server_name,
            name,
            f"[MCP Prompt] {field(prompt_def, 'description') or name}\n"
            "Returns a filled prompt template that can be used as a workflow guide.",
            {"type": "object", "properties": properties, "required": required},
        )

    async def execute(self, /, **kwargs: Any) -> Any:
        """Get the prompt, filled with arguments that were cast and validated.

        Returns:
            Text for the model; a ``ToolResult`` that is an error when that failed or timed out.
        """
        if self._native_tool is not None:
            return await run_native(self._native_tool, kwargs)
        return await self._ask(
            self._prompt_timeout,
            kwargs,
            lambda session: session.get_prompt(self._prompt_name, arguments=kwargs),
            _foreign_render.prompt_result,
        )

    execute._runs_native_tool = True  # type: ignore[attr-defined]


def _required(definition: Any, name: str) -> Any:
    return definition[name] if isinstance(definition, Mapping) else getattr(definition, name)


def _native_tool_of(session: ClientSession, server_name: str, name: str, timeout: float) -> NativeTool | None:
    """The session's own native tool, if what it was configured with is what is asked for here."""
    # Asked of the class: a mock has any attribute that it is asked for.
    find = getattr(type(session), "_find_native", None)
    if find is None or session.name != server_name:
        return None
    native: NativeTool | None = find(session, name)
    return native if native is not None and native.timeout == timeout else None
