"""Blueprints as plain data: nothing is lost, and nothing that does not fit is taken."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

import pytest
import torch
from hypothesis import given

from fusionlab.symmetry import Blueprint, Space, blueprint
from fusionlab.symmetry.axes import Across, Along, Concat, Fixed, Per, Scaled
from fusionlab.symmetry.blueprint import LayerScale, Norm, Reader
from fusionlab.symmetry.evidence import Outcome, Trial
from fusionlab.symmetry.groups import Group, Invertible, Permutation, Rotary, Scale
from fusionlab.symmetry.inputs import Input
from fusionlab.symmetry.plain import PlainError, dumps, loads
from fusionlab.symmetry.roles import Role
from tests.families import cases_clip, cases_gpt, cases_llama, cases_vision
from tests.symmetry.fields import every_field
from tests.symmetry.groups.test_groups import groups

FULL = Blueprint(
    "everything",
    {
        "experts": Space("experts", Permutation(8), Role.EXPERTS, 0),
        "ffn": Space("ffn", Permutation(56), Role.UNITS, 0, ("experts",), (8,)),
        "ffn.scale": Space("ffn.scale", Scale(1, signed=True), Role.UNIT_SCALE, 0, ("experts", "ffn"), (8, 56)),
        "qk": Space("qk", Rotary(6, interleaved=True), Role.QUERY_KEY),
    },
    {
        "up": (Per("experts", 8, Fixed(3)), Across((("experts", 8),), 0, Along("ffn", 56)), Fixed(None)),
        "qk": (Concat(Along("qk", 6), Per("experts", 8, Along("qk", 6, is_dual=True)), Concat()),),
        "down": (Per("ffn", 56, Scaled("ffn.scale", -2, Fixed(1))), Scaled("ffn.scale", -1, Along("qk", 6))),
        "count": (),
    },
    inputs=(Input("ids", (12,), 97, last=2, placed=(5, 4)), Input("image", (3, 8, 8))),
    notes=("a note", 'with "quotes", brackets {} and ∑'),
    outputs={"hidden": (Fixed(), Along("qk", 6))},
    biases={"a.weight": "a.bias"},
    norms=(
        Norm("norm.weight", None, (Reader("a.weight", 1), Reader("b.weight", 0, (2, 5))), padded=True, offset=1.0),
        Norm("other.weight", "other.bias"),
    ),
    layer_scales=(LayerScale("scale", "a.weight"),),
    centred=("qk",),
    seen_key_biases=("qk", "ffn"),
    unseen_means=(("up", 1), ("a.weight", 0)),
    stacks={"up": ("experts.0.up", "experts.1.up")},
    same={"again.weight": "a.weight"},
    folded=True,
    unbiased=True,
    origin="inferred from an example",
    trials={
        "experts": (Trial(Invertible(8), Outcome.CHANGED, 0.25), Trial(Permutation(8), Outcome.TAKEN, 3e-16, True)),
        "ffn": (Trial(Scale(3, signed=True), Outcome.UNTRIED),),
    },
)


def test_every_kind_of_field_comes_back() -> None:
    whole = replace(FULL, after_folding=replace(FULL, architecture="after"))
    missing = {field.name for field in fields(whole) if not getattr(whole, field.name)}
    assert missing == set(), "the example above leaves fields empty"
    assert every_field(loads(dumps(whole))) == every_field(whole)
    assert loads(dumps(whole)).fingerprint == whole.fingerprint


@given(groups)
def test_every_group_comes_back(group: Group) -> None:
    one = replace(FULL, spaces={"space": Space("space", group, Role.LATENT)})
    assert every_field(loads(dumps(one))) == every_field(one)


@pytest.mark.parametrize(
    "case",
    [cases[0] for cases in (cases_clip.CASES, cases_gpt.CASES, cases_llama.CASES, cases_vision.CASES)],
    ids=lambda case: case.name,
)
def test_what_is_written_down_comes_back(case: Any) -> None:
    found = blueprint(case.build())
    assert every_field(loads(dumps(found))) == every_field(found)


@dataclass(frozen=True)
class Frame:
    sides: tuple[int, ...] = ()


@dataclass(frozen=True)
class Framed(Permutation):
    """A group that this file alone knows, with parameters of its own."""

    frame: Frame = Frame()
    weights: tuple[tuple[str, float], ...] = ()
    name: ClassVar[str] = "F"


def test_a_group_needs_nothing_but_its_class() -> None:
    group = Framed(4, Frame((1, 2)), (("a", 0.1), ("b", 1e300)))
    one = replace(FULL, spaces={"space": Space("space", group, Role.LATENT)})
    assert every_field(loads(dumps(one))) == every_field(one)


def _changed(told: Any) -> Iterator[Any]:
    """A description with one thing changed to what cannot stand there, at every place."""
    yield from ({"is": "Space"}, [[]], "text", 3.5, None, True)
    if isinstance(told, list):
        for position, part in enumerate(told):
            yield from ([*told[:position], other, *told[position + 1 :]] for other in _changed(part))
    if isinstance(told, dict):
        yield {**told, "unknown": 1}
        for name, part in told.items():
            yield from ({**told, name: other} for other in _changed(part))


def _plain(value: object) -> bool:
    """A description made of the classes and types that it should be made of; checked without the reader."""
    kinds = (Blueprint, Space, Group, Input, Norm, Reader, LayerScale, Fixed, Along, Per, Concat, Across, Trial)
    if isinstance(value, dict):
        return all(isinstance(name, str) and _plain(part) for name, part in value.items())
    if isinstance(value, tuple):
        return all(map(_plain, value))
    if isinstance(value, kinds):
        return all(_plain(getattr(value, field.name)) for field in fields(value))
    return value is None or isinstance(value, bool | int | float | str)


def test_what_does_not_fit_is_refused() -> None:
    """Every place is tried with values of other kinds: each is refused, or gives a blueprint of the right types."""
    refused = taken = 0
    for told in _changed(json.loads(dumps(replace(FULL, parameters={"up": FULL.parameters["up"]})))):
        try:
            found = loads(json.dumps(told))
        except PlainError:
            refused += 1
            continue
        taken += 1
        assert type(found) is Blueprint
        assert _plain(found)
        assert all(type(space) is Space and isinstance(space.group, Group) for space in found.spaces.values())
        assert all(type(space.role) is Role for space in found.spaces.values())
        assert all(type(axes) is tuple for axes in found.parameters.values())
    assert refused > 5 * taken > 0


@pytest.mark.parametrize(
    "text",
    ["", "{", "null", "[]", '{"is": "Blueprint"}', '{"is": "Path"}', '{"is": "Permutation", "size": 3}', "[" * 10**6],
)
def test_what_is_no_blueprint_is_refused(text: str) -> None:
    with pytest.raises(PlainError):
        loads(text)


def test_a_field_that_is_not_known_is_refused() -> None:
    told = json.loads(dumps(FULL))
    with pytest.raises(PlainError, match="fields that are not known"):
        loads(json.dumps({**told, "unknown": 1}))


def test_what_is_no_plain_data_is_not_written() -> None:
    with pytest.raises(TypeError, match="no plain data"):
        dumps(replace(FULL, parameters={"weight": (torch.zeros(2),)}))  # type: ignore[dict-item]
    with pytest.raises(TypeError, match="names that are no texts"):
        dumps(replace(FULL, biases={1: "bias"}))  # type: ignore[dict-item]
