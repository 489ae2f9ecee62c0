"""``nanobot-tools prompts``: the prompts of MCP servers, filled in."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import _config
from ._app import FAILED, OK, CommandError, Config, Json, Server, Wait, command, finish, near, wrong
from ._output import as_json as to_text
from ._output import emit, print_json, print_table, say
from .call import arguments_from
from .resources import listed

if TYPE_CHECKING:
    from ._session import Session

__all__ = ["Action", "add_to"]


class Action(enum.StrEnum):
    """What is wanted."""

    list = "list"
    get = "get"


@command
def prompts(
    action: Annotated[Action, typer.Argument(help="All prompts, or one filled in.")] = Action.list,
    name: Annotated[str | None, typer.Argument(help="The prompt to get.", show_default=False)] = None,
    pairs: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Its arguments.", show_default=False)
    ] = None,
    server: Server = None,
    config: Config = None,
    timeout: Wait = 30,
    as_json: Json = False,
) -> None:
    """List the prompts of the configured MCP servers, or get one with its arguments filled in.

    Examples: nanobot-tools prompts; nanobot-tools prompts get review file=main.py
    """
    if (action is Action.get) != (name is not None):
        raise wrong("prompts get NAME key=value ..., or prompts without a name")
    arguments = arguments_from(pairs or [], None)
    configured = _config.required(config)
    if server is not None:
        configured = configured.only([server])
    from . import _session

    async def work() -> int:
        async with _session.connected(configured, timeout=timeout) as session:
            session.complain()
            if name is None:
                return await _list(session, as_json)
            owner, prompt = await _get(session, name, arguments)
            if as_json:
                print_json({"server": owner, **prompt})
            else:
                for line in _lines(prompt):
                    emit(line)
            return OK

    finish(_session.run(work()))


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(prompts)


async def _list(session: Session, json_wanted: bool) -> int:
    failures = session.failures
    found = await listed(session, "prompts", failures)
    if json_wanted:
        print_json({"prompts": [{"server": name, **item} for name, item in found], "failures": failures})
    elif not found:
        say("There are no prompts.")
    else:
        rows = [(server, one.get("name"), _named(one), one.get("description")) for server, one in found]
        print_table(("server", "prompt", "arguments (* required)", "description"), rows)
    return FAILED if failures else OK


def _named(prompt: Mapping[str, Any]) -> str:
    arguments = [one for one in prompt.get("arguments") or [] if isinstance(one, Mapping)]
    return ", ".join(f"{one.get('name')}{'*' if one.get('required') else ''}" for one in arguments)


async def _get(session: Session, name: str, arguments: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The server that has a prompt, and the prompt."""
    from ..errors import NanobotToolsError

    failures = session.failures
    known = await listed(session, "prompts", failures)
    owners = [server for server, item in known if item.get("name") == name]
    if not owners:
        text = f"there is no prompt {name!r}{near(name, [str(item.get('name')) for _, item in known])}"
        if failures:
            raise CommandError(f"{text} (servers that are not there: {', '.join(failures)})")
        raise wrong(text)
    if len(owners) > 1:
        raise wrong(f"several servers have a prompt {name!r}: name one with --server: {', '.join(owners)}")
    try:
        return owners[0], await session.connections[owners[0]].get_prompt(name, arguments)
    except NanobotToolsError as exc:
        raise CommandError(f"{owners[0]}: {_config.without_prefix(owners[0], exc)}") from exc


def _lines(prompt: Mapping[str, Any]) -> Iterator[str]:
    for message in prompt.get("messages", []):
        if not isinstance(message, Mapping):
            continue
        content = message.get("content")
        for block in content if isinstance(content, list) else [content]:
            yield f"{message.get('role')}: {_text(block)}"


def _text(block: Any) -> str:
    if isinstance(block, Mapping) and isinstance(block.get("text"), str):
        return str(block["text"])
    if isinstance(block, Mapping) and isinstance(block.get("data"), str):
        return f"[{block.get('mimeType') or block.get('type')}, {len(block['data']) * 3 // 4} bytes]"
    return to_text(block)
