# Generated from the Rust sources by `make stubs`; do not edit.
"""
The native half of `nanobot_tools`; private, wrapped by the Python modules beside it.
"""

from contextvars import ContextVar
from os import PathLike
from pathlib import Path
from typing import Any, Final, SupportsFloat, SupportsIndex, final

from _typeshed import SupportsGetItem
from typing_extensions import disjoint_base

VERSION: Final[str]
"""
The version of the package.
"""

@final
class Answer:
    """
    Takes the answer to one question of a server's. The first answer counts; without any, the server is
    told that nobody answered.
    """
    def error(self, /, code: SupportsIndex, message: str) -> None:
        """
        Answer with a JSON-RPC error.
        """
    def result(self, /, result: Any) -> None:
        """
        Answer with a result.

        Raises `TypeError` or `ValueError` when it is no JSON object; the question is still open then.
        """

@final
class Cancel:
    """
    A native call that can be cancelled from Python.
    """
    def cancel(self, /) -> None:
        """
        Ask the call to stop; later calls do nothing.
        """

@final
class CompiledSchema:
    """
    A JSON Schema made ready for casting and validating arguments.
    """
    def __new__(cls, /, schema: Any) -> CompiledSchema:
        """
        Compile `schema`; odd schemas are repaired, `warning` says how.
        """
    def cast(self, /, params: Any) -> Any:
        """
        `params` with the schema's casts applied; the same object when nothing changes.
        """
    def failures(self, /, value: Any) -> list[tuple[str, str, str]]:
        """
        The failures of `value` as (JSON Pointer, keyword, message).
        """
    def prepare(self, /, tool_name: str, params: Any) -> tuple[Any, str | None, list[tuple[str, str, str]]]:
        """
        Unwrap, cast and validate the arguments of a call of `tool_name`.

        Returns the arguments, the error's text or None, and the failures.
        """
    @property
    def schema(self, /) -> Any:
        """
        The schema as it is checked, after repairs; a fresh copy.
        """
    def validate(self, /, value: Any, path: str = "") -> list[str]:
        """
        The failures of `value` as texts; empty when it is valid.
        """
    @property
    def warning(self, /) -> str | None:
        """
        What is wrong with the schema itself, or None.
        """

@final
class CountedCall:
    """
    A call of a Python tool that `ToolRegistry.execute` makes: counts it, and shows how it ended.
    """
    def cancelled(self, /) -> None:
        """
        The caller was cancelled, or the process is to end.
        """
    def raised(self, /, exception: Any) -> Any:
        """
        The tool raised; what the model is shown for it.
        """
    def returned(self, /, result: Any) -> Any:
        """
        The tool returned; what the model is shown for it.
        """
    def succeeded(self, /) -> None:
        """
        The tool has ended well.
        """

@final
class CurrentCall:
    """
    The call inside which the current code runs; from `current_call()`.

    Usable from any thread.
    """
    def __new__(cls, /, name: Any, id: Any | None = None) -> CurrentCall: ...
    def __repr__(self, /) -> str: ...
    @property
    def cancelled(self, /) -> bool:
        """
        Whether the call was cancelled or is over its deadline, so that going on is of no use.
        """
    @property
    def deadline(self, /) -> float | None:
        """
        When the call must have ended, on the clock of `time.monotonic()`; `None` without a limit.
        """
    @property
    def id(self, /) -> Any | None:
        """
        The provider's id of the call; `None` for a call made by `ToolRegistry.execute`.
        """
    @property
    def name(self, /) -> Any:
        """
        The tool's name.
        """
    def progress(
        self,
        /,
        progress: SupportsFloat | SupportsIndex,
        total: SupportsFloat | SupportsIndex | None = None,
        message: str | None = None,
    ) -> None:
        """
        Report progress: work done so far, all the work if known, and a line for people.

        It becomes an event of `ToolExecutor.stream`; elsewhere it is dropped.
        """
    def raise_if_cancelled(self, /) -> None:
        """
        Raise `ToolCancelledError` if the call was cancelled or is over its deadline.
        """
    def remaining(self, /) -> float | None:
        """
        Seconds until the deadline, 0.0 once it has passed; `None` without a limit.
        """

