"""What is measured, and the targets: one :class:`Row` for each line of the table."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

#: Who does the work. ``plain`` is without any library: bare pipes and sockets, and coroutines that check
#: nothing. ``rmcp`` is the Rust SDK's client in a program of its own.
OURS, REFERENCE, SDK, RMCP, PLAIN = "ours", "reference", "sdk", "rmcp", "plain"
#: nanobot with the drop-in: what ours is in the rows in which nanobot itself works.
GRAFTED = "grafted"
BATCH = 64
#: Calls in one response of a model.
TURN_CALLS = 20


@dataclass(frozen=True)
class Target:
    """What ours has to reach.

    Attributes:
        kind: ``"faster"``: at least ``value`` times faster than ``against``; ``"within"``: at most ``value``
            times what ``against`` takes; ``"under"``: at most ``value`` in the unit of the row.
        value: The number.
        against: Who is compared with; of no meaning for ``"under"``.
        measure: ``"wall"`` or ``"cpu"``.
    """

    kind: Literal["faster", "within", "under"]
    value: float
    against: str = REFERENCE
    measure: Literal["wall", "cpu"] = "wall"


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Attributes:
        key: The name under which the workers know it.
        title: What readers see.
        unit: ``"us"``, ``"ms"`` or ``"MB"``.
        who: Who takes part.
        per: Calls in one run, to which times are divided.
        rounds: How often everybody has a turn.
        targets: What ours has to reach.
        drop_in: Whether nanobot works on both sides, with the drop-in on ours.
    """

    key: str
    title: str
    unit: str
    who: tuple[str, ...] = (OURS, REFERENCE)
    per: int = 1
    rounds: int = 15
    targets: tuple[Target, ...] = field(default=())
    drop_in: bool = False

    def side(self, who: str) -> str:
        """The side that does the work of ``who``."""
        return GRAFTED if who == OURS and self.drop_in else who


ROWS = (
    Row("prepare", "`prepare_call`, 4 fields", "us", targets=(Target("faster", 25),)),
    Row("prepare_decorated", "`prepare_call`, 4 fields, `tool_parameters`", "us"),
    Row("execute", "`execute`, trivial tool", "us", targets=(Target("faster", 8),)),
    Row(
        "definitions",
        "definitions after one change, 180 MCP and 21 Python tools",
        "us",
        targets=(Target("faster", 10),),
    ),
    Row(
        "mcp_one",
        "one awaited MCP call",
        "us",
        (OURS, REFERENCE, SDK, PLAIN),
        targets=(Target("faster", 3), Target("faster", 10, measure="cpu")),
    ),
    Row(
        "mcp_gather",
        f"{BATCH} MCP calls in `asyncio.gather`, each",
        "us",
        (OURS, REFERENCE, SDK, PLAIN),
        per=BATCH,
        targets=(Target("faster", 25),),
    ),
    Row(
        "mcp_batch",
        f"{BATCH} MCP calls as one batch, each",
        "us",
        (OURS, REFERENCE, PLAIN),
        per=BATCH,
        targets=(Target("faster", 30), Target("within", 2, PLAIN)),
    ),
    Row(
        "python_batch",
        f"{BATCH} trivial Python tools as one batch, each",
        "us",
        (OURS, REFERENCE, PLAIN),
        per=BATCH,
        targets=(Target("faster", 4), Target("within", 1.3, PLAIN)),
    ),
    Row(
        "http_one",
        "one awaited call over Streamable HTTP",
        "us",
        (OURS, REFERENCE, SDK, RMCP, PLAIN),
        targets=(Target("faster", 2), Target("faster", 5, measure="cpu")),
    ),
    Row(
        "http_json",
        f"{BATCH} parallel calls of 20 ms over Streamable HTTP, JSON answers",
        "ms",
        (OURS, REFERENCE, SDK, RMCP, PLAIN),
        rounds=9,
        targets=(Target("faster", 20),),
    ),
    Row(
        "http_sse",
        f"{BATCH} parallel calls of 20 ms over Streamable HTTP, SSE answers",
        "ms",
        (OURS, REFERENCE, SDK, RMCP),
        rounds=9,
    ),
    Row(
        "legacy_sse", f"{BATCH} parallel calls of 20 ms over HTTP+SSE", "ms", (OURS, REFERENCE, SDK), rounds=9
    ),
    Row(
        "many_tools",
        "connecting over HTTP to a server with 1,000 tools (2 MiB)",
        "ms",
        (OURS, REFERENCE, SDK, RMCP),
        rounds=9,
        targets=(Target("faster", 5),),
    ),
    Row(
        "big",
        "a result of 8 MiB over Streamable HTTP",
        "ms",
        (OURS, REFERENCE, SDK, RMCP, PLAIN),
        rounds=9,
        targets=(Target("faster", 4),),
    ),
    Row(
        "start_cold",
        "start with ten servers that need 0.5 s each",
        "ms",
        rounds=5,
        targets=(Target("faster", 8),),
    ),
    Row(
        "start_warm",
        "the same with what is known from the last time",
        "ms",
        rounds=5,
        targets=(Target("under", 50),),
    ),
    Row(
        "nanobot_cold",
        "nanobot ready with ten servers that need 0.5 s each",
        "ms",
        rounds=5,
        drop_in=True,
    ),
    Row(
        "nanobot_warm",
        "the same with what is known from the last time, in nanobot",
        "ms",
        rounds=5,
        drop_in=True,
    ),
    Row(
        "nanobot_turn",
        f"a response with {TURN_CALLS} read-only calls of 20 ms over HTTP, in nanobot",
        "ms",
        rounds=9,
        drop_in=True,
    ),
    Row(
        "nanobot_three",
        "a response with a read-only call of 1 s to each of three servers, in nanobot",
        "ms",
        rounds=3,
        targets=(Target("under", 1100),),
        drop_in=True,
    ),
    Row("grep", "`grep` over 20,000 files", "ms", rounds=3, targets=(Target("faster", 10),)),
)

#: Measured in fresh processes, without what the bare interpreter takes.
PACKAGE_TIME = Row(
    "package_time", "import of the package alone", "ms", rounds=9, targets=(Target("under", 60),)
)
IMPORT_TIME = Row("import_time", "import of all that an agent with MCP servers uses", "ms", rounds=9)
IMPORT_MEMORY = Row("import_memory", "memory after that", "MB", rounds=9, targets=(Target("under", 25),))
#: The same, by the difference between a client of few servers and one of many.
SERVER_MEMORY = Row("server_memory", "memory of the client for each connected server", "MB", rounds=5)
