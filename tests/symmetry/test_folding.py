"""Folding by hand: what goes where, beside that the function stays (which every family's tests show)."""

from collections.abc import Mapping

import pytest
import torch
from torch import Tensor

from fusionlab.symmetry import Blueprint, SymmetryError
from fusionlab.symmetry.axes import Along, Fixed
from fusionlab.symmetry.blueprint import LayerScale, Norm, Reader
from fusionlab.symmetry.folding import fold
from tests.symmetry.models import generator

WIDTH = 4
STREAM = Along("stream", WIDTH)
SHAPES = {
    "writer.weight": (STREAM, Fixed(3)),
    "writer.bias": (STREAM,),
    "norm.weight": (STREAM,),
    "norm.bias": (STREAM,),
    "reader.weight": (Fixed(5), STREAM.dual()),
    "reader.bias": (Fixed(5),),
    "scale": (STREAM,),
    "other": (Along("elsewhere", WIDTH), Fixed(2)),
}


def state(dtype: torch.dtype = torch.float64) -> dict[str, Tensor]:
    draw = generator(0)
    return {
        name: torch.randn([axis.size for axis in axes], generator=draw, dtype=torch.float64).to(dtype)
        for name, axes in SHAPES.items()
    }


BIASES = {"writer.weight": "writer.bias", "reader.weight": "reader.bias"}


def described(
    norm: Norm | None = None, scales: bool = False, centred: bool = False, biases: Mapping[str, str] = BIASES
) -> Blueprint:
    return Blueprint(
        "line",
        {},
        SHAPES,
        biases=biases,
        norms=() if norm is None else (norm,),
        layer_scales=(LayerScale("scale", "writer.weight"),) if scales else (),
        centred=("stream",) if centred else (),
    )


def unchanged(before: dict[str, Tensor], after: dict[str, Tensor]) -> set[str]:
    return {name for name in before if torch.equal(before[name], after[name])}


def test_gain_and_bias_go_into_what_reads_them():
    """W (g n + c) + b is (W g) n + (b + W c)."""
    before = state()
    norm = Norm("norm.weight", "norm.bias", (Reader("reader.weight", 1),))
    after = fold(before, described(norm))
    torch.testing.assert_close(after["reader.weight"], before["reader.weight"] * before["norm.weight"])
    torch.testing.assert_close(
        after["reader.bias"], before["reader.bias"] + before["reader.weight"] @ before["norm.bias"]
    )
    assert after["norm.weight"].tolist() == [1] * WIDTH
    assert after["norm.bias"].tolist() == [0] * WIDTH
    assert unchanged(before, after) == {"writer.weight", "writer.bias", "scale", "other"}


@pytest.mark.parametrize(("biases", "padded"), [({}, False), (BIASES, True)])
def test_a_bias_that_cannot_move_on_is_kept_in_units_of_the_gain(biases, padded):
    before = state()
    norm = Norm("norm.weight", "norm.bias", (Reader("reader.weight", 1),), padded)
    after = fold(before, described(norm, biases=biases))
    torch.testing.assert_close(after["norm.bias"], before["norm.bias"] / before["norm.weight"])
    assert torch.equal(after["reader.bias"], before["reader.bias"])
    dead = {**before, "norm.weight": torch.tensor([1.0, 0.0, 1.0, 1.0], dtype=torch.float64)}
    with pytest.raises(SymmetryError, match=r"'norm.weight' has a gain of zero and must keep its bias"):
        fold(dead, described(norm, biases=biases))


@pytest.mark.parametrize("biases", [BIASES, {}])
def test_a_gain_that_is_stored_as_its_difference_from_one_folds_as_what_multiplies(biases):
    """As in Gemma: ``(1 + w) x``; the same model with a gain of 1 + w says what is right."""
    before = state()
    readers = (Reader("reader.weight", 1),)
    stored = {**before, "norm.weight": before["norm.weight"] - 1}
    expected = fold(before, described(Norm("norm.weight", "norm.bias", readers), biases=biases))
    after = fold(stored, described(Norm("norm.weight", "norm.bias", readers, offset=1.0), biases=biases))
    assert after.pop("norm.weight").tolist() == [0] * WIDTH
    assert expected.pop("norm.weight").tolist() == [1] * WIDTH
    for name, tensor in expected.items():
        torch.testing.assert_close(after[name], tensor, msg=name)


def test_only_the_rows_that_read_a_norm_are_folded():
    """A fused projection of which one stretch reads the norm, in two copies side by side."""
    before = state()
    before["reader.weight"] = torch.cat([before["reader.weight"], before["reader.weight"]], 1)
    norm = Norm("norm.weight", "norm.bias", (Reader("reader.weight", 1, (1, 3)),))
    after = fold(before, described(norm))
    weight, gain, shift = before["reader.weight"], before["norm.weight"], before["norm.bias"]
    torch.testing.assert_close(after["reader.weight"][1:3], weight[1:3] * torch.cat([gain, gain]))
    torch.testing.assert_close(
        after["reader.bias"][1:3], before["reader.bias"][1:3] + weight[1:3] @ torch.cat([shift, shift])
    )
    for rows in (slice(0, 1), slice(3, 5)):
        assert torch.equal(after["reader.weight"][rows], weight[rows])
        assert torch.equal(after["reader.bias"][rows], before["reader.bias"][rows])


def test_layer_scales_go_into_what_they_scale():
    before = state()
    after = fold(before, described(scales=True))
    torch.testing.assert_close(after["writer.weight"], before["scale"][:, None] * before["writer.weight"])
    torch.testing.assert_close(after["writer.bias"], before["scale"] * before["writer.bias"])
    assert after["scale"].tolist() == [1] * WIDTH


def test_what_writes_to_a_centred_stream_is_centred_and_nothing_else():
    """The mean over features goes, of weights and biases; what reads the stream, norms and other spaces stay."""
    before = state()
    norm = Norm("norm.weight", "norm.bias", (Reader("reader.weight", 1),), padded=True)
    after = fold(before, described(norm, centred=True))
    for name in ("writer.weight", "writer.bias", "scale"):
        torch.testing.assert_close(after[name], before[name] - before[name].mean(0))
    assert after["norm.weight"].tolist() == [1] * WIDTH
    torch.testing.assert_close(after["norm.bias"], before["norm.bias"] / before["norm.weight"])
    torch.testing.assert_close(after["reader.weight"], before["reader.weight"] * before["norm.weight"])
    assert unchanged(before, after) == {"reader.bias", "other"}
    assert unchanged(before, fold(before, described())) == set(before)


def test_types_are_kept_and_the_input_is_not_touched():
    before = state(torch.bfloat16)
    copies = {name: tensor.clone() for name, tensor in before.items()}
    norm = Norm("norm.weight", "norm.bias", (Reader("reader.weight", 1),))
    after = fold(before, described(norm, scales=True, centred=True))
    assert {tensor.dtype for tensor in after.values()} == {torch.bfloat16}
    assert unchanged(before, copies) == set(before)
    wide = fold({name: tensor.double() for name, tensor in before.items()}, described(norm, scales=True, centred=True))
    for name, tensor in after.items():
        torch.testing.assert_close(tensor, wide[name].bfloat16(), msg=name)
