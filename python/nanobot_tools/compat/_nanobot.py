"""The nanobot that is installed here."""

from __future__ import annotations

import importlib.machinery
import importlib.metadata
import re
import sys
from pathlib import Path

__all__ = ["NEWEST", "OLDEST", "has_module", "is_known", "version"]

#: The versions that were tested; what lies between is met target by target.
OLDEST, NEWEST = (0, 2, 1), (0, 3)


def version() -> str | None:
    """The version of the nanobot that is loaded, or would be; ``None`` if there is none."""
    loaded = getattr(sys.modules.get("nanobot"), "__version__", None)
    if isinstance(loaded, str):
        return loaded
    try:
        return importlib.metadata.version("nanobot-ai")
    except importlib.metadata.PackageNotFoundError:
        return None


def is_known(text: str) -> bool:
    """Whether a version is one of those that the drop-in was made for: 0.2.1 and later, up to 0.3.x."""
    numbers = tuple(int(part) for part in re.findall(r"\d+", text.partition("+")[0])[:3])
    return numbers >= OLDEST and numbers[:2] <= NEWEST


def has_module(name: str) -> bool:
    """Whether a module of nanobot's is there, without importing any."""
    if name in sys.modules:
        return True
    top, *rest = name.split(".")
    package = sys.modules.get(top)
    spec = package.__spec__ if package is not None else importlib.machinery.PathFinder.find_spec(top)
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        path = Path(folder, *rest)
        if path.with_suffix(".py").is_file() or (path / "__init__.py").is_file():
            return True
    return False
