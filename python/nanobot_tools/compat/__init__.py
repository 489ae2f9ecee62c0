"""The drop-in for nanobot: an installed nanobot uses this package's core, without a changed line.

:func:`install` replaces functions of nanobot's in place; its modules and classes stay what they are, and so
do its configuration and what it shows to users. It may be called before or after nanobot is imported, and
any number of times. A nanobot that loads its plugins calls it by itself (entry point ``nanobot_tools`` in the
group ``nanobot.tools``), in every version and after every restart.

In the environment, ``NBTOOLS=off`` switches all of it off, ``NBTOOLS_MCP=sdk`` leaves MCP servers to
nanobot's own client, and ``NBTOOLS_REGISTRY``, ``NBTOOLS_LOADER`` and ``NBTOOLS_EXECUTOR`` (``off``) and
``NBTOOLS_NATIVE_TOOLS`` (``on``) switch the other parts.
"""

from __future__ import annotations

from ._install import Report, install, report, uninstall

__all__ = ["Report", "install", "report", "uninstall"]
