"""A tree of 20,000 source-like files, always the same."""

from __future__ import annotations

import random
from pathlib import Path

FILES = 20_000
PER_FOLDER = 50
WORDS = [
    "async",
    "call",
    "class",
    "def",
    "import",
    "of",
    "queue",
    "registry",
    "result",
    "schema",
    "the",
    "tool",
]


def make(root: Path) -> None:
    """Fill ``root``. One file in a hundred holds the pattern that is looked for."""
    chance = random.Random(20_000)
    for number in range(FILES):
        folder = root / f"part_{number // (PER_FOLDER * 20):02}" / f"module_{number // PER_FOLDER:03}"
        if number % PER_FOLDER == 0:
            folder.mkdir(parents=True)
        lines = [" ".join(chance.choices(WORDS, k=10)) for _ in range(chance.randrange(10, 60))]
        if number % 100 == 7:
            lines.insert(len(lines) // 2, f"here is needle_{number}")
        ending = (".py", ".md", ".rs", ".txt")[number % 4]
        (folder / f"file_{number:05}{ending}").write_text("\n".join(lines) + "\n", encoding="utf-8")
