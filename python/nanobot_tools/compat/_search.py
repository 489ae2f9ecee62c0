"""The native search, behind ``execute`` of nanobot's ``grep`` and ``find_files``.

What may be read is nanobot's to say: it resolves the path by its own policy, for the request that it is
asked in. What only it can do (documents, errors about the path) it goes on doing.
"""

from __future__ import annotations

import functools
from pathlib import Path
from types import ModuleType
from typing import Any

from ..tools.search import FindFilesTool, GrepTool

__all__ = ["find_files", "grep"]

_DOCUMENTS = frozenset((".pdf", ".docx", ".xlsx", ".pptx"))


def _made_for(tool: Any, path: Any, kind: type[GrepTool] | type[FindFilesTool]) -> tuple[Any, str] | None:
    """The native tool for one call and the path to search; ``None`` if nanobot has to do it."""
    try:
        target = tool._resolve(path or ".")
        if not (target.is_dir() or target.is_file()) or target.suffix.lower() in _DOCUMENTS:
            return None
        workspace = tool._display_workspace()
    except Exception:  # Refused, or not to be resolved: nanobot says so in its own words.
        return None
    # The path was judged; what links on the way lead to is judged by the same boundary.
    boundary = Path(tool._allowed_dir) if tool._allowed_dir is not None else None
    folder = target.is_dir()
    native = kind(
        workspace=workspace or target,
        allowed_dir=boundary,
        extra_read_allowed_dirs=[target] if folder else [],
        extra_read_allowed_files=[] if folder else [target],
    )
    return native, str(target)


def _instead(original: Any, kind: type[GrepTool] | type[FindFilesTool]) -> Any:
    @functools.wraps(original)
    async def execute(self: Any, *args: Any, **kwargs: Any) -> Any:
        found = None
        if not args and not kwargs.get("pages"):
            found = _made_for(self, kwargs.get("path", "."), kind)
        if found is None:
            return await original(self, *args, **kwargs)
        native, target = found
        return await native.execute(**{**kwargs, "path": target})

    return execute


def grep(original: Any, module: ModuleType) -> Any:
    """For ``GrepTool.execute``."""
    return _instead(original, GrepTool)


def find_files(original: Any, module: ModuleType) -> Any:
    """For ``FindFilesTool.execute``."""
    if "pages" not in original.__globals__["GrepTool"].execute.__code__.co_varnames:
        raise TypeError("the native search gives the texts of nanobot-ai 0.3.5, and this one's are older")
    return _instead(original, FindFilesTool)
