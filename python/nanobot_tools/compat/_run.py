"""The launcher: nanobot in this process, with the drop-in there before anything of it is imported."""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Sequence

from ._install import install

__all__ = ["run"]


def run(arguments: Sequence[str]) -> int:
    """Install the drop-in and run nanobot's command line with ``arguments``.

    nanobot restarts itself by what is in ``sys.argv``; the drop-in then comes in by the entry point.

    Returns:
        The exit status.

    Raises:
        LookupError: nanobot is not installed in this environment.
    """
    scripts = importlib.metadata.entry_points(group="console_scripts", name="nanobot")
    script = next((s for s in scripts if s.dist is not None and s.dist.name == "nanobot-ai"), None)
    if script is None:
        raise LookupError("nanobot is not installed in this environment: pip install nanobot-ai")
    install()
    sys.argv = ["nanobot", *arguments]
    status = script.load()()
    return status if isinstance(status, int) else 0
