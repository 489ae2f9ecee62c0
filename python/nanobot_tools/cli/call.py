"""``nanobot-tools call``: one tool, called as a model would call it."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import _config
from ._app import FAILED, OK, Config, Json, Wait, command, finish, wrong
from ._measure import Measured, many
from ._output import clean, complain, console, emit, is_terminal, print_json
from .tools import candidates, missing

if TYPE_CHECKING:
    from ..executor import ToolEvent, ToolOutcome
    from ..registry import ToolRegistry

__all__ = ["add_to", "arguments_from"]

Report = Callable[["ToolEvent"], None]


@command
def call(
    name: Annotated[str, typer.Argument(help="The tool, as a model names it.")],
    pairs: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Its arguments.", show_default=False)
    ] = None,
    args: Annotated[
        str | None,
        typer.Option(metavar="JSON", help="Its arguments as a JSON object; - reads it from stdin."),
    ] = None,
    repeat: Annotated[
        int | None,
        typer.Option(min=1, help="How often it is called; as often as --parallel says by default."),
    ] = None,
    parallel: Annotated[int, typer.Option(min=1, help="How many of the calls run at once.")] = 1,
    timeout: Annotated[
        float | None,
        typer.Option(min=0.001, help="Seconds that a call may take, in place of the entry's toolTimeout."),
    ] = None,
    artifacts: Annotated[
        Path | None,
        typer.Option(help="The folder for images, audio and other data in results.", show_default=False),
    ] = None,
    config: Config = None,
    workspace: Annotated[Path, typer.Option(help="The folder that own tools work in.")] = Path(),
    wait: Wait = 30,
    as_json: Json = False,
) -> None:
    """Call a tool, and print its result.

    Arguments are cast and checked by the tool's schema as those of a model are: "5" is a number where one is
    wanted, and an array or object may be given as JSON. The exit status is 1 if a call fails.

    Examples: nanobot-tools call grep pattern=TODO; nanobot-tools call mcp_search_query --args '{"q": "rust"}'
    """
    arguments = arguments_from(pairs or [], args)
    configured = _config.read(config)
    from ..executor import ToolCall, ToolExecutor
    from . import _session

    registry = _session.local_tools(workspace)
    configured = candidates(configured, registry, name)
    overrides: dict[str, Any] = {}
    if timeout is not None:
        overrides.update(tool_timeout=timeout, tool_timeouts={})
    if artifacts is not None:
        overrides["artifacts"] = str(artifacts.resolve())
    count = repeat if repeat is not None else parallel

    async def work() -> tuple[ToolOutcome, Measured]:
        async with _session.connected(
            configured, timeout=wait, registry=registry, overrides=overrides
        ) as session:
            if not registry.has(name):
                session.complain()
                raise missing(registry, name, session.failures)
            executor = ToolExecutor(registry, max_concurrency=None, timeout=timeout)
            first: list[ToolOutcome] = []
            with _progress(registry, name, count) as report:

                async def once() -> tuple[float, str | None]:
                    outcome = await _one(executor, ToolCall(name, arguments), report)
                    if not first or (outcome.is_error and not first[0].is_error):
                        first[:] = [outcome]
                    return outcome.duration, outcome.error_kind

                measured = await many(once, count, parallel)
            return first[0], measured

    outcome, measured = _session.run(work())
    if as_json:
        print_json({**_as_dict(outcome), "measured": measured.as_dict()})
    else:
        for line in _lines(outcome):
            if outcome.is_error:
                complain(line)
            else:
                emit(line)
        if count > 1:
            complain(str(measured))
    finish(FAILED if measured.errors else OK)


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(call)


def arguments_from(pairs: Iterable[str], text: str | None) -> dict[str, Any]:
    """The arguments of a call, from JSON and from ``key=value``, which comes on top.

    Raises:
        CommandError: They cannot be read.
    """
    arguments: dict[str, Any] = {}
    if text is not None:
        where = "stdin" if text == "-" else "--args"
        try:
            given_text = sys.stdin.read() if text == "-" else text
        except UnicodeDecodeError as exc:
            raise wrong(f"stdin: it is not UTF-8 (byte {exc.start})") from None
        arguments = _config.parse_json(where, given_text)
        if not isinstance(arguments, dict):
            raise wrong(f"{where}: the arguments must be a JSON object")
    given: set[str] = set()
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise wrong(f"{pair!r} is not of the form key=value")
        if key in given:
            raise wrong(f"the argument {key!r} is given twice")
        given.add(key)
        arguments[key] = value
    return arguments


async def _one(executor: Any, one: Any, report: Report | None) -> ToolOutcome:
    """Make one call; its progress is reported if somebody looks."""
    if report is None:
        outcomes: list[ToolOutcome] = await executor.run([one])
        return outcomes[0]
    last: ToolOutcome | None = None
    async for event in executor.stream([one]):
        report(event)
        last = event.outcome or last
    assert last is not None
    return last


@contextlib.contextmanager
def _progress(registry: ToolRegistry, name: str, count: int) -> Iterator[Report | None]:
    """A bar on stderr, if that is a terminal: of the call's own progress, or of the calls that are done."""
    if not is_terminal(sys.stderr):
        yield None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console(stderr=True), transient=True) as progress:
        task = progress.add_task(clean(name), total=count if count > 1 else None)

        def report(event: ToolEvent) -> None:
            if count > 1:
                progress.update(task, advance=1 if event.kind == "finished" else 0)
            elif event.kind == "progress":
                text = f"{name}: {event.message}" if event.message else name
                progress.update(task, completed=event.progress, total=event.total, description=clean(text))

        yield report


def _as_dict(outcome: ToolOutcome) -> dict[str, Any]:
    return {
        "tool": outcome.name,
        "ok": not outcome.is_error,
        "error_kind": outcome.error_kind,
        "result": outcome.result,
        "structured": outcome.structured,
        "files": [path for _, path in _images(outcome.result)[1]],
        "duration": outcome.duration,
        "attempts": outcome.attempts,
    }


def _lines(outcome: ToolOutcome) -> Iterator[str]:
    """A result for people: its text, and a line for each file that came of it."""
    result = outcome.result
    if isinstance(result, str):
        text, images = _images(result)
        if text or not images:
            yield _without_hint(text) if outcome.is_error else text
        for mime, path in images:
            yield f"[image: {mime}, stored as {path}]"
        return
    for block in result if isinstance(result, list) else [result]:
        if isinstance(block, dict) and isinstance(block.get("text"), str):
            yield block["text"]
        else:
            from ._output import as_json

            yield as_json(block)


def _images(result: Any) -> tuple[Any, list[tuple[str, str]]]:
    """The text of a result and its stored images (type and path): a model is told of these in JSON."""
    if not isinstance(result, str) or not result.startswith('{"artifacts": ['):
        return result, []
    import json

    try:
        told = json.loads(result)
        images = [(str(one["mime"]), str(one["path"])) for one in told["artifacts"]]
    except (ValueError, TypeError, LookupError):
        # A text of the tool's own that only begins like that.
        return result, []
    return str(told.get("text", "")), images


def _without_hint(text: str) -> str:
    """An error without what only a model should heed."""
    return text.partition("\n\n[Analyze the error above")[0]
