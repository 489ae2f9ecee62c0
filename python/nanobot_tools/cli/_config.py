"""The configuration file: which one it is, and the MCP servers in it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import ConfigError
from ._app import near, wrong

__all__ = [
    "Configuration",
    "default_path",
    "environment",
    "expanded",
    "parse_json",
    "read",
    "read_text",
    "required",
    "servers_of",
    "without_prefix",
]

_OPTIONS = "nanobot-tools.json"
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


@dataclass
class Configuration:
    """What a configuration file says.

    Attributes:
        path: The file; ``None`` if there is none.
        servers: Name -> entry, as the file has them.
        warnings: What is odd about the file or its entries, without making them faulty.
        faults: Name -> what is wrong with the entry, of those that are faulty.
        disabled: Names of the entries that are switched off.
    """

    path: Path | None
    servers: dict[str, Any] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    faults: dict[str, str] = field(default_factory=dict)
    disabled: set[str] = field(default_factory=set)

    def only(self, names: Iterable[str]) -> Configuration:
        """The same with these servers alone.

        Raises:
            CommandError: There is no such server.
        """
        names = list(names)
        for name in names:
            if name not in self.servers:
                raise wrong(f"there is no server {name!r} in {self.path}{near(name, self.servers)}")
        kept = {name: entry for name, entry in self.servers.items() if name in names}
        others = tuple(f"MCP server '{name}': " for name in self.servers if name not in kept)
        warnings = [warning for warning in self.warnings if not warning.startswith(others)]
        faults = {name: fault for name, fault in self.faults.items() if name in kept}
        return Configuration(self.path, kept, warnings, faults, self.disabled & kept.keys())


def default_path() -> Path:
    """nanobot's own configuration file."""
    return Path.home() / ".nanobot" / "config.json"


def required(path: Path | None) -> Configuration:
    """The configuration of a command that needs servers.

    Raises:
        CommandError: There is no file, it cannot be read, or there are no servers in it.
    """
    config = read(path)
    if config.path is None:
        raise wrong(
            f"there is no configuration: {default_path()} does not exist; name a file with --config or "
            "NBTOOLS_CONFIG, or make one with `nanobot-tools import --output FILE`"
        )
    if not config.servers:
        raise wrong(f"{config.path}: there are no MCP servers in it")
    return config


def read(path: Path | None) -> Configuration:
    """The configuration in a file, or in nanobot's own if there is one.

    Raises:
        CommandError: The file cannot be read.
    """
    if path is None:
        path = default_path()
        if not path.exists():
            return Configuration(None)
    content = parse_json(path, read_text(path))
    if not isinstance(content, dict):
        raise wrong(f"{path}: it must be a JSON object with mcpServers")
    config = Configuration(path)
    tools = content.get("tools")
    of_nanobot = isinstance(tools, Mapping) and servers_of(tools) is not None
    entries = servers_of(tools if of_nanobot else content)
    if entries is None:
        if path != default_path():
            config.warnings.append(f"{path}: it holds no mcpServers")
        return config
    if not isinstance(entries, dict):
        raise wrong(f"{path}: mcpServers must be an object")
    if not of_nanobot:
        known = ("mcpServers", "mcp_servers", "$schema")
        config.warnings += [
            f"{path}: unknown field {key!r} is ignored" for key in content if key not in known
        ]
    config.servers = entries
    if of_nanobot:
        config.servers = _with_policy(path, tools or {}, entries, config.warnings)
    _check(config)
    return config


def servers_of(content: Any) -> Any:
    """What a part of a file has under ``mcpServers``; ``None`` if it has none."""
    if not isinstance(content, Mapping):
        return None
    return content.get("mcpServers", content.get("mcp_servers"))


def read_text(path: Path) -> str:
    """The text of a file.

    Raises:
        CommandError: It cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise wrong(f"{path} does not exist") from None
    except UnicodeDecodeError as exc:
        raise wrong(f"{path}: it is not UTF-8 (byte {exc.start})") from None
    except OSError as exc:
        raise wrong(f"{path}: {exc.strerror or exc}") from None


def parse_json(where: object, text: str) -> Any:
    """The value of a JSON text.

    Raises:
        CommandError: It is none; the message says where.
    """
    try:
        return json.loads(text)
    except json.JSONDecodeError as exc:
        raise wrong(f"{where}:{exc.lineno}:{exc.colno}: {exc.msg}") from None
    except (ValueError, RecursionError) as exc:
        raise wrong(f"{where}: {exc}") from None


def _with_policy(
    path: Path, tools: Mapping[str, Any], entries: dict[str, Any], warnings: list[str]
) -> dict[str, Any]:
    """The entries of nanobot's file as the drop-in sees them: with nanobot's networks, and our options."""
    allowed = tools.get("ssrfWhitelist", tools.get("ssrf_whitelist"))
    options_path = path.with_name(_OPTIONS)
    options = None
    if options_path.exists():
        from ..compat import _options

        options = _options.read(options_path)
        warnings += options.complaints
    merged: dict[str, Any] = {}
    for name, entry in entries.items():
        if not isinstance(entry, dict):
            merged[name] = entry
            continue
        more: dict[str, Any] = options.of(name) if options is not None else {}
        if allowed and not {"ssrfWhitelist", "ssrf_whitelist"} & entry.keys():
            more.setdefault("ssrf_whitelist", allowed)
        merged[name] = {**entry, **more}
    return merged


def _check(config: Configuration) -> None:
    from .._native import check_server

    for name, entry in config.servers.items():
        try:
            disabled, warnings = check_server(name, entry)
        except (ConfigError, TypeError, ValueError) as exc:
            config.faults[name] = without_prefix(name, exc)
        else:
            config.warnings += warnings
            if disabled:
                config.disabled.add(name)


def without_prefix(server: str, text: object) -> str:
    """What is said of a server, without its name in front."""
    return str(text).removeprefix(f"MCP server '{server}': ")


def expanded(text: object) -> str:
    """A text of an entry with its ``${NAME}`` replaced, as the core does it; what is not set stays."""
    return _VARIABLE.sub(lambda found: os.environ.get(found[1], found[0]), str(text))


def environment(entry: Any) -> dict[str, str]:
    """The environment that a program of an entry is looked up in."""
    env = entry.get("env") if isinstance(entry, Mapping) else None
    more = (
        {key: value for key, value in env.items() if isinstance(value, str)} if isinstance(env, dict) else {}
    )
    return {**os.environ, **more}
