"""``nanobot-tools import``: the MCP servers of other clients, in a configuration of ours."""

from __future__ import annotations

import contextlib
import os
import shlex
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ._app import FAILED, OK, CommandError, Json, command, finish, wrong
from ._output import as_json as to_text
from ._output import complain, print_json, print_table, say

if TYPE_CHECKING:
    from ._sources import Source

__all__ = ["add_to"]

_Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", help="Write the configuration to this file.", show_default=False),
]
_EnvFile = Annotated[
    Path | None,
    typer.Option(help="Write the moved secrets to this file, as NAME=value lines.", show_default=False),
]


@command
def import_servers(
    sources: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[SOURCE]...",
            help="Files, or clients: nanobot, project (.mcp.json), claude-desktop, claude-code, cursor, "
            "vscode, codex. All of them by default.",
            show_default=False,
        ),
    ] = None,
    output: _Output = None,
    force: Annotated[bool, typer.Option(help="Overwrite files.")] = False,
    secrets_to_env: Annotated[
        bool, typer.Option("--secrets-to-env", help="Put ${VAR} in place of what looks like a secret.")
    ] = False,
    env_file: _EnvFile = None,
    as_json: Json = False,
) -> None:
    """Read the MCP servers of other clients, show them, and write them as a configuration of ours.

    Nothing is started or changed but the files that are written, which only their owner may read. Values of
    variables, headers and arguments are not shown, but with --json.

    Example: nanobot-tools import cursor vscode --output mcp.json --secrets-to-env --env-file mcp.env
    """
    if env_file is not None and not secrets_to_env:
        raise wrong("--env-file needs --secrets-to-env")
    targets = [path for path in (output, env_file) if path is not None]
    if len(targets) != len({path.absolute() for path in targets}):
        raise wrong("--output and --env-file must be different files")
    for path in targets:
        if os.path.lexists(path) and not force:
            raise wrong(f"{path} exists; --force overwrites it")
    from . import _secrets, _sources

    found, faults = _read(sources or [])
    servers, renamed = _merged(found)
    secrets = _secrets.move(servers) if secrets_to_env else {}
    variables = {name: text for source in found for name, text in source.variables.items()}
    notes = [f"{source.path}: {note}" for source in found for note in source.notes] + renamed
    if as_json:
        print_json(
            {
                "sources": [
                    {"client": one.client, "path": str(one.path), "servers": list(one.servers)}
                    for one in found
                ],
                "mcpServers": servers,
                "variables": sorted({*variables, *secrets}),
                "notes": notes,
                "faults": faults,
            }
        )
    else:
        _show(found, servers, variables, secrets, notes)
    if not servers:
        places = ", ".join(dict.fromkeys(client for client, _ in _sources.known_places()))
        raise CommandError(f"no servers were found{'' if sources else f' (looked at the files of {places})'}")
    if output is not None:
        _write(output, to_text({"mcpServers": servers}) + "\n", force=force)
        complain(f"{output}: {len(servers)} servers")
    if env_file is not None:
        _write(
            env_file, "".join(f"{key}={shlex.quote(value)}\n" for key, value in secrets.items()), force=force
        )
        complain(f"{env_file}: {len(secrets)} secrets")
    finish(FAILED if faults else OK)


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(name="import")(import_servers)


def _read(wanted: list[str]) -> tuple[list[Source], list[str]]:
    """What the files hold, and what is wrong with those that nobody named."""
    from . import _sources

    if wanted:
        return [_sources.load(*one) for name in wanted for one in _sources.named(name)], []
    found, faults = [], []
    for client, path in _sources.known_places():
        if not path.exists():
            continue
        try:
            source = _sources.load(client, path)
        except CommandError as exc:
            # Other clients have files without servers.
            if "there are no MCP servers" not in str(exc):
                faults.append(str(exc))
                complain(f"Error: {exc}")
        else:
            found.append(source)
    return found, faults


def _merged(found: list[Source]) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """The servers of all files; of two that differ but have one name, the later is renamed."""
    servers: dict[str, dict[str, Any]] = {}
    notes = []
    for source in found:
        for name, entry in source.servers.items():
            free = name
            number = 1
            while free in servers and servers[free] != entry:
                free = f"{name}-{source.client}{'' if number == 1 else f'-{number}'}"
                number += 1
            if free != name and free not in servers:
                notes.append(f"{source.path}: {name} is another server than the one above; it became {free}")
            servers.setdefault(free, entry)
    return servers, notes


def _show(
    found: list[Source],
    servers: Mapping[str, dict[str, Any]],
    variables: Mapping[str, str],
    secrets: Mapping[str, str],
    notes: list[str],
) -> None:
    from ._secrets import place_of

    for source in found:
        say(f"{source.client}: {source.path}: {len(source.servers)} servers")
    if servers:
        rows = [
            (
                name,
                place_of(entry),
                ", ".join([*(entry.get("env") or {}), *(entry.get("headers") or {})]),
                "disabled" if entry.get("disabled") else "",
            )
            for name, entry in servers.items()
        ]
        print_table(("server", "reached by", "variables and headers", ""), rows)
    for note in notes:
        say(f"- {note}")
    for name in sorted({*variables, *secrets}):
        what = variables.get(name) or ("a secret that was moved" if name in secrets else "")
        if name not in os.environ:
            say(f"- set {name}{f': {what}' if what else ''}")


def _write(path: Path, text: str, *, force: bool) -> None:
    """Write a file for its owner alone; one that is there is replaced as a whole, or not at all."""
    try:
        if not force:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with open(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
            return
        # A link is followed: what it leads to is meant.
        target = path.resolve()
        descriptor, partial = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        try:
            with open(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
            os.replace(partial, target)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(partial)
            raise
    except FileExistsError:
        raise wrong(f"{path} exists; --force overwrites it") from None
    except OSError as exc:
        raise CommandError(f"{path}: {exc.strerror or exc}") from exc
