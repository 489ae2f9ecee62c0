"""The tools ``grep`` and ``find_files``, which run in Rust.

The classes only carry the constructor and the metadata that tools have in Python. The registry executes the
``NativeTool`` inside without coming through here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, ClassVar

from .. import _native
from ..base import Tool

__all__ = ["FindFilesTool", "GrepTool"]


class _NativeSearchTool(Tool):
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
    _plugin_discoverable = False
    config_key = "file"

    _make: ClassVar[Callable[..., _native.NativeTool]]
    _native_tool: _native.NativeTool

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

    @property
    def name(self) -> str:
        """The name that the model uses."""
        return self._native_tool.name

    @property
    def description(self) -> str:
        """What the model is told about the tool."""
        return self._native_tool.description

    @property
    def parameters(self) -> dict[str, Any]:
        """The JSON Schema of the arguments; a new dict each time."""
        parameters: dict[str, Any] = self._native_tool.parameters
        return parameters

    @property
    def read_only(self) -> bool:
        """True: searching has no side effect."""
        return self._native_tool.read_only

    async def execute(self, /, **kwargs: Any) -> Any:
        """Run the search with arguments that were cast and validated.

        Returns:
            The text for the model; a ``ToolResult`` that is an error when the search failed.
        """
        return await _native.call_native(self._native_tool, kwargs)

    execute._runs_native_tool = True  # type: ignore[attr-defined]


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
