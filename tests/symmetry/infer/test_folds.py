"""Which gains can be folded, read off the powers that leave the outputs."""

from fractions import Fraction

import torch
from torch import Tensor, nn

from fusionlab.symmetry.blueprint import LayerScale, Norm, Reader
from fusionlab.symmetry.folding import fold
from fusionlab.symmetry.infer.blueprint import infer
from fusionlab.symmetry.infer.dims import Stretch, Variable
from fusionlab.symmetry.infer.folds import folds_of
from fusionlab.symmetry.infer.interpreter import Notes

STREAM = Variable(8)
GAIN, BIAS, OTHER = ("norm.weight", 0, 0), ("norm.bias", 0, 0), ("last.weight", 0, 0)
UP, GATE, DOWN, ADDED, HEAD = ("up", 1, 1), ("gate", 1, 1), ("down", 0, 0), ("down.bias", 0, 0), ("head", 1, 1)


class Read:
    """What folding wants to know of a model that was read."""

    def __init__(self, **changes: object) -> None:
        vectors = ("norm.weight", "norm.bias", "down.bias", "last.weight", "gamma")
        matrices = ("up", "gate", "down", "head")
        self.parameters = dict.fromkeys(vectors, ((),)) | dict.fromkeys(matrices, ((), ()))
        self.notes = Notes(readers={UP, GATE, HEAD}, writers={DOWN}, biases={"down": "down.bias"}, **changes)  # type: ignore[arg-type]


def folds(gains: list[Stretch], solutions: list[dict[Stretch, int]], **changes: object) -> object:
    rational = [{key: Fraction(value) for key, value in solution.items()} for solution in solutions]
    return folds_of(Read(**changes), STREAM, gains, rational)  # type: ignore[arg-type]


def norm(*readers: str, bias: str | None = None, padded: bool = False, offset: float = 0.0) -> Norm:
    return Norm("norm.weight", bias, tuple(Reader(name, 1) for name in readers), padded, offset)


def test_a_gain_goes_into_what_reads_it() -> None:
    assert folds([GAIN], [{GAIN: 1, UP: -1, GATE: -1}]) == ((norm("up", "gate"),), ())
    assert folds([GAIN], [{GAIN: 1, BIAS: 1, UP: -1}]) == ((norm("up", bias="norm.bias"),), ())
    # Solutions are a basis of any scale and sign.
    assert folds([GAIN], [{GAIN: -2, BIAS: -2, UP: 2}]) == ((norm("up", bias="norm.bias"),), ())


def test_what_is_added_to_a_gain_and_zeros_beside_it_are_said() -> None:
    found = folds([GAIN], [{GAIN: 1, UP: -1}], offsets={"norm.weight": 1.0}, padded={STREAM})
    assert found == ((norm("up", padded=True, offset=1.0),), ())


def test_every_gain_has_a_solution_of_its_own() -> None:
    """However the basis mixes them, and beside the factor of the whole stream."""
    mixed = [{GAIN: 1, UP: -1, OTHER: 1, HEAD: -1}, {GAIN: 1, UP: -1, OTHER: -1, HEAD: 1}, {DOWN: 1, ADDED: 1}]
    last = Norm("last.weight", None, (Reader("head", 1),))
    assert folds([GAIN, OTHER], mixed) == ((norm("up"), last), ())


def test_a_gain_that_writes_is_a_layer_scale() -> None:
    scale = ("gamma", 0, 0)
    assert folds([scale], [{scale: 1, DOWN: -1, ADDED: -1}]) == ((), (LayerScale("gamma", "down"),))
    assert folds([scale], [{scale: 1, DOWN: -1}]) == ((), (LayerScale("gamma", "down"),))
    # Beside the weight's bias something else is undone.
    assert folds([scale], [{scale: 1, DOWN: -1, BIAS: -1}]) is None


def test_a_gain_with_no_place_to_go_is_kept() -> None:
    assert folds([GAIN], []) is None
    assert folds([GAIN, OTHER], [{GAIN: 1, OTHER: -1}]) is None
    assert folds([GAIN], [{GAIN: 1, BIAS: 1}]) is None
    # What goes with it is a matrix that reads the same, and no bias.
    assert folds([GAIN], [{GAIN: 1, GATE: 1, UP: -1}]) is None
    assert folds([GAIN], [{GAIN: 1, UP: -2}]) is None
    assert folds([GAIN], [{GAIN: 1, UP: -1, GATE: -2}]) is None
    assert folds([GAIN], [{GAIN: 1, BIAS: 1, ADDED: 1, UP: -1}]) is None
    assert folds([GAIN], [{GAIN: 1, UP: -1, ("seen", 0, 0): -1}]) is None


class Decoder(nn.Module):
    """Two pre-norm layers that attend to a memory: queries read a norm, keys and values of the same matrix do not."""

    def __init__(self) -> None:
        super().__init__()
        self.enter, self.remember, self.leave = nn.Linear(6, 12), nn.Linear(4, 12), nn.Linear(12, 5)
        layer = nn.TransformerDecoderLayer(12, 3, 17, batch_first=True, norm_first=True, dropout=0.0)
        self.inside = nn.TransformerDecoder(layer, 2, nn.LayerNorm(12))

    def forward(self, x: Tensor, memory: Tensor) -> Tensor:
        return self.leave(self.inside(self.enter(x), self.remember(memory)))


def test_a_gain_goes_into_the_rows_that_read_it() -> None:
    torch.manual_seed(0)
    model, generator = Decoder().double().eval(), torch.Generator().manual_seed(3)
    inputs = {"x": torch.randn(3, 7, 6, generator=generator), "memory": torch.randn(3, 5, 4, generator=generator)}
    found = infer(model, inputs, "decoder").after_folding
    assert found is not None
    assert [str(space.group) for space in found.spaces.values() if space.role == "residual"] == ["O1(12)"]
    attending = [r for n in found.norms for r in n.readers if r.weight.endswith("multihead_attn.in_proj_weight")]
    assert [(reader.dim, reader.rows) for reader in attending] == [(1, (0, 12))] * 2
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(torch.rand(parameter.shape, generator=generator) + ("norm" in name))
        given = {name: x.double() for name, x in inputs.items()}
        before = model(**given)
        model.load_state_dict(fold(model.state_dict(), found))
        assert (model(**given) - before).abs().max() < 1e-9 * before.abs().max()
