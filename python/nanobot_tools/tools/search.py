"""The tools ``grep`` and ``find_files``, which run in Rust.

The classes only carry the constructor and the metadata that tools have in Python. The registry executes the
``NativeTool`` inside without coming through here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, ClassVar

from .. import _native
from .._native_tool import NativeBackedTool
from ..base import Tool

__all__ = ["FindFilesTool", "GrepTool"]


class _NativeSearchTool(NativeBackedTool):
    """What both tools share: the workspace policy and the native tool that keeps it.

    Args:
        workspace: Directory that relative paths start from and that shown paths are relative to (default:
            the current directory).
        allowed_dir: Directory that bounds what may be read (default: none but the workspace, if restricted).
        extra_allowed_dirs: Older name of ``extra_read_allowed_dirs``; both are used.
        extra_read_allowed_dirs: Directories outside the boundary that may be read as well.
        extra_write_allowed_dirs: Accepted for nanobot's tools; nothing is written.
        extra_write_allowed_files: Likewise.
        file_states: Likewise; searching keeps no state.
        restrict_to_workspace: Whether the workspace is a boundary (default: whether there is an
            ``allowed_dir``).
        sandbox_restricts_workspace: Whether a sandbox makes it one in any case.
        extra_read_allowed_files: Single files outside the boundary that may be read, but not through a link.
    """

    _scopes = {"core", "subagent"}  # noqa: RUF012 - the loader reads it as nanobot's tools declare it
    config_key = "file"

    _make: ClassVar[Callable[..., _native.NativeTool]]

    def __init__(
        self,
        workspace: Path | None = None,
        allowed_dir: Path | None = None,
        extra_allowed_dirs: Iterable[Path] | None = None,
        extra_read_allowed_dirs: Iterable[Path] | None = None,
        extra_write_allowed_dirs: Iterable[Path] | None = None,
        extra_write_allowed_files: Iterable[Path] | None = None,
        file_states: Any = None,
        restrict_to_workspace: bool | None = None,
        sandbox_restricts_workspace: bool = False,
        extra_read_allowed_files: Iterable[Path] | None = None,
    ) -> None:
        restrict = allowed_dir is not None if restrict_to_workspace is None else bool(restrict_to_workspace)
        self._native_tool = type(self)._make(
            workspace=workspace,
            allowed_dir=allowed_dir,
            extra_allowed_dirs=[*(extra_allowed_dirs or ()), *(extra_read_allowed_dirs or ())],
            extra_allowed_files=list(extra_read_allowed_files or ()),
            restrict_to_workspace=restrict or bool(sandbox_restricts_workspace),
        )

    @classmethod
    def enabled(cls, ctx: Any) -> bool:
        """Whether file tools are on: ``ctx.config.file.enable``, true where there is no such setting."""
        return bool(_setting(ctx, "file", "enable", default=True))

    @classmethod
    def create(cls, ctx: Any) -> Tool:
        """Build the tool for a context.

        The workspace is a boundary when ``ctx.config.restrict_to_workspace`` or ``ctx.config.exec.sandbox``
        says so. The workspace's own skills and history stay readable in any case.
        """
        workspace = Path(ctx.workspace)
        real = workspace.expanduser().resolve()
        restrict = bool(_setting(ctx, "restrict_to_workspace", default=False))
        sandbox = bool(_setting(ctx, "exec", "sandbox", default=False))
        return cls(
            workspace=workspace,
            allowed_dir=workspace if restrict or sandbox else None,
            extra_read_allowed_dirs=[real / "skills"],
            extra_read_allowed_files=[real / "memory" / "history.jsonl"],
            restrict_to_workspace=restrict,
            sandbox_restricts_workspace=sandbox,
        )


class FindFilesTool(_NativeSearchTool):
    """Find paths by name, glob, file type or terms, without entering dependency and build directories."""

    _plugin_discoverable = True
    _make = staticmethod(_native.find_files_tool)


class GrepTool(_NativeSearchTool):
    """Search the text of files by a regular expression of Python's dialect, or literally."""

    _plugin_discoverable = True
    _make = staticmethod(_native.grep_tool)


def _setting(ctx: Any, *path: str, default: Any) -> Any:
    value = getattr(ctx, "config", None)
    for name in path:
        value = getattr(value, name, None)
    return default if value is None else value
