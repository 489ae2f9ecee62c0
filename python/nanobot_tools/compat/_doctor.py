"""What the drop-in finds in this environment, for people who want to know why something is as it is."""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from .. import _native
from ..errors import ConfigError
from ..loader import examine
from . import _nanobot, _options
from ._install import install
from ._settings import Switches
from ._table import MODULES

__all__ = ["Diagnosis", "Plugin", "Server", "Target", "diagnose"]


@dataclass(frozen=True)
class Target:
    """A function of nanobot's: the part that it belongs to, whether ours runs in its place, and why not."""

    part: str
    name: str
    status: str
    reason: str | None = None


@dataclass(frozen=True)
class Server:
    """An entry of ``mcpServers``: who connects to it (``"native"``, ``"sdk"`` or ``"nobody"``), and why."""

    name: str
    backend: str
    reason: str | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Plugin:
    """An entry point of the group ``nanobot.tools``: what it names, and whether that can be used."""

    name: str
    distribution: str
    names: str
    verdict: str
    reason: str | None = None


@dataclass
class Diagnosis:
    """All that was found.

    Attributes:
        version: This package's version.
        nanobot: That of nanobot, or ``None``.
        summary: The line that is logged at a start.
        targets: The functions of nanobot's.
        config: nanobot's configuration file, and the one of our options.
        servers: The entries of ``mcpServers``.
        plugins: The entry points.
        findings: What somebody should do something about.
    """

    version: str
    nanobot: str | None
    summary: str = ""
    targets: list[Target] = field(default_factory=list)
    config: str | None = None
    options: str | None = None
    servers: list[Server] = field(default_factory=list)
    plugins: list[Plugin] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """As what JSON can hold."""
        return asdict(self)


def diagnose() -> Diagnosis:
    """Look at the nanobot of this environment, its configuration and its plugins.

    nanobot's modules are imported and the drop-in is installed in this process for it; no server is started.
    """
    found = Diagnosis(_native.VERSION, _nanobot.version())
    if found.nanobot is None:
        found.summary = "there is no nanobot in this environment"
        found.plugins.extend(_plugins())
        return found
    install()
    for name in MODULES:
        if _nanobot.has_module(name):
            try:
                importlib.import_module(name)
            except Exception as exc:
                found.findings.append(f"{name} cannot be imported: {type(exc).__name__}: {exc}")
    state = install()
    found.summary = str(state)
    found.targets.extend(Target(part, name, status, reason) for part, name, status, reason in state.targets)
    found.findings.extend(f"{name} was left alone: {reason}" for name, reason in state.skipped)
    found.findings.extend(state.complaints)
    if state.why_not is not None and Switches().off is None:
        found.findings.append(state.why_not)
    _look_at_config(found)
    found.plugins.extend(_plugins())
    found.findings.extend(
        f"plugin {plugin.name}: {plugin.reason}" for plugin in found.plugins if plugin.verdict == "refused"
    )
    return found


# -- the configuration -----------------------------------------------------------------------------------


def _look_at_config(found: Diagnosis) -> None:
    from nanobot.config.loader import get_config_path  # type: ignore[import-not-found, unused-ignore]

    path = Path(get_config_path())
    found.config = str(path)
    options_path = path.with_name(_options.FILE)
    found.options = str(options_path) if options_path.exists() else None
    options = _options.read(options_path)
    found.findings.extend(options.complaints)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return
    except (OSError, ValueError) as exc:
        found.findings.append(f"{path}: {exc}; nanobot refuses it as a whole")
        return
    tools = content.get("tools") if isinstance(content, dict) else None
    entries = _key(tools, "mcpServers", "mcp_servers")
    if not isinstance(entries, Mapping):
        return
    for name, entry in entries.items():
        server = _server(name, entry, options)
        found.servers.append(server)
        if server.backend == "nobody":
            found.findings.append(f"MCP server {name}: {server.reason}")
        found.findings.extend(f"MCP server {name}: {warning}" for warning in server.warnings)


def _key(value: Any, *names: str) -> Any:
    return next((value[name] for name in names if isinstance(value, Mapping) and name in value), None)


def _server(name: str, entry: Any, options: _options.Options) -> Server:
    """Who connects to a server, by what its entry says before nanobot has read it."""
    from nanobot.config.schema import MCPServerConfig  # type: ignore[import-not-found, unused-ignore]
    from pydantic import ValidationError

    try:
        known = MCPServerConfig.model_validate(entry)
    except ValidationError as exc:
        first = exc.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        return Server(name, "nobody", f"nanobot refuses its whole configuration for {where}: {first['msg']}")
    unset = sorted(set(_unset(entry)))
    if unset:
        text = f"nanobot refuses its whole configuration, since {', '.join(unset)} is not set"
        return Server(name, "nobody", text)
    fields = {alias for key, info in MCPServerConfig.model_fields.items() for alias in (key, info.alias)}
    camel = {re.sub(r"_([a-z])", lambda match: match[1].upper(), key) for key in fields if key}
    strange = sorted(key for key in entry if key not in fields and key not in camel)
    warnings = [
        f"nanobot drops the field {key}, and erases it when it saves its file; our options belong into "
        f"{_options.FILE} beside it"
        for key in strange
    ]
    if Switches().disabled.get("mcp"):
        return Server(name, "sdk", Switches().disabled["mcp"], tuple(warnings))
    if getattr(known, "auth", None) == "oauth":
        return Server(name, "sdk", "it wants OAuth", tuple(warnings))
    if options.backend(name) == "sdk":
        return Server(name, "sdk", f"{_options.FILE} says so", tuple(warnings))
    plain = {key: value for key, value in entry.items() if key not in strange}
    try:
        disabled, more = _native.check_server(name, {**plain, **options.of(name)})
    except ConfigError as exc:
        return Server(name, "nobody", str(exc), tuple(warnings))
    warnings.extend(more)
    return Server(name, "nobody" if disabled else "native", "disabled" if disabled else None, tuple(warnings))


def _unset(value: Any) -> Iterator[str]:
    """The ``${VAR}`` in a value whose variables are not set."""
    if isinstance(value, str):
        for name in re.findall(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}", value):
            if name not in os.environ:
                yield f"${{{name}}}"
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _unset(item)
    elif isinstance(value, list):
        for item in value:
            yield from _unset(item)


# -- plugins ---------------------------------------------------------------------------------------------


def _plugins() -> Iterator[Plugin]:
    for one in examine(importlib.metadata.entry_points(group="nanobot.tools")):
        if one.level is None:
            verdict, reason = "usable", None
        elif one.level:
            verdict, reason = "refused", one.message
        else:
            verdict, reason = "ours", one.message
        yield Plugin(one.name, one.distribution, one.names, verdict, reason)