@final
class Job:
    """
    See the module's text.
    """
    def __await__(self, /) -> Job: ...
    def __iter__(self, /) -> Job: ...
    def __next__(self, /) -> Any: ...
    @property
    def alone(self, /) -> bool:
        """
        Whether it is the only call of its batch.
        """
    @property
    def arguments(self, /) -> Any:
        """
        The arguments, cast and valid.
        """
    def call(self, /) -> Any:
        """
        The call as a `ToolCall`.
        """
    def cancelled(self, /) -> None:
        """
        The call was cancelled.
        """
    def close(self, /) -> None:
        """
        Close the tool's coroutine; see `collections.abc.Coroutine`.
        """
    @property
    def current(self, /) -> CurrentCall:
        """
        The call as the tool's code sees it.
        """
    def end_with(self, /, outcome: ToolOutcome) -> None:
        """
        End the call with an outcome.
        """
    @property
    def ended(self, /) -> bool:
        """
        Whether the call has its outcome.
        """
    @property
    def error_kind(self, /) -> str | None:
        """
        The kind of error that the call ended in; `None` before, and once its outcome was handed over.
        """
    def expire(self, /, stuck: bool) -> None:
        """
        End the call as timed out; with `stuck` it did not stop when cancelled and keeps its slot.
        """
    @property
    def expired(self, /) -> bool:
        """
        Whether the call is over its limit.
        """
    def fail(self, /, exception: Any) -> None:
        """
        The tool raised.
        """
    def finish(self, /, result: Any) -> None:
        """
        The tool returned; a call that has its outcome only frees its slot.
        """
    @property
    def id(self, /) -> Any:
        """
        The id of the call.
        """
    @property
    def mode(self, /) -> int:
        """
        0 coroutine function, 1 plain function, 2 on the loop, 3 native.
        """
    @property
    def name(self, /) -> Any:
        """
        The tool's name.
        """
    def outcome_of(self, /, result: Any) -> ToolOutcome:
        """
        The outcome that `result` would give, without ending the call.
        """
    def outcome_of_error(self, /, exception: Any) -> ToolOutcome:
        """
        The outcome that raising `exception` would give, without ending the call.
        """
    @property
    def plain(self, /) -> bool:
        """
        Whether the call is just that of a coroutine function beside others, without a time limit: then the
        job can be made a task as it is.
        """
    def refuse(self, /, text: str) -> None:
        """
        The call was refused with this text before it began.
        """
    def release(self, /, *_args: Any) -> None:
        """
        What the call ran on has ended: free its slot. From any thread.
        """
    def rewrite(self, /, arguments: Any) -> Any | None:
        """
        Put other arguments in place, cast and validated; the error result if they do not fit.
        """
    def send(self, /, value: Any) -> Any:
        """
        Step the tool's coroutine; see `collections.abc.Coroutine`.
        """
    def start_native(self, /) -> Any:
        """
        Start the native tool; a future of what the model is shown.
        """
    def throw(self, /, kind: Any, value: Any | None = None, traceback: Any | None = None) -> Any:
        """
        Raise inside the tool's coroutine; see `collections.abc.Coroutine`.
        """
    def time_is_up(self, /) -> None:
        """
        The call's time is up: what comes now is too late. A plain function has its outcome at once.
        """
    @property
    def timeout(self, /) -> float | None:
        """
        Seconds that the call may take, or `None`.
        """
    @property
    def tool(self, /) -> Any:
        """
        The registered object.
        """

@final
class LoopBridge:
    """
    Drains the queue of the loop that watches it.
    """
    def drain(self, /) -> None:
        """
        Settle everything that has finished; called by the loop.
        """

@final
class MCPRenderer:
    """
    Renders the results of one tool, resource or prompt.

    `kind` is `tool`, `resource` or `prompt`. `artifacts` is the folder for data; by default images
    and other data of calls go to the user's, and of resources and prompts only the size is shown, as
    in the reference. `max_result_bytes` is the length from which a text is shown as a preview, by
    default none.
    """
    def __new__(
        cls,
        /,
        kind: str,
        server: str,
        tool: str,
        artifacts: str | PathLike[str] | None = None,
        max_result_bytes: SupportsIndex | None = None,
    ) -> MCPRenderer: ...
    def render(self, /, result: Any, arguments: dict[Any, Any]) -> Any:
        """
        The text for the model and whether it is an error; or a future of both where files may have
        to be written.

        What has no JSON form in the result is taken for null. `arguments` are those of the call.
        """

