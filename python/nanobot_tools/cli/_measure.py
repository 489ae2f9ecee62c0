"""Many calls, and how long they took."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ._output import seconds

__all__ = ["Measured", "Once", "many", "percentile"]

#: Makes a call: the seconds that it took, and the kind of error or ``None``.
Once = Callable[[], Awaitable[tuple[float, str | None]]]


@dataclass
class Measured:
    """What became of many calls.

    Attributes:
        durations: Seconds of each call that succeeded.
        errors: Kind of error -> how many calls ended so.
        elapsed: Seconds from the first call's start to the last one's end.
        parallel: How many ran at once.
    """

    parallel: int
    durations: list[float] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)
    elapsed: float = 0.0

    @property
    def calls(self) -> int:
        """How many calls were made."""
        return len(self.durations) + self.errors.total()

    @property
    def per_second(self) -> float:
        """Calls per second, those included that failed."""
        return self.calls / self.elapsed if self.elapsed else 0.0

    def as_dict(self) -> dict[str, Any]:
        """As JSON shows it; the latencies are those of calls that succeeded, in seconds."""
        ordered = sorted(self.durations)
        return {
            "calls": self.calls,
            "parallel": self.parallel,
            "failed": dict(self.errors),
            "elapsed": self.elapsed,
            "calls_per_second": self.per_second,
            "latency": {
                "p50": percentile(ordered, 0.50),
                "p95": percentile(ordered, 0.95),
                "max": ordered[-1] if ordered else None,
            },
        }

    def __str__(self) -> str:
        shown = self.as_dict()["latency"]
        latencies = ", ".join(
            f"{name} {seconds(value)}" for name, value in shown.items() if value is not None
        )
        failed = ", ".join(f"{count} {kind}" for kind, count in self.errors.items())
        return (
            f"{self.calls} calls, {self.parallel} at once, in {seconds(self.elapsed)}: "
            f"{self.per_second:.1f} calls/s{f'; {latencies}' if latencies else ''}"
            f"{f'; failed: {failed}' if failed else ''}"
        )


async def many(
    once: Callable[[], Awaitable[tuple[float, str | None]]], count: int, parallel: int
) -> Measured:
    """Make ``count`` calls, ``parallel`` of them at once."""
    import asyncio

    measured = Measured(parallel=min(parallel, count))
    left = count

    async def worker() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            duration, error = await once()
            if error is None:
                measured.durations.append(duration)
            else:
                measured.errors[error] += 1

    started = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(measured.parallel):
            group.create_task(worker())
    measured.elapsed = time.perf_counter() - started
    return measured


def percentile(ordered: Sequence[float], share: float) -> float | None:
    """The smallest of the values, which are in order, that this share of them does not exceed."""
    if not ordered:
        return None
    return ordered[max(0, -int(-share * len(ordered) // 1) - 1)]
