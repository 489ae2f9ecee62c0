"""What a docstring says of a function and its parameters, in Google, NumPy and Sphinx style."""

from __future__ import annotations

import re
from inspect import cleandoc

__all__ = ["parse"]

_PARAMETERS = {
    "args",
    "arguments",
    "attributes",
    "keyword args",
    "keyword arguments",
    "other parameters",
    "parameters",
    "params",
}
_OTHERS = {
    "example",
    "examples",
    "note",
    "notes",
    "raises",
    "references",
    "return",
    "returns",
    "see also",
    "warns",
    "yield",
    "yields",
}
_GOOGLE_ITEM = re.compile(r"\*{0,2}(?P<name>\w+)\s*(?:\((?P<type>.*?)\))?\s*:(?:\s+(?P<text>.*))?$")
_NUMPY_ITEM = re.compile(r"(?P<names>\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?$")
_FIELD = re.compile(r"[:@](?P<kind>\w+)\b\s*(?P<argument>[^:]*):\s*(?P<text>.*)$")
_PARAMETER_FIELDS = {"param", "parameter", "arg", "argument", "key", "keyword", "ivar", "var"}


def parse(docstring: str | None) -> tuple[str, dict[str, str]]:
    """Split a docstring.

    Returns:
        The text before the first section, and the descriptions of parameters by name. Line breaks inside a
        description become spaces.
    """
    lines = cleandoc(docstring or "").splitlines()
    lead: list[str] = []
    found: dict[str, str] = {}
    at = 0
    in_lead = True
    while at < len(lines):
        title, body = _section(lines, at)
        if title is not None:
            in_lead = False
            end = _end(lines, body)
            if title in _PARAMETERS:
                numpy = body == at + 2
                found.update(_numpy(lines[body:end]) if numpy else _google(lines[body:end]))
            at = end
            continue
        field = _FIELD.match(lines[at])
        if field is not None:
            in_lead = False
            at = _field(lines, at, field, found)
            continue
        if in_lead:
            lead.append(lines[at])
        at += 1
    return "\n".join(lead).strip(), {name: text for name, text in found.items() if text}


def _section(lines: list[str], at: int) -> tuple[str | None, int]:
    """The title of the section that begins at a line, and where its body begins."""
    line = lines[at]
    if not line or line[0].isspace():
        return None, at
    following = lines[at + 1] if at + 1 < len(lines) else ""
    title = line.strip().lower()
    if len(following.strip()) >= 3 and set(following.strip()) == {"-"} and title in _PARAMETERS | _OTHERS:
        return title, at + 2
    if title.endswith(":") and title[:-1] in _PARAMETERS | _OTHERS:
        return title[:-1], at + 1
    return None, at


def _end(lines: list[str], body: int) -> int:
    """Where a section ends: at the next one, or where text is no longer indented (Google style)."""
    numpy = body >= 2 and set(lines[body - 1].strip()) == {"-"}
    for at in range(body, len(lines)):
        if _section(lines, at)[0] is not None or _FIELD.match(lines[at]):
            return at
        if not numpy and lines[at] and not lines[at][0].isspace():
            return at
    return len(lines)


def _joined(parts: list[str]) -> str:
    return " ".join(part.strip() for part in parts if part.strip())


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _google(lines: list[str]) -> dict[str, str]:
    depth = min((_indent(line) for line in lines if line.strip()), default=0)
    items: dict[str, list[str]] = {}
    current: list[str] | None = None
    for line in lines:
        if line.strip() and _indent(line) == depth:
            match = _GOOGLE_ITEM.match(line.strip())
            current = None if match is None else items.setdefault(match["name"], [match["text"] or ""])
        elif current is not None:
            current.append(line)
    return {name: _joined(parts) for name, parts in items.items()}


def _numpy(lines: list[str]) -> dict[str, str]:
    items: dict[str, list[str]] = {}
    current: list[str] | None = None
    for line in lines:
        if line.strip() and not line[0].isspace():
            match = _NUMPY_ITEM.match(line.strip())
            current = None
            if match is not None:
                current = []
                for name in match["names"].split(","):
                    items[name.strip().lstrip("*")] = current
        elif current is not None:
            current.append(line)
    return {name: _joined(parts) for name, parts in items.items()}


def _field(lines: list[str], at: int, field: re.Match[str], found: dict[str, str]) -> int:
    """Take a Sphinx field with the indented lines below it; returns where it ends."""
    parts = [field["text"]]
    at += 1
    while at < len(lines) and lines[at][:1].isspace():
        parts.append(lines[at])
        at += 1
    words = field["argument"].split()
    if field["kind"] in _PARAMETER_FIELDS and words:
        found[words[-1].lstrip("*")] = _joined(parts)
    return at
