"""What surrounds tools: the context they are made from, and that of the current request.

Names and meaning are those of nanobot-ai 0.3.5 (``nanobot.agent.tools.context``). Where nanobot is loaded in
the same process, its context variable is the one that is read and written here as well, so that a tool sees
the same request whichever of the two modules it imported: docs/decisions/0004-request-context.md.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

__all__ = [
    "ContextAware",
    "RequestContext",
    "ToolContext",
    "bind_request_context",
    "current_request_context",
    "current_request_session_key",
    "request_context",
    "reset_request_context",
]

_OWN: ContextVar[Any] = ContextVar("nanobot_tool_request_context", default=None)


def _variable() -> ContextVar[Any]:
    """The one variable of this process: nanobot's where it is loaded, else our own."""
    nanobot = sys.modules.get("nanobot.agent.tools.context")
    return getattr(nanobot, "_CURRENT_REQUEST_CONTEXT", _OWN)


@dataclass(frozen=True)
class RequestContext:
    """The request that a tool is called for.

    Attributes:
        channel: Where the request came from.
        chat_id: The conversation on that channel.
        message_id: The message that is answered.
        session_key: The session that the conversation belongs to.
        original_user_text: What the user wrote.
        runtime: The model that answers, as the host describes it.
        metadata: What the channel says about the message.
        sender_id: Who wrote it.
        turn_id: The turn that this is.
        workspace: The folder that tools work in.
        attributes: Anything else.
    """

    channel: str
    chat_id: str
    message_id: str | None = None
    session_key: str | None = None
    original_user_text: str | None = None
    runtime: Any = None
    metadata: dict[str, Any] = field(default_factory=dict)
    sender_id: str | None = None
    turn_id: str | None = None
    workspace: Path | None = None
    attributes: dict[str, Any] = field(default_factory=dict)


@runtime_checkable
class ContextAware(Protocol):
    """A tool that is told of the request before each call; reading the context is the newer way."""

    def set_context(self, ctx: RequestContext) -> None:
        """Take the request's context."""
        ...


def bind_request_context(ctx: RequestContext) -> Token[Any]:
    """Make ``ctx`` the current request's context; returns a token for :func:`reset_request_context`."""
    return _variable().set(ctx)


def reset_request_context(token: Token[Any]) -> None:
    """Put back the context that was current before the token was made."""
    token.var.reset(token)


@contextmanager
def request_context(ctx: RequestContext) -> Iterator[RequestContext]:
    """Make ``ctx`` the current request's context for a ``with`` block."""
    token = bind_request_context(ctx)
    try:
        yield ctx
    finally:
        reset_request_context(token)


def current_request_context() -> RequestContext | None:
    """The current request's context, or ``None`` outside of requests."""
    context: RequestContext | None = _variable().get()
    if context is None:
        # Bound here before nanobot was loaded.
        context = _OWN.get()
    return context


def current_request_session_key() -> str | None:
    """The session key of the current request, or ``None``."""
    ctx = current_request_context()
    return ctx.session_key if ctx else None


@dataclass
class ToolContext:
    """What tools are made from: the parts of the host that a tool may need.

    Attributes:
        config: The configuration of tools. Unlike the reference's, it may be left out.
        workspace: Path of the folder that tools work in (default: the current directory).
        bus: The host's message bus.
        subagent_manager: Starts subagents.
        cron_service: Scheduled jobs.
        exec_session_manager: Long-running shell sessions.
        sessions: The conversations.
        file_state_store: What is known of files that were read.
        provider_snapshot_loader: Gives the model's provider.
        image_generation_provider_configs: Providers of images by name.
        timezone: The user's time zone.
        workspace_sandbox: How the workspace is confined.
        runtime_control: Controls the running agent.
    """

    config: Any = None
    workspace: str = "."
    bus: Any = None
    subagent_manager: Any = None
    cron_service: Any = None
    exec_session_manager: Any = None
    sessions: Any = None
    file_state_store: Any = None
    provider_snapshot_loader: Callable[..., Any] | None = None
    image_generation_provider_configs: dict[str, Any] | None = None
    timezone: str = "UTC"
    workspace_sandbox: Any = None
    runtime_control: Any = None
