"""What commands print: tables, JSON and complaints.

On a terminal tables are drawn by rich. Elsewhere a row is a line of plain text whose columns are aligned and
two spaces apart. ``NO_COLOR`` and ``TERM=dumb`` are heeded. What servers and plugins say of themselves is
text, never markup, and control characters in it are made visible: they could steer the terminal.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TextIO

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

__all__ = [
    "as_json",
    "clean",
    "complain",
    "console",
    "emit",
    "is_terminal",
    "plain_table",
    "print_json",
    "print_table",
    "rich_table",
    "say",
    "seconds",
    "size",
]

# Control characters but for line feed and tab, and those that turn the direction of text around.
_STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")

#: The length up to which the cells of a column are not wrapped.
_SHORT = 24

Rows = Iterable[Sequence[object]]


def is_terminal(stream: TextIO | None = None) -> bool:
    """Whether somebody looks at what is printed (at stdout by default)."""
    stream = sys.stdout if stream is None else stream
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def clean(text: object) -> str:
    """Text of somebody else that may be printed on a terminal."""
    return _STEERING.sub(lambda found: f"\\x{ord(found[0]):02x}", str(text))


def console(*, stderr: bool = False) -> Console:
    """A console on a terminal, without colours where ``NO_COLOR`` says so."""
    from rich.console import Console

    if os.environ.get("NO_COLOR"):
        return Console(stderr=stderr, color_system=None, highlight=False)
    return Console(stderr=stderr, highlight=False)


def say(text: object = "") -> None:
    """Print a line of text."""
    typer.echo(clean(text))


def emit(text: str) -> None:
    """Print a result: cleaned on a terminal, and as it is to a file or a program."""
    if is_terminal():
        say(text)
    else:
        # `color` keeps escape sequences in.
        typer.echo(text, color=True)


def complain(text: object) -> None:
    """Print a line of text to stderr."""
    typer.echo(clean(text), err=True)


def as_json(value: Any, *, indent: int | None = 2) -> str:
    """The value as JSON; what has no such form is named by its type."""
    return json.dumps(value, indent=indent, ensure_ascii=False, default=lambda item: repr(type(item)))


def print_json(value: Any) -> None:
    """Print a value as JSON."""
    typer.echo(as_json(value))


def print_table(columns: Sequence[str], rows: Rows) -> None:
    """Print a table."""
    if is_terminal():
        console().print(rich_table(columns, rows))
    else:
        typer.echo(plain_table(columns, rows))


def rich_table(columns: Sequence[str], rows: Rows, *, dense: bool = False) -> Table:
    """The table for a terminal; only columns with long texts are wrapped where there is no room.

    A dense one has no lines, and less space between its columns.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    cells = [[_cell(cell) for cell in row] for row in rows]
    table = Table(box=None if dense else box.SIMPLE_HEAD, pad_edge=False, collapse_padding=dense)
    for i, column in enumerate(columns):
        longest = max((len(row[i]) for row in cells), default=0)
        table.add_column(column, no_wrap=longest <= _SHORT, overflow="fold")
    for row in cells:
        # Text is not searched for markup.
        table.add_row(*(Text(cell) for cell in row))
    return table


def plain_table(columns: Sequence[str], rows: Rows) -> str:
    """The table as lines of text; a cell has no line breaks."""
    lines = [[column.upper() for column in columns]]
    lines += [[" ".join(_cell(cell).split()) or "-" for cell in row] for row in rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def seconds(value: float | None) -> str:
    """A time for people; nothing for ``None``."""
    if value is None:
        return ""
    if value < 0.001:
        return f"{value * 1e6:.0f} us"
    return f"{value * 1e3:.1f} ms" if value < 1 else f"{value:.2f} s"


def size(count: float) -> str:
    """A number of bytes for people."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"


def _cell(value: object) -> str:
    return "" if value is None else clean(value)
