"""Asking a session that is not ours: the Python SDK's ``ClientSession``, or any object with its methods.

The rules are those of nanobot-ai 0.3.5: a deadline, one retry of a connection that hiccups, one replay after
a reconnect. What differs is what the model reads: an error of the server comes with its message and code, and
whatever failed is an error result. Nothing is known here of tools and results; that is ``wrappers`` and
``_foreign_render``.

No exception's text is logged, since clients put addresses with secrets into theirs.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from .._field import field
from ..base import ToolResult
from ..errors import NanobotToolsError

__all__ = ["Failed", "ask"]

_log = logging.getLogger("nanobot_tools.mcp")

#: Classes of exceptions, by name, that a restarted server or a broken connection leads to. By name, because
#: several of them belong to libraries that need not be installed.
_TRANSIENT = frozenset(
    (
        "BrokenPipeError",
        "BrokenResourceError",
        "ClosedResourceError",
        "ConnectionAbortedError",
        "ConnectionError",
        "ConnectionRefusedError",
        "ConnectionResetError",
        "EndOfStream",
    )
)
_ENDS_THE_PROCESS = (KeyboardInterrupt, SystemExit)
_ENDED = ("session terminated", "connection closed")


class Failed(Exception):
    """There is no result; ``result`` is what the model is told instead."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.result = ToolResult.error(text)


async def ask(
    what: str,
    name: str,
    timeout: float | None,
    request: Callable[[], Any],
    reconnect: Callable[[], Awaitable[bool]] | None,
) -> Any:
    """Make one request and await its reply.

    Args:
        what: What is asked for, as the texts name it: ``"MCP tool call"`` and the like.
        name: The wrapper's name, for the log.
        timeout: Seconds that each attempt may take.
        request: Makes the request on the session as it is by then.
        reconnect: Gets a new session, once, when the old one has ended; false if there is none.

    Raises:
        Failed: With the text for the model.
        asyncio.CancelledError: The caller was cancelled.
    """
    retried = False
    while True:
        try:
            return await _within(timeout, request)
        except TimeoutError:
            _log.warning("%s %r timed out after %ss", what, name, timeout)
            raise Failed(f"({what} timed out after {timeout}s)") from None
        except asyncio.CancelledError:
            if _cancelled():
                raise
            # The SDK's cancel scopes end requests like this, without anybody having cancelled the caller.
            _log.warning("%s %r was cancelled by the session", what, name)
            raise Failed(f"({what} was cancelled)") from None
        except (Exception, BaseExceptionGroup) as exc:
            if not isinstance(exc, Exception) and (_cancelled() or exc.subgroup(_ENDS_THE_PROCESS)):
                raise
            if reconnect is not None and _has_ended(exc):
                again, reconnect = reconnect, None
                _log.warning("%s %r: the session has ended, getting a new one", what, name)
                if await again():
                    continue
            kind = type(exc).__name__
            if kind not in _TRANSIENT:
                _log.warning("%s %r failed: %s", what, name, kind)
                raise Failed(f"({what} failed: {_said(exc)})") from exc
            if retried:
                _log.warning("%s %r failed after retry: %s", what, name, kind)
                raise Failed(f"({what} failed after retry: {kind})") from exc
            retried = True
            _log.warning("%s %r failed: %s, trying once more", what, name, kind)
        await asyncio.sleep(1)


async def _within(timeout: float | None, request: Callable[[], Any]) -> Any:
    reply = request()
    if not inspect.isawaitable(reply):
        return reply
    # A task of its own: what a session cancels is that task, and never the caller's.
    return await asyncio.wait_for(asyncio.ensure_future(reply), timeout)


def _cancelled() -> bool:
    """Whether somebody wants the current task to end."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _has_ended(exc: BaseException) -> bool:
    """Whether the session that raised this will answer no more."""
    if type(exc).__name__ in _TRANSIENT:
        return True
    try:
        texts = (str(exc), str(field(getattr(exc, "error", None), "message")))
    except Exception:  # An exception that cannot say what it is.
        return False
    return any(mark in text.lower() for mark in _ENDED for text in texts)


def _said(exc: BaseException) -> str:
    """What the model is told of an exception: the server's own words, or else what kind it is."""
    error = getattr(exc, "error", None)
    code, message = field(error, "code"), field(error, "message")
    if isinstance(code, int) and isinstance(message, str):
        return f"{message} [code {code}]"
    if isinstance(exc, NanobotToolsError):
        return str(exc)
    return type(exc).__name__