@final
class NativeConnection:
    """
    One MCP server, kept connected; made by `open_server`.
    """
    def call_tool(
        self, /, name: str, arguments: Any, timeout: SupportsFloat | SupportsIndex | None, report: Any | None
    ) -> Any:
        """
        Call a tool by its raw name; a future of the server's whole result as objects.

        `report(progress, total, message)` is called on the loop for each report of progress, before the
        future is done.
        """
    @property
    def capabilities(self, /) -> Any:
        """
        What the server says it can do; a new dict each time.
        """
    def claim_names(self, /, taken: set[str]) -> list[str]:
        """
        Rename the tools whose names are taken; a line for each.
        """
    def close(self, /, drain: SupportsFloat | SupportsIndex = 0.0) -> Any:
        """
        Close the connection and end the server; a future. Calls that run get up to `drain` seconds. Closing
        twice does nothing more.
        """
    @property
    def failure(self, /) -> Any | None:
        """
        Why the last attempt or connection failed, as an exception; `None` while it is well.
        """
    @property
    def instructions(self, /) -> str | None:
        """
        The server's own instructions for the model, or `None`.
        """
    def kill(self, /) -> None:
        """
        End the server at once, without waiting; for the end of the process.
        """
    @property
    def name(self, /) -> str:
        """
        The server's name in the configuration.
        """
    def notify(self, /, method: str, params: Any) -> None:
        """
        Send any notification.
        """
    @property
    def offers(self, /) -> list[tuple[str, str, NativeTool]]:
        """
        What the server offers to a model: `("tool" | "resource" | "prompt", raw name or address, tool)` each.
        """
    @property
    def pid(self, /) -> int | None:
        """
        The process that runs, or `None` if there is none.
        """
    @property
    def protocol_version(self, /) -> str | None:
        """
        The protocol version that was agreed on, or `None` before the server was reached.
        """
    def read_list(self, /, kind: str) -> Any:
        """
        Read a whole list as the server sends it; a future of the items as objects.

        `kind` is `tools`, `resources`, `resource_templates` or `prompts`.
        """
    def reconnect(self, /) -> None:
        """
        Start the next attempt now, or have the connection checked.
        """
    def request(self, /, method: str, params: Any, timeout: SupportsFloat | SupportsIndex | None) -> Any:
        """
        Make any request; a future of the result as objects.
        """
    def retry(self, /, timeout: SupportsFloat | SupportsIndex | None = None) -> Any:
        """
        Start the next attempt now unless the server is there; the state once it is over, but at the latest
        after `timeout` seconds (the entry's `startupWait` by default); a future.
        """
    @property
    def server_info(self, /) -> tuple[str, str] | None:
        """
        Name and version that the server gave of itself, or `None` before it was reached.
        """
    def set_logging_level(self, /, level: str) -> Any:
        """
        Say which messages the server should log; a future.
        """
    def settled(self, /, timeout: SupportsFloat | SupportsIndex | None = None) -> Any:
        """
        The state, once the first attempt is over or the tools are known from the cache, but at the latest
        after `timeout` seconds (the entry's `startupWait` by default); a future.
        """
    @property
    def state(self, /) -> str:
        """
        `recipe`, `disabled`, `cached`, `connecting`, `ready`, `lost`, `needs-authorisation`,
        `reconnecting` or `closed`.
        """
    def stats(self, /) -> dict[Any, Any]:
        """
        What came of requests to the server; a new dict each time.
        """
    def status(self, /) -> dict[Any, Any]:
        """
        How the server is; a new dict each time.
        """
    @property
    def stderr(self, /) -> str:
        """
        The last 64 KiB that the server wrote to stderr.
        """
    @property
    def stderr_tail(self, /) -> str:
        """
        The last lines that the server wrote to stderr.
        """
    def subscribe(self, /, uri: str, on: bool) -> Any:
        """
        Hear of changes of a resource, or no more; a future.
        """
    @property
    def transport(self, /) -> str:
        """
        How the server is reached: `stdio`, `sse` or `streamableHttp`.
        """
    def update(self, /, config: Any) -> bool:
        """
        Take a changed entry without a restart; false if the server has to be opened anew.

        Raises `ConfigError` that names the entry and what is wrong with it.
        """
    @property
    def warnings(self, /) -> list[str]:
        """
        What was odd about the entry or the server without being fatal.
        """

