"""JSON straight from Python objects: the bytes of `json.dumps`, and a form for what it refuses."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import decimal
import enum
import json
import pathlib
import types
import uuid
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from nanobot_tools._native import CompiledSchema, to_json
from pydantic import BaseModel

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner),
)


@given(values)
def test_the_bytes_are_those_of_json_dumps(value: Any) -> None:
    expected = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    assert to_json(value) == expected.encode()


@pytest.mark.parametrize("digits", [20, 400, 4_300, 4_301, 12_345])
def test_integers_keep_every_digit(digits: int) -> None:
    for text in ("7" * digits, "-" + "1" + "0" * digits):
        parts = [text[max(0, end - 4000) : end] for end in range(len(text), 0, -4000)]
        negative = text.startswith("-")
        value = sum(int(part.lstrip("-") or "0") * 10 ** (4000 * index) for index, part in enumerate(parts))
        assert to_json(-value if negative else value) == text.encode()


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


class Mode(enum.StrEnum):
    FAST = "fast"


@dataclasses.dataclass
class Point:
    x: int
    where: pathlib.PurePath
    count: ClassVar[int] = 3


class Model(BaseModel):
    when: datetime.date
    points: list[int] = [1]


class Name(str):
    __slots__ = ()

    def __str__(self) -> str:
        return "other"


class Count(int):
    def __repr__(self) -> str:
        return "other"

    __str__ = __repr__


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Colour.RED, '"red"'),
        (Level.HIGH, "3"),
        (Mode.FAST, '"fast"'),
        ({Mode.FAST: 1}, '{"fast":1}'),
        (Point(1, pathlib.PurePosixPath("/a")), '{"x":1,"where":"/a"}'),
        (Model(when=datetime.date(2026, 1, 2)), '{"when":"2026-01-02","points":[1]}'),
        (datetime.datetime(2026, 1, 2, 3, 4), '"2026-01-02T03:04:00"'),
        (uuid.UUID(int=1), '"00000000-0000-0000-0000-000000000001"'),
        (decimal.Decimal("1.50"), '"1.50"'),
        ((1, (2,)), "[1,[2]]"),
        ({1}, "[1]"),
        (frozenset(), "[]"),
        (Name("x"), '"x"'),
        (Count(5), "5"),
        (collections.OrderedDict(a=1), '{"a":1}'),
        (types.MappingProxyType({"a": 1}), '{"a":1}'),
        ({1: 1, 2.5: 2, False: 3, None: 4}, '{"1":1,"2.5":2,"false":3,"null":4}'),
        (1e16, "1e+16"),
        (-0.0, "-0.0"),
    ],
)
def test_values_have_the_form_of_what_they_stand_for(value: Any, text: str) -> None:
    assert to_json(value) == text.encode()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {"a": [float("-inf")]}])
def test_nan_and_infinity_are_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="NaN and Infinity have no JSON form"):
        to_json(value)


@pytest.mark.parametrize("value", [b"x", object(), {(): 1}, Point, Colour, len])
def test_what_has_no_json_form_is_a_type_error(value: Any) -> None:
    with pytest.raises(TypeError):
        to_json(value)


def test_lone_surrogates_are_replaced_and_pairs_joined() -> None:
    assert to_json("a\ud800b") == '"a\ufffdb"'.encode()
    assert to_json("\ud83d\ude00") == '"😀"'.encode()


def test_depth_and_cycles_are_bounded() -> None:
    ring: list[Any] = []
    ring.append(ring)
    deep: Any = 1
    for _ in range(20_000):
        deep = [deep]
    for value in (ring, deep):
        with pytest.raises(ValueError, match="nested more than 255 levels deep"):
            to_json(value)
    while isinstance(deep, list):
        deep = deep.pop()


def test_an_objects_own_error_is_raised_unchanged() -> None:
    class Broken:
        def model_dump(self, mode: str) -> Any:
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        to_json([Broken()])


def test_a_dict_that_changes_meanwhile_is_an_error(capfd: pytest.CaptureFixture[str]) -> None:
    table: dict[str, Any] = {}

    class Meddler:
        def model_dump(self, mode: str) -> Any:
            table["new"] = 1
            return 1

    table.update(a=Meddler(), b=2)
    with pytest.raises(RuntimeError, match="changed"):
        to_json(table)
    capfd.readouterr()


def test_json_values_come_back_as_python_objects() -> None:
    schema = {"type": "object", "properties": {"a": {"const": [1, -2, 2.5, "ü", None, True, {}, 2**64 - 1]}}}
    assert CompiledSchema(schema).schema == schema
