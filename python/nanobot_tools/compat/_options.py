"""What nanobot's configuration has no place for: our options of a server, in a file of our own beside it.

nanobot drops fields that it does not know and erases them when it saves its file. Ours are therefore in
``nanobot-tools.json`` in the same folder::

    {
      "defaults": {"retry": "always"},
      "mcpServers": {"search": {"lazy": true, "idleTimeout": 600}, "old": {"backend": "sdk"}}
    }

``defaults`` holds for every server. A field is one of those of a server entry that are ours (see
:func:`~nanobot_tools.connect_mcp_servers`), or ``backend``: ``"native"`` or ``"sdk"``, which leaves the
server to nanobot's own client. What belongs into nanobot's file is refused here: there is one place for it.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["FILE", "Options", "path", "read"]

_log = logging.getLogger("nanobot_tools.compat")

FILE = "nanobot-tools.json"

_NANOBOTS = frozenset(
    ("type", "command", "args", "env", "cwd", "url", "headers", "auth", "tool_timeout", "enabled_tools")
)
_BACKENDS = ("native", "sdk")


class Options:
    """The options as they were read.

    Attributes:
        complaints: What is wrong with the file, for people; what is faulty is left out.
        is_unreadable: Whether nothing could be made of it at all.
    """

    def __init__(self, defaults: dict[str, Any], servers: dict[str, dict[str, Any]]) -> None:
        self._defaults = defaults
        self._servers = servers
        self.complaints: list[str] = []
        self.is_unreadable = False

    def of(self, server: str) -> dict[str, Any]:
        """The fields for a server's entry; a new dict."""
        found = {**self._defaults, **self._servers.get(server, {})}
        found.pop("backend", None)
        return found

    def backend(self, server: str) -> str:
        """``"native"`` or ``"sdk"``."""
        found = {**self._defaults, **self._servers.get(server, {})}.get("backend", "native")
        return str(found)


def path() -> Path | None:
    """Where the file is, or would be; ``None`` without a nanobot."""
    try:
        from nanobot.config.loader import get_config_path  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        return None
    return Path(get_config_path()).with_name(FILE)


def read(file: Path | None = None) -> Options:
    """Read the file; one that is not there holds nothing, and a faulty one costs what is faulty in it."""
    file = path() if file is None else file
    options = Options({}, {})
    if file is None:
        return options
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return options
    except (OSError, ValueError, RecursionError) as exc:
        options.complaints.append(f"{file}: {exc}")
        options.is_unreadable = True
        return options
    if not isinstance(content, dict):
        options.complaints.append(f"{file}: it must be a JSON object")
        options.is_unreadable = True
        return options
    for key, value in content.items():
        if key == "defaults":
            options._defaults = _fields(f"{file}: defaults", value, options)
        elif key in ("mcpServers", "mcp_servers"):
            servers = value if isinstance(value, Mapping) else {}
            if servers is not value:
                options.complaints.append(f"{file}: {key} must be an object")
            options._servers = {
                str(name): _fields(f"{file}: {key}.{name}", entry, options) for name, entry in servers.items()
            }
        else:
            options.complaints.append(f"{file}: unknown key {key!r}")
    return options


def _fields(where: str, value: Any, options: Options) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        options.complaints.append(f"{where} must be an object")
        return {}
    fields = {}
    for key, field in value.items():
        name = re.sub(r"(?<=[a-z])([A-Z])", lambda match: f"_{match[1].lower()}", key)
        if name in _NANOBOTS:
            options.complaints.append(f"{where}: {key} belongs into nanobot's own configuration")
        elif name == "backend" and field not in _BACKENDS:
            options.complaints.append(f"{where}: backend must be one of {', '.join(_BACKENDS)}")
        else:
            fields[name] = field
    return fields