@final
class NativeExecutor:
    """
    Native half of `ToolExecutor`.
    """
    def __new__(
        cls,
        /,
        registry: NativeRegistry,
        max_concurrency: SupportsIndex | None,
        timeout: SupportsFloat | SupportsIndex | None,
        concurrent: bool,
        per_tool: Any | None,
        per_server: Any | None,
        repeat_limit: SupportsIndex | None,
    ) -> NativeExecutor: ...
    def begin(
        self,
        /,
        calls: SupportsGetItem[int, Any],
        timeout: SupportsFloat | SupportsIndex | None,
        hooked: bool,
        events: bool,
    ) -> PyRun:
        """
        Plan a run on the loop of this thread; nothing starts before `advance`.
        """
    def plan(self, /, calls: SupportsGetItem[int, Any]) -> list[list[Any]]:
        """
        The batches in which `calls` would run.
        """
    def reset_repeats(self, /) -> None:
        """
        Forget the calls that the guard against repeats has counted.
        """
    @property
    def running(self, /) -> int:
        """
        Slots that are taken now.
        """

@disjoint_base
class NativeRegistry:
    """
    Native half of `ToolRegistry`.
    """
    def __contains__(self, name: Any, /) -> bool: ...
    def __len__(self, /) -> int: ...
    def __new__(cls, /, *_args: Any, **_options: Any) -> NativeRegistry: ...
    def _start(self, /, name: Any, params: Any) -> Any:
        """
        Begin a call: a future (native tool), `(tool, arguments, mode, call)` (Python tool), or the final
        error result. `call` has to be told how it ends.
        """
    def _stats(self, /) -> tuple[dict[Any, Any], int]:
        """
        What came of calls: the statistics of each tool that was called, and how many calls named no tool.
        """
    @property
    def _tools(self, /) -> dict[Any, Any]:
        """
        A copy of the mapping from name to registered object, in the order of registration.
        """
    def apply(self, /, removed: SupportsGetItem[int, str], added: SupportsGetItem[int, Any]) -> None:
        """
        Remove and add tools as one change with one notification.
        """
    def call_blocking(
        self, /, name: Any, params: Any, timeout: SupportsFloat | SupportsIndex | None = None
    ) -> Any:
        """
        Call one tool from a thread without an event loop, and wait for its result.

        Native and MCP tools run as always; a Python tool runs on the loop that was running when it was
        registered, in which case that loop has to be alive in another thread. Returns what `execute` would
        return. `timeout` is in seconds; without one the tool's own limit holds.

        Raises `RuntimeError` when an event loop runs in this thread: waiting would block it.
        """
    def definitions_json(self, /) -> bytes:
        """
        The definitions as the bytes of a JSON array, ready for a request body; cached.
        """
    def fingerprint(self, /) -> str:
        """
        SHA-256 of `definitions_json()` in hex: changes only when what the model sees changes.
        """
    @property
    def generation(self, /) -> int:
        """
        A number that grows with each change.
        """
    def get(self, /, name: Any) -> Any | None:
        """
        The registered object of that name, or `None`.
        """
    def get_definitions(self, /) -> list[Any]:
        """
        What the model sees: built-in tools by name, then those named `mcp_*` by name.

        A new list each time, whose dicts are shared. Tools that cannot be described are left out.
        """
    def has(self, /, name: Any) -> bool:
        """
        Whether a tool of that name is registered.
        """
    def prepare_call(self, /, name: Any, params: Any) -> tuple[Any | None, Any, Any | None]:
        """
        Resolve, unwrap, cast and validate one call: `(tool, arguments, error)`.

        `error` is `None`, or an error result for the model. Never raises for odd arguments or schemas.
        """
    def refresh(self, /, name: str | None = None) -> None:
        """
        Read a tool's description and schema again, or those of all tools.
        """
    def register(self, /, tool: Any) -> None:
        """
        Register a tool under its name; a taken name is replaced.

        Raises `TypeError` when the tool has no name or one that is no string.
        """
    def snapshot(self, /) -> RegistrySnapshot:
        """
        The definitions as they are now, as an object that does not change.
        """
    def subscribe(self, /, callback: Any) -> Subscription:
        """
        Call `callback(generation)` on the running loop after changes, once for a burst of them.

        Raises `RuntimeError` when no event loop runs in this thread.
        """
    @property
    def tool_names(self, /) -> list[str]:
        """
        The names in the order of registration.
        """
    def unregister(self, /, name: str) -> None:
        """
        Remove a tool; an unknown name is no error.
        """

