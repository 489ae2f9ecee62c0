"""Results as tables: for the terminal and for the README."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rows import OURS, PLAIN, REFERENCE, RMCP, SDK, Row, Target

BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"
NAMES = {OURS: "nanobot-tools", REFERENCE: "nanobot-ai", SDK: "MCP SDK", RMCP: "rmcp", PLAIN: "plain"}
SCALE = {"us": 1e6, "ms": 1e3, "MB": 1.0}
#: One row: who -> {"wall", "cpu"} in the unit of the row, or {"error"}.
Sides = Mapping[str, Mapping[str, Any]]


def number(value: float) -> str:
    """A number with three digits that mean something."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def ratio(sides: Sides, measure: str, against: str = REFERENCE) -> float | None:
    """How many times ``against`` takes what ours takes, if both are there."""
    ours, other = sides.get(OURS, {}).get(measure), sides.get(against, {}).get(measure)
    return other / ours if ours and other else None


def judge(row: Row, target: Target, sides: Sides) -> dict[str, Any]:
    """A target, the value that was reached, and whether that is enough."""
    if target.kind == "under":
        value = sides.get(OURS, {}).get(target.measure)
        text, met = f"under {target.value:g} {row.unit}", value is not None and value < target.value
    else:
        times = ratio(sides, target.measure, target.against)
        if target.kind == "faster":
            value, met = times, times is not None and times >= target.value
            text = f"{target.value:g}x" + (" less CPU" if target.measure == "cpu" else "")
        else:
            value = None if times is None else 1 / times
            met = value is not None and value <= target.value
            text = f"at most {target.value:g}x {NAMES[target.against]}"
    return {"target": text, "reached": value, "met": met}


def cell(sides: Sides, who: str, unit: str) -> str:
    """What one side took."""
    side = sides.get(who)
    if side is None:
        return ""
    return "failed" if "error" in side else f"{number(side['wall'])} {unit}"


def lines(results: list[tuple[Row, Sides]]) -> list[list[str]]:
    """The table's cells, with a line of titles."""
    table = [["", "nanobot-ai", "nanobot-tools", "time", "CPU time", "for comparison", "target"]]
    for row, sides in results:
        times = [ratio(sides, measure) for measure in ("wall", "cpu")]
        others = [f"{NAMES[who]} {cell(sides, who, row.unit)}" for who in (SDK, RMCP, PLAIN) if who in sides]
        verdicts = []
        for target in row.targets:
            judged = judge(row, target, sides)
            reached = "" if judged["reached"] is None else f" ({number(judged['reached'])})"
            verdicts.append(f"{judged['target']}: {'met' if judged['met'] else 'missed' + reached}")
        table.append(
            [
                row.title,
                cell(sides, REFERENCE, row.unit),
                cell(sides, OURS, row.unit),
                *("" if value is None else f"{number(value)}x" for value in times),
                ", ".join(others),
                "; ".join(verdicts),
            ]
        )
    return table


def for_terminal(table: list[list[str]]) -> str:
    """The table in columns."""
    widths = [max(len(line[column]) for line in table) for column in range(len(table[0]))]
    return "\n".join(
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
        for line in table
    )


def for_readme(table: list[list[str]], note: str) -> str:
    """The table in Markdown, with a line on the machine."""
    head, *body = [f"| {' | '.join(line)} |" for line in table]
    return "\n".join([head, "|---" * len(table[0]) + "|", *body, "", note])


def write_readme(path: Path, text: str) -> None:
    """Put ``text`` between the marks."""
    readme = path.read_text(encoding="utf-8")
    before, rest = readme.split(BEGIN)
    after = rest.split(END)[1]
    path.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}", encoding="utf-8")
