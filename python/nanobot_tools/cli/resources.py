"""``nanobot-tools resources``: what MCP servers have to read."""

from __future__ import annotations

import base64
import binascii
import enum
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import _config
from ._app import FAILED, OK, CommandError, Config, Json, Server, Wait, command, finish, near, wrong
from ._output import complain, emit, print_json, print_table, say, size

if TYPE_CHECKING:
    from ..mcp import MCPConnection
    from ._session import Session

__all__ = ["Action", "add_to", "listed"]


class Action(enum.StrEnum):
    """What is wanted."""

    list = "list"
    read = "read"


@command
def resources(
    action: Annotated[Action, typer.Argument(help="All resources, or the content of one.")] = Action.list,
    uri: Annotated[str | None, typer.Argument(help="The resource to read.", show_default=False)] = None,
    server: Server = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Write the content to this file.", show_default=False),
    ] = None,
    force: Annotated[bool, typer.Option(help="Overwrite the file.")] = False,
    config: Config = None,
    timeout: Wait = 30,
    as_json: Json = False,
) -> None:
    """List the resources of the configured MCP servers and their templates, or read one.

    Examples: nanobot-tools resources; nanobot-tools resources read docs://intro
    """
    if (action is Action.read) != (uri is not None):
        raise wrong("resources read URI, or resources without an address")
    if output is not None and output.exists() and not force:
        raise wrong(f"{output} exists; --force overwrites it")
    configured = _config.required(config)
    if server is not None:
        configured = configured.only([server])
    from . import _session

    async def work() -> int:
        async with _session.connected(configured, timeout=timeout) as session:
            session.complain()
            if uri is None:
                return await _list(session, as_json)
            name, content = await _read(session, uri)
            if output is not None:
                _store(content, output)
            if as_json:
                print_json({"server": name, **content})
            elif output is None:
                _show(content)
            return OK

    finish(_session.run(work()))


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(resources)


async def listed(session: Session, kind: str, failures: dict[str, str]) -> list[tuple[str, dict[str, Any]]]:
    """Server and item of all that the servers list of a kind; what fails is noted in ``failures``."""
    from ..errors import NanobotToolsError

    found = []
    for name, connection in session.connections.items():
        if ("prompts" if kind == "prompts" else "resources") not in connection.capabilities:
            continue
        try:
            items = await getattr(connection, f"list_{kind}")()
        except NanobotToolsError as exc:
            # Few servers that have resources have templates, and not all of the others say so nicely.
            if kind != "resource_templates":
                failures[name] = _config.without_prefix(name, exc)
        else:
            found += [(name, item) for item in items]
    return found


async def _list(session: Session, json_wanted: bool) -> int:
    failures = session.failures
    found = await listed(session, "resources", failures)
    templates = await listed(session, "resource_templates", failures)
    if json_wanted:
        print_json(
            {
                "resources": [{"server": name, **item} for name, item in found],
                "templates": [{"server": name, **item} for name, item in templates],
                "failures": failures,
            }
        )
    elif not found and not templates:
        say("There are no resources.")
    else:
        rows = [
            (name, item.get("uri") or item.get("uriTemplate"), item.get("mimeType"), item.get("name"))
            for name, item in [*found, *templates]
        ]
        print_table(("server", "address", "type", "name"), rows)
    return FAILED if failures else OK


async def _read(session: Session, uri: str) -> tuple[str, dict[str, Any]]:
    """The server that has a resource, and the content; first are asked those that list it."""
    from ..errors import NanobotToolsError

    known = await listed(session, "resources", {})
    having = [name for name, item in known if item.get("uri") == uri]
    order: Mapping[str, MCPConnection] = {
        name: one for name, one in session.connections.items() if "resources" in one.capabilities
    }
    failures = []
    for name in [*having, *(name for name in order if name not in having)]:
        try:
            return name, await order[name].read_resource(uri)
        except NanobotToolsError as exc:
            failures.append(f"{name}: {_config.without_prefix(name, exc)}")
    hint = near(uri, [str(item.get("uri")) for _, item in known])
    if not order:
        raise CommandError("none of the servers that are there has resources")
    raise CommandError(f"no server gave {uri!r}: {'; '.join(failures)}{hint}")


def _items(content: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [item for item in content.get("contents") or [] if isinstance(item, Mapping)]


def _store(content: Mapping[str, Any], output: Path) -> None:
    texts_and_blobs = ((item.get("text"), item.get("blob")) for item in _items(content))
    data = b"".join(t.encode() if isinstance(t, str) else _decoded(blob) for t, blob in texts_and_blobs)
    try:
        output.write_bytes(data)
    except OSError as exc:
        raise CommandError(f"{output}: {exc.strerror or exc}") from exc
    complain(f"{output}: {size(len(data))}")


def _show(content: Mapping[str, Any]) -> None:
    for item in _items(content):
        if isinstance(item.get("text"), str):
            emit(item["text"])
        else:
            kind = item.get("mimeType") or "data"
            say(f"[{kind}, {size(len(_decoded(item.get('blob'))))}; --output FILE stores it]")


def _decoded(blob: Any) -> bytes:
    try:
        return base64.b64decode(blob, validate=True)
    except (binascii.Error, TypeError, ValueError) as exc:
        raise CommandError(f"the server sent data that is no base64: {exc}") from exc