@final
class NativeTool:
    """
    A tool that is written in Rust.
    """
    def __repr__(self, /) -> str: ...
    @property
    def concurrency_safe(self, /) -> bool:
        """
        Whether calls may run beside other safe calls.
        """
    @property
    def description(self, /) -> str:
        """
        What the model is told about the tool.
        """
    @property
    def exclusive(self, /) -> bool:
        """
        Whether a call must run alone.
        """
    def is_same(self, /, other: NativeTool) -> bool:
        """
        Whether this is the very same tool: a server that lists a tool again unchanged has not made a new one.
        """
    @property
    def name(self, /) -> str:
        """
        The name that the model uses.
        """
    @property
    def parameters(self, /) -> Any:
        """
        The JSON Schema of the arguments; a new dict each time.
        """
    @property
    def read_only(self, /) -> bool:
        """
        Whether a call has no side effect.
        """
    def run_blocking(self, /, arguments_json: str) -> tuple[str, bool]:
        """
        Run the tool and wait for it, for scripts without an event loop.

        The arguments are a JSON object and are not validated. Returns the text and whether it is an
        error. The GIL is released meanwhile. Raises `ValueError` when the arguments are no JSON
        object, and `RuntimeError` when the tool could not run.
        """
    @property
    def timeout(self, /) -> float | None:
        """
        Seconds that one call may take, or `None`.
        """

@final
class PyRun:
    """
    A run, as `nanobot_tools.executor` drives it.
    """
    def advance(self, /) -> list[Job] | None:
        """
        Start what can be started; the jobs that Python has to run, or `None` when all calls have ended.
        """
    def close(self, /) -> None:
        """
        Let go of what the run still holds of Python, once nobody drives it any more.
        """
    def outcomes(self, /) -> list[Any]:
        """
        Hand over the outcomes in the order of the calls; the run keeps none of them.
        """
    def stop(self, /) -> None:
        """
        Start nothing more, cancel the native calls that run, and tell the others.
        """
    def take_events(self, /) -> list[Any]:
        """
        What happened since the last time: `(kind, index, id, name, details)` each.
        """
    def wait(self, /) -> Any | None:
        """
        A future that is done when the run needs another turn; `None` if it does already.
        """

@final
class RegistrySnapshot:
    """
    The definitions of a registry at one generation.
    """
    @property
    def definitions(self, /) -> list[Any]:
        """
        A new list of the definitions; the dicts are shared.
        """
    @property
    def fingerprint(self, /) -> str:
        """
        SHA-256 of the JSON in hex.
        """
    @property
    def generation(self, /) -> int:
        """
        The generation of the registry that was described.
        """
    @property
    def json(self, /) -> bytes:
        """
        The definitions as JSON, ready for a request body.
        """
    @property
    def skipped(self, /) -> list[tuple[str, str]]:
        """
        Name and reason of each tool that could not be described.
        """

@final
class Subscription:
    """
    Ends a subscription.
    """
    def __enter__(self, /) -> Subscription: ...
    def __exit__(self, /, *_args: Any) -> None: ...
    def close(self, /) -> None:
        """
        Call the callback no more; later calls do nothing.
        """

@final
class ToolCall:
    """
    One call of a tool.

    `arguments` is a dict, JSON text, or whatever a model made of it; it is checked when the call is
    made. Without an `id` the executor gives one.
    """

    __match_args__: Final[tuple[str, str, str]]
    def __eq__(self, other: object, /) -> bool: ...
    def __new__(cls, /, name: Any, arguments: Any | None = None, id: Any | None = None) -> ToolCall: ...
    def __repr__(self, /) -> str: ...
    @property
    def arguments(self, /) -> Any:
        """
        The arguments.
        """
    @property
    def id(self, /) -> Any | None:
        """
        The provider's id of the call, or `None`.
        """
    @property
    def name(self, /) -> Any:
        """
        The tool's name.
        """

