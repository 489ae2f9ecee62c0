"""``nanobot-tools cache`` shows and clears what servers offered."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from command_line import configuration, nbtools
from mcp_servers import asking, echo


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of the cache, with what two servers offer in it."""
    nbtools("servers", "--config", configuration(tmp_path, one=echo(), two=asking()))
    return Path(os.environ["NBTOOLS_CACHE_DIR"]) / "catalogues"


def test_what_is_kept_of_each_server_is_shown(folder: Path) -> None:
    found = nbtools("cache", "--json").json
    assert found["folder"] == str(folder)
    assert {(one["server"], one["server_info"], one["tools"]) for one in found["catalogues"]} == {
        ("one", "echo 1.0.0", 4), ("two", "asking 1", 5),
    }  # fmt: skip
    assert all(Path(one["file"]).stat().st_size == one["bytes"] for one in found["catalogues"])
    text = nbtools("cache", "show", "one").out
    assert "echo 1.0.0" in text
    assert text.splitlines()[-1].startswith("1 catalogues, ")


def test_that_of_one_server_or_all_is_removed(folder: Path) -> None:
    assert "removed 1 of 1 catalogues" in nbtools("cache", "clear", "one").out
    assert [one["server"] for one in nbtools("cache", "--json").json["catalogues"]] == ["two"]
    assert "removed 1 of 1 catalogues" in nbtools("cache", "clear").out
    assert nbtools("cache", "--json").json["catalogues"] == []
    assert nbtools("cache").out.startswith("0 catalogues")


def test_files_of_others_stay_and_damaged_catalogues_go(folder: Path) -> None:
    hashed = "0" * 32
    kept = [folder / "notes.txt", folder / f"mine.{hashed}.catalogue.json", folder / "x.catalogue.json"]
    for path in kept:
        path.write_text("mine")
    damaged = folder / f"old.{hashed}.catalogue.json"
    damaged.write_text("nanobot-tools catalogue 0 abc\n{}")
    assert None in {one["server"] for one in nbtools("cache", "--json").json["catalogues"]}
    assert "(damaged)" in nbtools("cache").out
    assert "removed 3 of 3 catalogues" in nbtools("cache", "clear").out
    assert all(path.read_text() == "mine" for path in kept)
    assert not damaged.exists()


def test_a_server_of_which_nothing_is_kept_is_wrong_usage(folder: Path) -> None:
    assert "did you mean one" in nbtools("cache", "clear", "onee", status=2).err
    assert len(nbtools("cache", "--json").json["catalogues"]) == 2


def test_a_folder_that_there_is_not_is_empty() -> None:
    assert nbtools("cache", "clear").out.startswith("removed 0 of 0 catalogues")
