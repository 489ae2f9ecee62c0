"""What `tests/data/rendering.json` says of nanobot-ai is what nanobot-ai does.

The core's own tests hold our rendering against that file; here the file is held against the reference.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import reference

FIXTURE = reference.ROOT / "tests/data/rendering.json"
SCRIPT = Path(__file__).with_name("reference_render.py")


def test_the_recorded_renderings_are_those_of_the_reference(reference_python: Path) -> None:
    """A new release of nanobot-ai that renders otherwise is noticed here."""
    made = subprocess.run(
        [str(reference_python), "-W", "ignore", str(SCRIPT), str(FIXTURE)],
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=True,
    )
    assert json.loads(made.stdout) == json.loads(FIXTURE.read_text(encoding="utf-8"))


def test_differences_are_named_with_their_reason() -> None:
    """Where we render otherwise, the file says why."""
    for case in json.loads(FIXTURE.read_text(encoding="utf-8"))["cases"]:
        assert ("ours" in case) == ("why" in case), case["name"]
        assert case.get("ours") != case["reference"], case["name"]