@final
class ToolOutcome:
    """
    What became of one call.

    Read-only. `result` is what `ToolRegistry.execute` would have returned: the tool's own object,
    or an error result whose text ends with the retry hint.
    """
    def __repr__(self, /) -> str: ...
    @property
    def attempts(self, /) -> int:
        """
        How often the tool was started for this call.
        """
    @property
    def duration(self, /) -> float:
        """
        Seconds from start to end.
        """
    @property
    def error_kind(self, /) -> str | None:
        """
        `None`, or a stable name of the kind of error.
        """
    @property
    def exception(self, /) -> Any | None:
        """
        The exception that the tool raised, itself.
        """
    @property
    def id(self, /) -> Any:
        """
        The provider's id of the call.
        """
    @property
    def is_error(self, /) -> bool:
        """
        Whether the call failed, for whatever reason.
        """
    @property
    def name(self, /) -> Any:
        """
        The tool's name.
        """
    @property
    def result(self, /) -> Any:
        """
        What the model is shown.
        """
    @property
    def started(self, /) -> float:
        """
        When the call was started, in seconds since the epoch; 0.0 if it never was.
        """
    @property
    def structured(self, /) -> Any | None:
        """
        The server's `structuredContent` as Python objects, or `None`.
        """

def call_native(tool: NativeTool, arguments: Any) -> Any:
    """
    Start a native tool on the running loop; a future of what it returns, as `Tool.execute` would: an
    error without the retry hint.
    """

def check_server(name: str, config: Any) -> tuple[bool, list[str]]:
    """
    Read a server entry: whether it is disabled, and what is odd about it.

    Raises `ConfigError` that names the entry and what is wrong with it.
    """

def current_call() -> CurrentCall | None:
    """
    The call inside which the current code runs, or `None` outside of calls.
    """

def default_shelf() -> Path | None:
    """
    Where what servers offer is kept by default; `None` if there is no such place.
    """

def find_files_tool(
    workspace: str | PathLike[str] | None = None,
    allowed_dir: str | PathLike[str] | None = None,
    extra_allowed_dirs: SupportsGetItem[int, str | PathLike[str]] = ...,
    extra_allowed_files: SupportsGetItem[int, str | PathLike[str]] = ...,
    *,
    restrict_to_workspace: bool | None = None,
) -> NativeTool:
    """
    The tool `find_files`; parameters as for `grep_tool`.
    """

def flush_logs() -> None:
    """
    Wait until the records so far were handed to `logging`; at most two seconds.
    """

def forked() -> None:
    """
    In a forked process: let go of what the parent's servers depend on.
    """

def grep_tool(
    workspace: str | PathLike[str] | None = None,
    allowed_dir: str | PathLike[str] | None = None,
    extra_allowed_dirs: SupportsGetItem[int, str | PathLike[str]] = ...,
    extra_allowed_files: SupportsGetItem[int, str | PathLike[str]] = ...,
    *,
    restrict_to_workspace: bool | None = None,
) -> NativeTool:
    """
    The tool `grep`.

    `allowed_dir` bounds what may be read, and `restrict_to_workspace` (default: whether there is an
    `allowed_dir`) makes the workspace a boundary; the extra directories and files may be read in any case.
    """

def mcp_name(kind: str, server: str, name: str) -> str:
    """
    The name under which a tool, a resource or a prompt of a server is registered.
    """

def normalize_schema(schema: Any, profile: str) -> Any:
    """
    `schema` in the form that `profile` asks for, as new objects.

    Raises `ValueError` for a profile that does not exist; nothing else raises.
    """

def open_server(
    name: str,
    config: Any,
    host: Any,
    offers: SupportsGetItem[int, str],
    shelf: str | PathLike[str] | None = None,
) -> NativeConnection:
    """
    Keep a server connected from now on, in the background.

    `host` is asked what the server asks, and told what happens, on the running loop; `offers` names what it
    answers: `sampling`, `elicitation`, `roots`. `shelf` is the folder where what servers offer is kept.
    Raises `ConfigError` that names the entry and what is wrong with it.
    """

def raised(name: Any, exception: Any) -> Any:
    """
    What the model is shown for what a Python tool raised.
    """

def returned(result: Any) -> Any:
    """
    What the model is shown for what a Python tool returned.
    """

def set_call_meta(provider: Any | None) -> None:
    """
    Have `provider()` called on the calling thread for each request that goes to an MCP server.

    The dict that it returns, if any, goes into `_meta`. Without a provider that ends.
    """

def to_json(obj: Any) -> bytes:
    """
    `obj` as compact JSON in UTF-8: `json.dumps(obj, ensure_ascii=False, separators=(",", ":"))`, and beyond
    it enums, dataclasses, pydantic models, paths, dates and sets.

    Raises `TypeError` for what has no JSON form, `ValueError` for NaN, Infinity and too deep nesting.
    """

CURRENT_CALL: ContextVar[CurrentCall | str | None]
