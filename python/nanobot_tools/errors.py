"""Exceptions of this package, under one root.

Each class has a ``code``, a stable name of the kind of error; it is what ``ToolOutcome.error_kind`` shows.
Built-in exceptions are second bases where one fits, so that ``except TimeoutError`` and the like work.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

__all__ = [
    "ConfigError",
    "InternalError",
    "InvalidArgumentsError",
    "LoopRunningError",
    "MCPConnectionError",
    "MCPError",
    "NanobotToolsError",
    "ToolCancelledError",
    "ToolError",
    "ToolNotFoundError",
    "ToolRefusedError",
    "ToolTimeoutError",
]


class NanobotToolsError(Exception):
    """Root of all exceptions of this package."""

    code: str = "internal"


class ToolError(NanobotToolsError):
    """Raised by a tool to fail: the model reads exactly this text, and the retry hint."""

    code = "tool_error"


class ToolNotFoundError(NanobotToolsError, LookupError):
    """No tool of that name is registered."""

    code = "not_found"


class InvalidArgumentsError(NanobotToolsError, ValueError):
    """The arguments do not fit the tool's schema, or what its type hints promise.

    Attributes:
        failures: The failures one by one, as (JSON Pointer, keyword, message); may be empty.
    """

    code = "invalid_arguments"

    def __init__(self, text: str = "", failures: Iterable[tuple[str, str, str]] = ()) -> None:
        super().__init__(text)
        self.failures = tuple(failures)


class ToolTimeoutError(NanobotToolsError, TimeoutError):
    """The call did not end before its deadline."""

    code = "timeout"


class ToolCancelledError(NanobotToolsError):
    """The call was cancelled; raised by ``CurrentCall.raise_if_cancelled``."""

    code = "cancelled"


class ToolRefusedError(NanobotToolsError, PermissionError):
    """Raised by a ``before`` hook to refuse a call; the text is the reason."""

    code = "refused"


class MCPError(NanobotToolsError):
    """An MCP server answered with an error, or with what cannot be understood.

    Attributes:
        rpc_code: The JSON-RPC error code.
        message: The server's message.
        data: What the server added, as objects; ``None`` if nothing.
    """

    code = "remote"

    def __init__(self, rpc_code: int, message: str, data: Any = None) -> None:
        super().__init__(rpc_code, message, data)
        self.rpc_code = rpc_code
        self.message = message
        self.data = data

    def __str__(self) -> str:
        return f"{self.message} [code {self.rpc_code}]"


class MCPConnectionError(NanobotToolsError, ConnectionError):
    """A server could not be started or reached, or the connection to it ended."""

    code = "connection"


class ConfigError(NanobotToolsError, ValueError):
    """A configuration entry is faulty; the text names it."""

    code = "config"


class InternalError(NanobotToolsError, RuntimeError):
    """Something that must not happen, such as a panic; only one call is lost."""

    code = "internal"


class LoopRunningError(NanobotToolsError, RuntimeError):
    """What waits was called in a thread whose event loop is running; the text says what to await instead."""

    code = "loop_running"
