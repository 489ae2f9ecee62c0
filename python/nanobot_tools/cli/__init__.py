"""The command line: ``nanobot-tools``, which needs the extra ``cli`` (typer and rich).

One file for each command. What is common to them is in ``_app`` (the application, errors, exit status),
``_config`` (the configuration file), ``_output`` (what is printed) and ``_session`` (servers, connected).
A command imports what it works with when it is run, so that ``--help`` and completion are quick.
"""

from __future__ import annotations

try:
    import typer  # noqa: F401
except ImportError as exc:
    raise SystemExit(f"{exc}: install nanobot-tools[cli]") from exc

from . import bench, cache, call, doctor, importing, prompts, resources, run, servers, tools, version, watch
from ._app import app, main

__all__ = ["app", "main"]

# In the order in which --help shows them.
for _module in (
    tools, servers, call, resources, prompts, doctor, watch, bench, importing, cache, run, version,
):  # fmt: skip
    _module.add_to(app)
