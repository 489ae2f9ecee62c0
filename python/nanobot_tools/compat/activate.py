"""The door by which nanobot lets the drop-in in: the entry point ``nanobot_tools`` of ``nanobot.tools``.

nanobot imports this module when it loads its plugins, and that installs the drop-in. What the entry point
names is no tool, so nanobot registers nothing for it. Without a nanobot in the process nothing happens.
"""

from __future__ import annotations

import sys

from ._install import install

__all__ = ["entry_point"]


def entry_point() -> None:
    """What the entry point names; there is nothing to call it for."""


if "nanobot" in sys.modules:
    install()
