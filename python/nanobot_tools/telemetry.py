"""Traces and metrics of tool calls through OpenTelemetry, where ``opentelemetry-api`` is installed.

Nothing happens before :func:`instrument` is called, and a process that does not call it pays nothing. Then
each tool call is a span ``execute_tool <name>``, inside of which the tool runs, and a value of the histogram
``gen_ai.execute_tool.duration``. A call to an MCP server says which, and is a value of
``mcp.client.operation.duration`` as well; the server is told the trace in ``_meta`` (``traceparent``,
``tracestate`` and ``baggage``, or whatever the propagators that are configured write). The same holds for
:meth:`MCPConnection.call_tool` and :meth:`MCPConnection.request`, which are spans of their own outside of
tool calls. Calls through :meth:`ToolRegistry.call_blocking` are not traced.

Names are those of OpenTelemetry's semantic conventions for generative AI (0.1), but for ``mcp.server.name``,
the server's name in the configuration. Arguments and results are never recorded.

Example:
    >>> from nanobot_tools import telemetry
    >>> telemetry.instrument()
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any

from . import _native
from ._native import Job, ToolOutcome
from .base import is_tool_error_result
from .errors import NanobotToolsError

__all__ = ["instrument", "is_instrumented", "uninstrument"]

#: Upper limits of the buckets of both histograms, in seconds.
_BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)
_METHODS = {"tool": "tools/call", "resource": "resources/read", "prompt": "prompts/get"}

#: Whether the span of a tool call tells of the MCP request already that is made inside of it.
_is_told: contextvars.ContextVar[bool] = contextvars.ContextVar("nanobot_tools_mcp_told", default=False)


class _Call:
    """One call: a span that is current while it runs, and how long it took.

    Attributes:
        kind: The kind of error that it ended in, to be set before the end.
    """

    def __init__(
        self, telemetry: _Telemetry, name: str, attributes: dict[str, Any], histograms: Iterable[Any]
    ) -> None:
        self._telemetry = telemetry
        self._name = name
        self._attributes = attributes
        self._histograms = histograms
        self.kind: str | None = None

    def __enter__(self) -> _Call:
        telemetry = self._telemetry
        is_remote = "mcp.method.name" in self._attributes
        kind = telemetry.trace.SpanKind.CLIENT if is_remote else telemetry.trace.SpanKind.INTERNAL
        self._span = telemetry.tracer.start_span(self._name, kind=kind, attributes=self._attributes)
        self._token = telemetry.context.attach(telemetry.trace.set_span_in_context(self._span))
        self._told = _is_told.set(is_remote)
        self._begun = time.perf_counter()
        return self

    def __exit__(self, _type: object, exc: BaseException | None, _traceback: object) -> None:
        took = time.perf_counter() - self._begun
        kind = self.kind or (None if exc is None else _kind_of(exc))
        if kind is not None:
            self._span.set_attribute("error.type", kind)
            self._span.set_status(self._telemetry.trace.StatusCode.ERROR)
        labels = _labels(self._attributes, kind)
        for histogram in self._histograms:
            histogram.record(took, labels)
        _is_told.reset(self._told)
        self._telemetry.context.detach(self._token)
        self._span.end()


class _Telemetry:
    """What calls are told to, and the methods that were replaced to hear of them."""

    def __init__(self, tracer_provider: Any, meter_provider: Any) -> None:
        try:
            from opentelemetry import (  # type: ignore[import-not-found, unused-ignore]
                context,
                metrics,
                propagate,
                trace,
            )
        except ImportError as exc:
            raise ImportError("tracing needs the package opentelemetry-api") from exc
        from . import __version__

        self.context = context
        self.trace = trace
        self._propagate = propagate
        name = "nanobot_tools"
        self.tracer = trace.get_tracer(name, __version__, tracer_provider=tracer_provider)
        meter = metrics.get_meter(name, __version__, meter_provider=meter_provider)
        self.calls = meter.create_histogram(
            "gen_ai.execute_tool.duration",
            unit="s",
            description="Duration of tool calls.",
            explicit_bucket_boundaries_advisory=_BUCKETS,
        )
        self.requests = meter.create_histogram(
            "mcp.client.operation.duration",
            unit="s",
            description="Duration of requests to MCP servers.",
            explicit_bucket_boundaries_advisory=_BUCKETS,
        )
        self._replaced: list[tuple[type, str, Any]] = []

    def meta(self) -> dict[str, str] | None:
        """What an MCP server is told of the current trace."""
        carrier: dict[str, str] = {}
        self._propagate.inject(carrier)
        return carrier or None

    def call(self, name: str, identity: Any, tool: Any) -> _Call:
        """The call of a tool; ``tool`` is the registered object, if there is one."""
        attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": name,
            "gen_ai.tool.type": "function",
        }
        if identity is not None:
            attributes["gen_ai.tool.call.id"] = str(identity)
        method = _METHODS.get(getattr(tool, "_kind", ""))
        server = getattr(tool, "_server_name", None)
        if method is None or not isinstance(server, str):
            return _Call(self, f"execute_tool {name}", attributes, (self.calls,))
        attributes["mcp.method.name"] = method
        if method == "resources/read" and tool._uri:
            attributes["mcp.resource.uri"] = str(tool._uri)
        if method == "prompts/get":
            attributes["gen_ai.prompt.name"] = str(tool._prompt_name)
        attributes |= _of_server(server, tool._session)
        return _Call(self, f"execute_tool {name}", attributes, (self.calls, self.requests))

    def request(self, connection: Any, method: str, params: Mapping[str, Any]) -> Any:
        """A request to a server; nothing further inside of a tool call that tells of it."""
        if _is_told.get():
            return contextlib.nullcontext()
        attributes = {"mcp.method.name": method, **_of_server(connection.name, connection)}
        target = None
        if method == "tools/call":
            target = str(params.get("name"))
            attributes |= {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": target}
        elif method == "prompts/get":
            target = str(params.get("name"))
            attributes["gen_ai.prompt.name"] = target
        elif method == "resources/read":
            attributes["mcp.resource.uri"] = str(params.get("uri"))
        return _Call(self, f"{method} {target}" if target else method, attributes, (self.requests,))

    def refused(self, outcome: ToolOutcome) -> None:
        """A call that never began."""
        if outcome.started == 0.0:
            with self.call(str(outcome.name), outcome.id, None) as call:
                call.kind = outcome.error_kind

    def install(self) -> None:
        """Hear of calls from now on."""
        from .executor import ToolExecutor
        from .mcp import MCPConnection
        from .registry import ToolRegistry

        telemetry = self
        execute, run, stream = ToolRegistry.execute, ToolExecutor.run, ToolExecutor.stream
        invoke, call_tool, request = ToolExecutor._invoke, MCPConnection.call_tool, MCPConnection.request

        @functools.wraps(execute)
        async def traced_execute(self: ToolRegistry, name: str, params: Any) -> Any:
            with telemetry.call(str(name), None, self.get(name)) as call:
                result = await execute(self, name, params)
                if is_tool_error_result(result):
                    call.kind = getattr(result, "error_kind", None) or "tool_error"
                return result

        @functools.wraps(invoke)
        async def traced_invoke(self: ToolExecutor, job: Job) -> None:
            with telemetry.call(str(job.name), job.id, job.tool) as call:
                try:
                    await invoke(self, job)
                finally:
                    # Of a call that is over its time, the outcome may have been taken.
                    call.kind = "timeout" if job.expired else job.error_kind

        @functools.wraps(run)
        async def traced_run(
            self: ToolExecutor, calls: Iterable[Any], *, timeout: float | None = None
        ) -> list[ToolOutcome]:
            outcomes = await run(self, calls, timeout=timeout)
            for outcome in outcomes:
                telemetry.refused(outcome)
            return outcomes

        @functools.wraps(stream)
        async def traced_stream(
            self: ToolExecutor, calls: Iterable[Any], *, timeout: float | None = None
        ) -> AsyncIterator[Any]:
            events: Any = stream(self, calls, timeout=timeout)
            async with contextlib.aclosing(events):
                async for event in events:
                    if event.outcome is not None:
                        telemetry.refused(event.outcome)
                    yield event

        @functools.wraps(call_tool)
        async def traced_call_tool(
            self: MCPConnection, name: str, arguments: Mapping[str, Any] | None = None, **options: Any
        ) -> dict[str, Any]:
            with telemetry.request(self, "tools/call", {"name": name}) as call:
                result = await call_tool(self, name, arguments, **options)
                if call is not None and result.get("isError") is True:
                    call.kind = "tool_error"
                return result

        @functools.wraps(request)
        async def traced_request(
            self: MCPConnection, method: str, params: Mapping[str, Any] | None = None, **options: Any
        ) -> dict[str, Any]:
            with telemetry.request(self, method, params or {}):
                return await request(self, method, params, **options)

        for owner, name, value in (
            (ToolRegistry, "execute", traced_execute),
            (ToolExecutor, "run", traced_run),
            (ToolExecutor, "stream", traced_stream),
            (ToolExecutor, "_invoke", traced_invoke),
            (ToolExecutor, "_is_traced", True),
            (MCPConnection, "call_tool", traced_call_tool),
            (MCPConnection, "request", traced_request),
        ):
            self._replaced.append((owner, name, vars(owner)[name]))
            setattr(owner, name, value)
        _native.set_call_meta(self.meta)

    def remove(self) -> None:
        """Hear of no further calls."""
        _native.set_call_meta(None)
        while self._replaced:
            owner, name, value = self._replaced.pop()
            setattr(owner, name, value)


def _of_server(name: str, session: Any) -> dict[str, Any]:
    """Which server it is and how it is reached, as far as the session is one of ours and says."""
    attributes = {"mcp.server.name": name}
    native = getattr(session, "_native", None)
    if not isinstance(native, _native.NativeConnection):
        return attributes
    is_pipe = native.transport == "stdio"
    attributes["network.transport"] = "pipe" if is_pipe else "tcp"
    if not is_pipe:
        attributes["network.protocol.name"] = "http"
    version = native.protocol_version
    if version is not None:
        attributes["mcp.protocol.version"] = version
    return attributes


#: What a histogram is told by; ids and addresses are without number.
_LABELS = (
    "gen_ai.operation.name",
    "gen_ai.tool.name",
    "gen_ai.prompt.name",
    "mcp.method.name",
    "mcp.protocol.version",
    "mcp.server.name",
    "network.transport",
    "network.protocol.name",
)


def _labels(attributes: Mapping[str, Any], kind: str | None) -> dict[str, Any]:
    labels = {name: attributes[name] for name in _LABELS if name in attributes}
    if kind is not None:
        labels["error.type"] = kind
        if kind in ("not_found", "invalid_call"):
            # A model can make up any number of names.
            labels.pop("gen_ai.tool.name", None)
    return labels


def _kind_of(exc: BaseException) -> str:
    if isinstance(exc, NanobotToolsError):
        return exc.code
    return "cancelled" if type(exc).__name__ == "CancelledError" else type(exc).__qualname__


_active: _Telemetry | None = None


def instrument(*, tracer_provider: Any = None, meter_provider: Any = None) -> None:
    """Trace and measure tool calls from now on, in the whole process; further calls change nothing.

    Args:
        tracer_provider: Where spans go; OpenTelemetry's global one by default.
        meter_provider: Where measurements go; OpenTelemetry's global one by default.

    Raises:
        ImportError: ``opentelemetry-api`` is not installed.
    """
    global _active
    if _active is None:
        telemetry = _Telemetry(tracer_provider, meter_provider)
        telemetry.install()
        _active = telemetry


def uninstrument() -> None:
    """Trace and measure no further calls. Those that run end as they began."""
    global _active
    if _active is not None:
        _active.remove()
        _active = None


def is_instrumented() -> bool:
    """Whether tool calls are traced and measured."""
    return _active is not None
