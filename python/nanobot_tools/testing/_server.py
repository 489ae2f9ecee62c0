"""The scripted MCP server: tools made of a test's own functions, and faults to order."""

from __future__ import annotations

import asyncio
import base64
import contextvars
import inspect
import json
import re
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from .. import _dispatch
from .._results import plain, shown
from ..base import Tool
from ..decorator import FunctionTool, tool
from ..errors import MCPError
from ._wire import Endpoint, HttpEndpoint, Request, StdioEndpoint, agreed, unknown_method
from .echo_server import INVALID_PARAMS, RpcError

if TYPE_CHECKING:
    from ..mcp import MCPCallbacks, MCPConnection
    from ..registry import ToolRegistry

__all__ = ["Call", "ScriptedServer"]

_T = TypeVar("_T")

#: Seconds that functions still running get when their server is closed.
GRACE = 5.0

#: Types of content that a tool may return as it is.
_CONTENT = frozenset(("text", "image", "audio", "resource", "resource_link"))

_current: contextvars.ContextVar[Request | None] = contextvars.ContextVar("mcp_server_request", default=None)


class Call(NamedTuple):
    """A call that reached a server: the tool's raw name, and the arguments as they came."""

    tool: str
    arguments: dict[str, Any]


class ScriptedServer:
    """An MCP server whose tools are functions of the test; from the fixture ``mcp_server``.

    Over stdio each client starts a process of its own, which leads back to the test; over HTTP the server
    listens on a loopback port. Either way it runs in a thread of its own, so that methods may be called from
    anywhere, also from inside its tools.

    Attributes:
        name: The server's name.
        transport: ``"stdio"`` or ``"http"``.
        calls: The calls of tools that arrived, in order; each equals ``(tool, arguments)``.
        requests: All messages of clients, in order, as objects.
        cancelled: Names of the tools whose calls a client took back.
    """

    def __init__(
        self,
        tools: Iterable[Any] = (),
        *,
        resources: Mapping[str, Any] | None = None,
        prompts: Mapping[str, Any] | None = None,
        name: str = "demo",
        transport: str = "stdio",
        instructions: str | None = None,
    ) -> None:
        endpoints: dict[str, type[Endpoint]] = {"stdio": StdioEndpoint, "http": HttpEndpoint}
        if transport not in endpoints:
            raise ValueError(f"transport must be 'stdio' or 'http', not {transport!r}")
        self.name = name
        self.transport = transport
        self.calls: list[Call] = []
        self.requests: list[dict[str, Any]] = []
        self.cancelled: list[str] = []
        self._tools = _offered(tools)
        self._resources = dict(resources or {})
        self._prompts = dict(prompts or {})
        self._instructions = instructions
        self._answers: dict[str, list[Any]] = {}
        self._delays: dict[str, float] = {}
        self._threads: set[threading.Thread] = set()
        try:
            # Where the test runs: there its coroutine functions find what else belongs to the test.
            self._test_loop: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()
        except RuntimeError:
            self._test_loop = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=f"mcp-server-{name}", daemon=True)
        self._endpoint = endpoints[transport](self._serve, self.requests.append)
        self._thread.start()
        try:
            self._wait(self._endpoint.open())
        except BaseException:
            self.close()
            raise

    @property
    def entry(self) -> dict[str, Any]:
        """The entry of a configuration that leads to the server; a new dict each time."""
        return self._endpoint.entry

    @asynccontextmanager
    async def connect(
        self, registry: ToolRegistry | None = None, *, callbacks: MCPCallbacks | None = None, **options: Any
    ) -> AsyncIterator[MCPConnection]:
        """Connect to the server for the length of an ``async with``.

        Args:
            registry: Where the tools go, as ``mcp_<name>_<tool>``.
            callbacks: What the host does for the server.
            **options: Further fields of the entry, such as ``toolTimeout``.
        """
        from ..mcp import connect_mcp_server

        entry = {**self.entry, **options}
        async with await connect_mcp_server(
            self.name, entry, registry=registry, callbacks=callbacks
        ) as connection:
            yield connection

    # -- what is ordered -------------------------------------------------------------------------------

    def fail_next(self, tool: str, error: str | MCPError = "the tool failed", *, times: int = 1) -> None:
        """Have the next calls of a tool fail, without calling the function.

        Args:
            tool: Its raw name.
            error: The text of an error result; or an :class:`~nanobot_tools.MCPError`, which becomes a
                JSON-RPC error.
            times: How many calls.

        Raises:
            ValueError: There is no such tool.
        """
        self._known(tool)
        answer = error if isinstance(error, MCPError) else {**_text(str(error)), "isError": True}
        self._answers.setdefault(tool, []).extend([answer] * times)

    def answer_next(self, tool: str, result: Mapping[str, Any]) -> None:
        """Have the next call of a tool answered with this result of ``tools/call``, whatever it holds.

        Raises:
            ValueError: There is no such tool.
        """
        self._known(tool)
        self._answers.setdefault(tool, []).append(dict(result))

    def delay(self, tool: str, seconds: float) -> None:
        """Have the calls of a tool wait before they are answered, from now on; 0 ends it.

        Raises:
            ValueError: There is no such tool.
        """
        self._known(tool)
        self._delays[tool] = seconds

    def drop_connection(self) -> None:
        """Break what connects the clients: the pipes of the process, or the connections over HTTP."""
        self._do(self._endpoint.drop)

    def exit(self, status: int = 1) -> None:
        """End the process of the server with a status. Over HTTP: forget all sessions, as after a restart."""
        self._do(lambda: self._endpoint.exit(status))

    def garbage(self, text: str = "this is no JSON {") -> None:
        """Send what is no message: a line on standard output at once, or the next answer over HTTP."""
        self._do(lambda: self._endpoint.garbage(text))

    def write_stderr(self, text: str) -> None:
        """Write to the standard error of the process.

        Raises:
            ValueError: The server has none, as it is not over stdio.
        """
        if not isinstance(self._endpoint, StdioEndpoint):
            raise ValueError(f"server {self.name!r} is over {self.transport} and has no standard error")
        endpoint = self._endpoint
        self._do(lambda: endpoint.write_stderr(text))

    def change_tools(self, tools: Iterable[Any]) -> None:
        """Offer other tools from now on, and say so (``notifications/tools/list_changed``)."""
        self._tools = _offered(tools)
        self.notify("notifications/tools/list_changed")

    def notify(self, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Send a notification to all clients."""
        message = {"jsonrpc": "2.0", "method": method, "params": dict(params or {})}
        self._do(lambda: self._endpoint.push(message))

    def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Report progress of the call that the current function was called for.

        A client that asked for none is told nothing.

        Raises:
            RuntimeError: The current code was not called for a tool of a server.
        """
        request = _current.get()
        if request is None:
            raise RuntimeError("progress is reported by a function that a server calls as a tool")
        token = _member(request.params, "_meta").get("progressToken")
        if token is None:
            return
        report = {"progressToken": token, "progress": progress, "total": total, "message": message}
        told = {key: value for key, value in report.items() if value is not None}
        self._do(lambda: request.notify("notifications/progress", told))

    async def wait_for_calls(self, count: int = 1, *, timeout: float = 10.0) -> list[Call]:
        """Wait until so many calls have arrived; the calls.

        Raises:
            TimeoutError: Fewer arrived in time.
        """
        deadline = time.monotonic() + timeout
        while len(self.calls) < count:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{len(self.calls)} calls arrived in {timeout:g} s, not {count}")
            await asyncio.sleep(0.005)
        return list(self.calls)

    def close(self) -> None:
        """End the server, its connections and its processes; closing twice does nothing more.

        Raises:
            RuntimeError: A function of the test goes on for more than 5 s.
        """
        if self._loop.is_closed():
            return
        self._wait(self._endpoint.aclose())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        deadline = time.monotonic() + GRACE
        for thread in list(self._threads):
            thread.join(max(deadline - time.monotonic(), 0))
        stuck = sorted(thread.name for thread in self._threads if thread.is_alive())
        if stuck:
            raise RuntimeError(f"server {self.name!r}: still running after {GRACE:g} s: {', '.join(stuck)}")

    def __repr__(self) -> str:
        return f"<ScriptedServer {self.name!r} over {self.transport}, {len(self._tools)} tools>"

    # -- the thread ------------------------------------------------------------------------------------

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def _wait(self, work: Coroutine[Any, Any, _T]) -> _T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    def _do(self, order: Callable[[], object]) -> None:
        """Run something on the server's loop, and wait for it."""
        if self._loop.is_closed():
            raise RuntimeError(f"server {self.name!r} is closed")
        if threading.current_thread() is self._thread:
            order()
            return

        async def work() -> None:
            order()

        self._wait(work())

    # -- the protocol ----------------------------------------------------------------------------------

    async def _serve(self, request: Request) -> dict[str, Any]:
        method, params = request.method, request.params
        if method == "initialize":
            return self._about(agreed(params))
        if method == "tools/list":
            return {"tools": [_listed(offer) for offer in self._tools.values()]}
        if method == "tools/call":
            return await self._call(request)
        if self._resources and method == "resources/list":
            return {"resources": [{"uri": uri, "name": uri} for uri in self._resources if "{" not in uri]}
        if self._resources and method == "resources/templates/list":
            listed = [{"uriTemplate": uri, "name": uri} for uri in self._resources if "{" in uri]
            return {"resourceTemplates": listed}
        if self._resources and method == "resources/read":
            return await self._read(params.get("uri"))
        if self._prompts and method == "prompts/list":
            return {"prompts": [_prompt(name, prompt) for name, prompt in self._prompts.items()]}
        if self._prompts and method == "prompts/get":
            return await self._get(params)
        if method in ("ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"):
            return {}
        raise unknown_method(method)

    def _about(self, version: str) -> dict[str, Any]:
        capabilities: dict[str, Any] = {"tools": {"listChanged": True}, "logging": {}}
        if self._resources:
            capabilities["resources"] = {"subscribe": True, "listChanged": True}
        if self._prompts:
            capabilities["prompts"] = {"listChanged": True}
        about: dict[str, Any] = {
            "protocolVersion": version,
            "capabilities": capabilities,
            "serverInfo": {"name": self.name, "version": "1.0.0"},
        }
        if self._instructions is not None:
            about["instructions"] = self._instructions
        return about

    async def _call(self, request: Request) -> dict[str, Any]:
        name, arguments = request.params.get("name"), _member(request.params, "arguments")
        offer = self._tools.get(name) if isinstance(name, str) else None
        if offer is None or not isinstance(name, str):
            raise RpcError(INVALID_PARAMS, f"no tool {name!r}")
        self.calls.append(Call(name, arguments))
        try:
            if (seconds := self._delays.get(name, 0)) > 0:
                await asyncio.sleep(seconds)
            if answers := self._answers.get(name):
                return _answered(answers.pop(0))
            if not isinstance(offer, Tool):
                return {"content": []}
            if failures := offer.validate_params(arguments):
                raise RpcError(INVALID_PARAMS, "; ".join(failures))
            token = _current.set(request)
            try:
                result = await self._execute(name, offer, arguments)
            finally:
                _current.reset(token)
        except asyncio.CancelledError:
            self.cancelled.append(name)
            raise
        except MCPError as exc:
            raise _rpc(exc) from exc
        except RpcError:
            raise
        except Exception as exc:
            return {**_text(str(exc) or type(exc).__name__), "isError": True}
        return _result(result)

    async def _execute(self, name: str, offer: Tool, arguments: dict[str, Any]) -> Any:
        if isinstance(offer, FunctionTool):
            # The function itself, whose result need not be text.
            args, named = offer._call.bind(dict(arguments))
            return await self._invoke(name, offer._function, *args, **named)
        if _dispatch.mode(offer) == _dispatch.LOOP:
            raise TypeError(f"tool {name!r} is one of nanobot's own, which a scripted server does not run")
        return await self._invoke(name, offer.execute, **arguments)

    async def _invoke(self, name: str, function: Callable[..., Any], /, *args: Any, **named: Any) -> Any:
        """Call a function of the test: on the test's loop if it is async, otherwise in a thread."""
        if inspect.iscoroutinefunction(function):
            return await self._await(function(*args, **named))
        result = await self._in_thread(name, lambda: function(*args, **named))
        return await self._await(result) if inspect.isawaitable(result) else result

    async def _await(self, work: Awaitable[Any]) -> Any:
        if self._test_loop is None or self._test_loop is self._loop:
            return await work

        async def await_it() -> Any:
            return await work

        waiting = await_it()
        try:
            return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(waiting, self._test_loop))
        except RuntimeError:
            if self._test_loop.is_closed() and inspect.iscoroutine(work):
                waiting.close()
                work.close()
            raise

    async def _in_thread(self, name: str, work: Callable[[], Any]) -> Any:
        future: asyncio.Future[Any] = self._loop.create_future()
        context = contextvars.copy_context()

        def settle(result: Any, error: BaseException | None) -> None:
            if future.cancelled():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)

        def run() -> None:
            result: Any = None
            error: BaseException | None = None
            try:
                result = context.run(work)
            except StopIteration as exc:
                error = RuntimeError(f"the function raised {exc!r}")
            except Exception as exc:
                error = exc
            except BaseException as exc:
                error = RuntimeError(f"the function raised {exc!r}")
            self._threads.discard(threading.current_thread())
            if not self._loop.is_closed():
                self._loop.call_soon_threadsafe(settle, result, error)

        # Not in a pool: one that is stuck must not keep the interpreter from ending.
        thread = threading.Thread(target=run, name=f"mcp-server-{self.name}-{name}", daemon=True)
        self._threads.add(thread)
        thread.start()
        return await future

    async def _read(self, uri: Any) -> dict[str, Any]:
        found = self._resource(uri) if isinstance(uri, str) else None
        if found is None:
            raise RpcError(-32002, f"no resource {uri!r}")
        content, variables = found
        if callable(content):
            content = await self._invoke("resource", content, **variables)
        if isinstance(content, (bytes, bytearray)):
            item: dict[str, Any] = {"blob": base64.b64encode(content).decode()}
        else:
            item = {"text": content if isinstance(content, str) else json.dumps(plain(content))}
        return {"contents": [{"uri": uri, **item}]}

    def _resource(self, uri: str) -> tuple[Any, dict[str, str]] | None:
        if uri in self._resources:
            return self._resources[uri], {}
        for template, content in self._resources.items():
            parts = re.split(r"\{(\w+)\}", template)
            if len(parts) > 1:
                pattern = "".join(
                    f"(?P<{part}>[^/]+)" if index % 2 else re.escape(part) for index, part in enumerate(parts)
                )
                if match := re.fullmatch(pattern, uri):
                    return content, match.groupdict()
        return None

    async def _get(self, params: Mapping[str, Any]) -> dict[str, Any]:
        name = params.get("name")
        if name not in self._prompts:
            raise RpcError(INVALID_PARAMS, f"no prompt {name!r}")
        prompt = self._prompts[name]
        if callable(prompt):
            arguments = _member(params, "arguments")
            try:
                inspect.signature(prompt).bind(**arguments)
            except TypeError as exc:
                raise RpcError(INVALID_PARAMS, str(exc)) from exc
            prompt = await self._invoke("prompt", prompt, **arguments)
        if isinstance(prompt, str):
            return {"messages": [{"role": "user", "content": {"type": "text", "text": prompt}}]}
        return {"messages": list(prompt)}

    def _known(self, name: str) -> None:
        if name not in self._tools:
            raise ValueError(f"server {self.name!r} has no tool {name!r}, only {sorted(self._tools)}")


