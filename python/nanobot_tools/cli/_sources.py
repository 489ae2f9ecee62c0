"""The files in which other clients keep their MCP servers, and their servers as entries of ours."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import ConfigError
from ._app import near, wrong
from ._config import parse_json, read_text, servers_of, without_prefix
from ._schema import fields

__all__ = ["CLIENTS", "Source", "known_places", "load", "named"]

CLIENTS = ("nanobot", "project", "claude-desktop", "claude-code", "cursor", "vscode", "codex")

_REFERENCE = re.compile(r"\$\{([^}]*)\}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass
class Source:
    """What a file holds.

    Attributes:
        client: Whose file it is.
        path: The file.
        servers: Name -> entry, as ours.
        notes: What was left out or has to be done, for people.
        variables: Variables of the environment that the entries refer to -> what they are for, if known.
    """

    client: str
    path: Path
    servers: dict[str, dict[str, Any]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    variables: dict[str, str] = field(default_factory=dict)


def known_places() -> list[tuple[str, Path]]:
    """Client and file, of all places that are looked at."""
    home, here = Path.home(), Path.cwd()
    if sys.platform == "darwin":
        applications = home / "Library" / "Application Support"
    elif sys.platform == "win32":
        applications = Path(os.environ.get("APPDATA") or home / "AppData" / "Roaming")
    else:
        applications = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")
    places = [
        ("nanobot", home / ".nanobot" / "config.json"),
        ("project", here / ".mcp.json"),
        ("claude-desktop", applications / "Claude" / "claude_desktop_config.json"),
        ("claude-code", home / ".claude.json"),
        ("cursor", here / ".cursor" / "mcp.json"),
        ("cursor", home / ".cursor" / "mcp.json"),
        ("vscode", here / ".vscode" / "mcp.json"),
        ("vscode", applications / "Code" / "User" / "mcp.json"),
        ("codex", here / ".codex" / "config.toml"),
        ("codex", Path(os.environ.get("CODEX_HOME") or home / ".codex") / "config.toml"),
    ]
    # The home folder may be the current one, which has the same files then.
    return [(client, path) for path, client in {path: client for client, path in places}.items()]


def named(source: str) -> list[tuple[str, Path]]:
    """Client and file, of what a user named: a client, or a file.

    Raises:
        CommandError: There is no such client or file.
    """
    path = Path(source)
    if source not in CLIENTS:
        if not path.exists():
            raise wrong(f"{source} is neither a file nor a client{near(source, CLIENTS)}; "
                        f"clients are {', '.join(CLIENTS)}")  # fmt: skip
        same = [client for client, place in known_places() if place == path.absolute()]
        return [(same[0] if same else "file", path)]
    found = [(client, place) for client, place in known_places() if client == source and place.exists()]
    if not found:
        places = ", ".join(str(place) for client, place in known_places() if client == source)
        raise wrong(f"there is no file of {source}; looked for {places}")
    return found


def load(client: str, path: Path) -> Source:
    """Read a file; its form is seen from its content.

    Raises:
        CommandError: It cannot be read, or holds nothing of the kind.
    """
    source = Source(client, path)
    text = read_text(path)
    if path.suffix == ".toml":
        entries = _toml(path, text)
        convert: Callable[[Source, str, dict[str, Any]], dict[str, Any]] = _of_codex
    else:
        content = parse_json(path, _without_comments(text))
        entries = _entries(source, content)
        convert = _of_json
    if entries is None:
        raise wrong(f"{path}: there are no MCP servers in it")
    if not isinstance(entries, Mapping):
        raise wrong(f"{path}: its servers must be an object")
    for name, entry in entries.items():
        if not isinstance(entry, dict):
            source.notes.append(f"{name}: left out, since it is no object")
            continue
        converted = _known(source, name, convert(source, name, entry))
        fault = _fault(name, converted)
        if fault is None:
            source.servers[name] = converted
        else:
            source.notes.append(f"{name}: left out, since {fault}")
    return source


def _entries(source: Source, content: Any) -> Any:
    """The servers in one of the forms of JSON that there are; ``None`` if it is none of them."""
    if not isinstance(content, Mapping):
        return None
    tools, mcp = content.get("tools"), content.get("mcp")
    if isinstance(tools, Mapping) and servers_of(tools) is not None:
        return servers_of(tools)
    if source.client == "claude-code" and isinstance(content.get("projects"), Mapping):
        ours = servers_of(content["projects"].get(str(Path.cwd())))
        return {**(servers_of(content) or {}), **(ours if isinstance(ours, Mapping) else {})}
    if servers_of(content) is not None:
        return servers_of(content)
    # VS Code's mcp.json, and the part of its settings.
    holder = mcp if isinstance(mcp, Mapping) and "servers" in mcp else content
    for one in holder.get("inputs") or []:
        if isinstance(one, Mapping) and isinstance(one.get("id"), str):
            source.variables[_variable(one["id"])] = str(one.get("description") or "")
    return holder.get("servers")


def _toml(path: Path, text: str) -> Any:
    import tomllib

    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as exc:
        raise wrong(f"{path}: {exc}") from None
    return content.get("mcp_servers")


def _of_json(source: Source, name: str, entry: dict[str, Any]) -> dict[str, Any]:
    if "envFile" in entry:
        source.notes.append(f"{name}: its envFile is not read; set the variables in it")
    return {key: _referring(source, name, value) for key, value in entry.items() if key != "envFile"}


def _of_codex(source: Source, name: str, entry: dict[str, Any]) -> dict[str, Any]:
    """An entry of Codex, whose fields have other names."""
    renamed = {
        "http_headers": "headers",
        "startup_timeout_sec": "connectTimeout",
        "tool_timeout_sec": "toolTimeout",
        "enabled_tools": "enabledTools",
        "disabled_tools": "disabledTools",
    }
    found = {renamed.get(key, key): value for key, value in entry.items()}
    headers = dict(found.pop("headers", None) or {})
    for header, variable in (found.pop("env_http_headers", None) or {}).items():
        headers[header] = f"${{{variable}}}"
        source.variables.setdefault(str(variable), "")
    token = found.pop("bearer_token_env_var", None)
    if token:
        headers["Authorization"] = f"Bearer ${{{token}}}"
        source.variables.setdefault(str(token), "")
    if headers:
        found["headers"] = headers
    passed = found.pop("env_vars", None) or []
    if passed:
        found["env"] = {**{str(one): f"${{{one}}}" for one in passed}, **(found.get("env") or {})}
        source.variables.update({str(one): "" for one in passed if str(one) not in source.variables})
    if found.pop("enabled", True) is False:
        found["disabled"] = True
    milliseconds = found.pop("startup_timeout_ms", None)
    if isinstance(milliseconds, (int, float)):
        found.setdefault("connectTimeout", milliseconds / 1000)
    return found


def _referring(source: Source, name: str, value: Any) -> Any:
    """A value with the references of other clients as ours."""
    if isinstance(value, list):
        return [_referring(source, name, item) for item in value]
    if isinstance(value, dict):
        return {key: _referring(source, name, item) for key, item in value.items()}
    if not isinstance(value, str):
        return value

    def reference(found: re.Match[str]) -> str:
        inner = found[1]
        kind, colon, rest = inner.partition(":")
        if kind == "input" and colon:
            variable = _variable(rest)
        elif kind == "env" and colon:
            variable = rest
        elif inner in ("workspaceFolder", "userHome", "pathSeparator", "/"):
            folder = source.path.absolute().parent
            workspace = folder.parent if folder.name.startswith(".") else folder
            return {"workspaceFolder": str(workspace), "userHome": str(Path.home())}.get(inner, os.sep)
        elif colon and rest.startswith("-") and _NAME.fullmatch(kind):
            if kind not in os.environ:
                source.notes.append(f"{name}: {found[0]} became its default")
                return rest[1:]
            variable = kind
        else:
            variable = inner
        if not _NAME.fullmatch(variable):
            source.notes.append(f"{name}: {found[0]} is kept as it is; it means nothing to us")
            return found[0]
        source.variables.setdefault(variable, "")
        return f"${{{variable}}}"

    return _REFERENCE.sub(reference, value)


def _known(source: Source, name: str, entry: dict[str, Any]) -> dict[str, Any]:
    """An entry with nothing in it but fields of ours."""
    known = {spelling.lower() for spelling in fields()}
    unknown = [key for key in entry if key.replace("_", "").lower() not in known]
    if unknown:
        source.notes.append(f"{name}: left out {', '.join(unknown)}, which we have no place for")
    return {key: value for key, value in entry.items() if key not in unknown}


def _fault(name: str, entry: dict[str, Any]) -> str | None:
    """What the core would say of an entry whose variables are set."""
    from .._native import check_server

    try:
        check_server(name, json.loads(_REFERENCE.sub("x", json.dumps(entry))))
    except (ConfigError, TypeError, ValueError) as exc:
        return without_prefix(name, exc)
    return None


def _variable(identifier: str) -> str:
    """The variable that stands for an input of VS Code's."""
    name = re.sub(r"\W+", "_", identifier).strip("_").upper()
    return name if name and not name[0].isdigit() else f"_{name}"


def _without_comments(text: str) -> str:
    """JSON with comments and trailing commas, as some editors write it, without these; places stay."""
    out = list(text)
    for start, end in _comments(text):
        for i in range(start, end):
            if out[i] != "\n":
                out[i] = " "
    bare = "".join(out)
    for found in re.finditer(r'"(?:\\.|[^"\\])*"|,(?=\s*[}\]])', bare):
        if found[0] == ",":
            out[found.start()] = " "
    return "".join(out)


def _comments(text: str) -> Iterator[tuple[int, int]]:
    pattern = re.compile(r'"(?:\\.|[^"\\])*"|//[^\n]*|/\*.*?(?:\*/|\Z)', re.DOTALL)
    for found in pattern.finditer(text):
        if not found[0].startswith('"'):
            yield found.span()
