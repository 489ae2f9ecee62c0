"""nanobot-ai with the drop-in: the same program as without, after one more line."""

from __future__ import annotations

import nanobot_tools

nanobot_tools.install()

from nanobot_rows import nanobot_makers  # noqa: E402 - nanobot comes after the drop-in
from side_reference import quiet  # noqa: E402
from work import Maker  # noqa: E402


def makers(floor: str, tree: str) -> dict[str, Maker]:
    """The rows in which nanobot works."""
    quiet()
    return nanobot_makers(floor)