def _offered(tools: Iterable[Any]) -> dict[str, Any]:
    """Tools by name: made of functions, tools as they are, and dicts that are only listed."""
    offered: dict[str, Any] = {}
    for item in tools:
        offer = item if isinstance(item, (Tool, Mapping)) else tool(item)
        offered[offer["name"] if isinstance(offer, Mapping) else offer.name] = offer
    return offered


def _listed(offer: Any) -> dict[str, Any]:
    if isinstance(offer, Mapping):
        return dict(offer)
    return {
        "name": offer.name,
        "description": offer.description,
        "inputSchema": offer.parameters,
        "annotations": {"readOnlyHint": offer.read_only},
    }


def _prompt(name: str, prompt: Any) -> dict[str, Any]:
    if not callable(prompt):
        return {"name": name}
    listed: dict[str, Any] = {
        "name": name,
        "arguments": [
            {"name": parameter.name, "required": parameter.default is parameter.empty}
            for parameter in inspect.signature(prompt).parameters.values()
        ],
    }
    if about := inspect.getdoc(prompt):
        listed["description"] = about
    return listed


def _answered(answer: Any) -> dict[str, Any]:
    if isinstance(answer, MCPError):
        raise _rpc(answer)
    result: dict[str, Any] = answer
    return result


def _rpc(exc: MCPError) -> RpcError:
    return RpcError(exc.rpc_code, exc.message, exc.data)


def _member(params: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = params.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise RpcError(INVALID_PARAMS, f"{name} must be an object")
    return value


def _result(result: Any) -> dict[str, Any]:
    """What a function returned, as the result of a call."""
    if isinstance(result, Mapping) and isinstance(result.get("content"), list):
        return dict(result)
    if isinstance(result, list) and result and all(_is_content(item) for item in result):
        return {"content": result}
    text = shown(result)
    content = _text("" if text is None else text if isinstance(text, str) else json.dumps(plain(text)))
    return {**content, "isError": True} if getattr(result, "is_error", False) is True else content


def _is_content(item: Any) -> bool:
    return isinstance(item, dict) and item.get("type") in _CONTENT


def _text(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}]}
