"""``nanobot-tools cache``: what servers offered when they were last there, as it is kept on disk.

The form of the files is that of the core (``src/mcp/shelf.rs``): a line with a checksum, then JSON. As there,
only what has the name and the beginning of a catalogue is ever removed.
"""

from __future__ import annotations

import enum
import hashlib
import json
import re
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from ._app import CommandError, Json, command, near, wrong
from ._output import print_json, print_table, say, size

__all__ = ["Action", "Catalogue", "add_to", "catalogues"]

_NAME = re.compile(r"[A-Za-z0-9_-]{1,40}\.[0-9a-f]{32}\.catalogue\.json")
_MAGIC = b"nanobot-tools catalogue "
#: Larger ones are not kept by the core.
_MOST = 8 << 20


class Action(enum.StrEnum):
    """What is wanted."""

    show = "show"
    clear = "clear"


@dataclass(frozen=True)
class Catalogue:
    """A file of the cache.

    Attributes:
        path: The file.
        server: The server's name in the configuration; ``None`` if the file cannot be read.
        about: The server's own name and version.
        tools: How many it offers.
        bytes: The size of the file.
        saved: When the server last confirmed it (Unix time).
    """

    path: Path
    server: str | None
    about: str
    tools: int
    bytes: int
    saved: float


@command
def cache(
    action: Annotated[Action, typer.Argument(help="Show what is kept, or remove it.")] = Action.show,
    server: Annotated[
        str | None, typer.Argument(help="Only that of this server.", show_default=False)
    ] = None,
    as_json: Json = False,
) -> None:
    """Show or clear the cache of what servers offer, which gives an agent its tools before its servers run.

    It is in the folder that NBTOOLS_CACHE_DIR names, or in the user's folder for caches. What is removed is
    asked of the server again at the next start.
    """
    from .._native import default_shelf

    folder = default_shelf()
    if folder is None:
        raise CommandError("there is no folder for the cache; NBTOOLS_CACHE_DIR can name one")
    found = sorted(catalogues(folder), key=lambda one: (one.server or "", one.saved))
    if server is not None:
        names = [one.server for one in found if one.server is not None]
        if server not in names:
            raise wrong(f"nothing is kept of a server {server!r}{near(server, names)}")
        found = [one for one in found if one.server == server]
    if action is Action.clear:
        removed = [one for one in found if _remove(one.path)]
        if as_json:
            print_json({"folder": str(folder), "removed": [_as_dict(one) for one in removed]})
        else:
            say(f"removed {len(removed)} of {len(found)} catalogues in {folder}")
        if len(removed) < len(found):
            raise CommandError("some catalogues could not be removed")
        return
    if as_json:
        print_json({"folder": str(folder), "catalogues": [_as_dict(one) for one in found]})
        return
    if found:
        columns = ("server", "names itself", "tools", "size", "confirmed")
        print_table(columns, [_row(one) for one in found])
    say(f"{len(found)} catalogues, {size(sum(one.bytes for one in found))}, in {folder}")


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(cache)


def catalogues(folder: Path) -> Iterator[Catalogue]:
    """The catalogues in a folder, those included that are damaged.

    Raises:
        CommandError: The folder cannot be read.
    """
    try:
        paths = sorted(folder.iterdir())
    except FileNotFoundError:
        return
    except OSError as exc:
        raise CommandError(f"{folder}: {exc.strerror or exc}") from exc
    for path in paths:
        if not _NAME.fullmatch(path.name):
            continue
        try:
            about = path.lstat()
            if not stat.S_ISREG(about.st_mode):
                continue
            with path.open("rb") as file:
                content = file.read(_MOST)
        except OSError:
            # It has just been removed, or is somebody else's.
            continue
        if not content.startswith(_MAGIC):
            continue
        body = _body(content)
        itself = body.get("about") or {}
        yield Catalogue(
            path,
            body.get("server"),
            f"{itself.get('name', '')} {itself.get('version', '')}".strip(),
            len(body.get("tools") or []),
            about.st_size,
            about.st_mtime,
        )


def _body(content: bytes) -> dict[str, Any]:
    """What a catalogue holds; nothing if it is damaged or of another format."""
    head, _, body = content.partition(b"\n")
    if head.split()[-1] != hashlib.sha256(body).hexdigest().encode():
        return {}
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _remove(path: Path) -> bool:
    try:
        path.unlink()
    except FileNotFoundError:
        pass
    except OSError:
        return False
    return True


def _row(one: Catalogue) -> tuple[object, ...]:
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(one.saved))
    return one.server or "(damaged)", one.about, one.tools, size(one.bytes), when


def _as_dict(one: Catalogue) -> dict[str, Any]:
    return {
        "server": one.server,
        "server_info": one.about,
        "tools": one.tools,
        "bytes": one.bytes,
        "saved": one.saved,
        "file": str(one.path),
    }
