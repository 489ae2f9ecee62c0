"""A tool that is a class: the loader makes it with ``create``, from the host's configuration."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nanobot_tools.base import Tool, ToolResult, tool_parameters
from nanobot_tools.context import ToolContext
from nanobot_tools.schema import IntegerSchema, StringSchema, tool_parameters_schema


@dataclass
class NotesConfig:
    """The tool's section of the configuration, ``notes``.

    Attributes:
        enable: Whether the tool is offered at all.
        file: Where the notes are, below the workspace.
        limit: Notes that are kept; the oldest ones go first.
    """

    enable: bool = True
    file: str = "notes.txt"
    limit: int = 100


@tool_parameters(
    tool_parameters_schema(
        text=StringSchema("A note to keep; without it, notes are only read", max_length=500),
        last=IntegerSchema(description="How many of the last notes to show", minimum=1, maximum=50),
    )
)
class NotesTool(Tool):
    """Keeps short notes in a file of the workspace."""

    config_key = "notes"
    _scopes = {"core", "subagent"}  # noqa: RUF012 - declared as nanobot's tools declare it

    def __init__(self, path: Path, limit: int = 100) -> None:
        self._path = path
        self._limit = limit
        self._lock = asyncio.Lock()

    @classmethod
    def config_cls(cls) -> type[NotesConfig]:
        """The class of the configuration's section."""
        return NotesConfig

    @classmethod
    def enabled(cls, ctx: ToolContext) -> bool:
        """Whether the configuration wants the tool."""
        return cls._config(ctx).enable

    @classmethod
    def create(cls, ctx: ToolContext) -> NotesTool:
        """Make the tool from the configuration and the workspace."""
        config = cls._config(ctx)
        return cls(Path(ctx.workspace) / config.file, config.limit)

    @classmethod
    def _config(cls, ctx: ToolContext) -> NotesConfig:
        section = getattr(ctx.config, cls.config_key, None)
        return section if section is not None else NotesConfig()

    @property
    def name(self) -> str:
        """The name that the model uses."""
        return "notes"

    @property
    def description(self) -> str:
        """What the model is told."""
        return "Keep a short note, and read the last notes that were kept."

    async def execute(self, text: str | None = None, last: int = 5, **kwargs: Any) -> str:
        """Keep a note if there is one, and show the last ones."""
        async with self._lock:
            try:
                notes = await asyncio.to_thread(self._keep, text)
            except OSError as exc:
                return ToolResult.error(f"Error: the notes cannot be kept: {exc.strerror}")
        return "\n".join(f"- {note}" for note in notes[-last:]) or "(no notes)"

    def _keep(self, text: str | None) -> list[str]:
        notes = self._path.read_text("utf-8").splitlines() if self._path.exists() else []
        if text is not None:
            notes = [*notes, " ".join(text.split())][-self._limit :]
            self._path.write_text("".join(f"{note}\n" for note in notes), "utf-8")
        return notes
