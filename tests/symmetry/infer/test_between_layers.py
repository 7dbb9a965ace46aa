"""Functions between two layers: what they leave of the units' symmetry, and nothing that does not hold."""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from fusionlab.symmetry.infer.blueprint import infer
from fusionlab.symmetry.infer.trace import trace
from tests.symmetry.infer.broken import Groups, found, groups, linear

UNITS = linear("up", 0) | linear("down", 1)
PERMUTED: Groups = {("S(7)", ()): UNITS}
SCALED: Groups = PERMUTED | {("R+(1)", (7,)): UNITS}
TURNED: Groups = PERMUTED | {("Z2(1)", (7,)): UNITS}
# Beside positive factors, the signs of what only an even function reads.
EVEN: Groups = SCALED | {("Z2(1)", (7,)): linear("up", 0)}
# What tells units apart may leave their signs.
IN_PLACE: Groups = {("Z2(7)", ()): UNITS}
# All units but one.
OTHERS: Groups = {("S(6)", ()): UNITS, ("Z2(1)", (6,)): UNITS}
BEFORE_AND_AFTER: Groups = {("Z2(2)", ()): UNITS, ("Z2(4)", ()): UNITS}


class Between(nn.Module):
    """Seven units with something in between: (batch, width) to (batch, 5)."""

    def __init__(self, function: Callable[[Tensor], Tensor], width: int = 6) -> None:
        super().__init__()
        self.up, self.down, self.function = nn.Linear(width, 7), nn.Linear(7, 5), function

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.function(self.up(x)))


def written(value: float, stop: int) -> Callable[[Tensor], Tensor]:
    def function(x: Tensor) -> Tensor:
        x = torch.tanh(x)
        x[:, :stop] = value
        return x

    return function


def marked(x: Tensor) -> Tensor:
    x = torch.tanh(x)
    x[:, 2].add_(1.0)
    return x


MASK = torch.tensor([1.0, 1, 0, 1, 1, 0, 1])
ORDER = torch.tensor([3, 1, 0, 2, 6, 5, 4])


@dataclass(frozen=True)
class Row:
    """What stands between the layers, what is left, and what else holds but need not be found."""

    name: str
    function: Callable[[Tensor], Tensor]
    left: Groups
    may: Groups = field(default_factory=dict)


ROWS = (
    Row("nothing", lambda x: x, {("GL(7)", ()): UNITS}),
    Row("tanh", torch.tanh, TURNED),
    Row("sine", torch.sin, TURNED),
    Row("error function", torch.erf, TURNED),
    Row("softsign", functional.softsign, TURNED),
    Row("a third power", lambda x: x.pow(3), PERMUTED | {("R*(1)", (7,)): UNITS}),
    Row("a product of two", lambda x: torch.tanh(x) * x.sin() * x.tanh(), TURNED),
    Row("an odd function beside an even one", lambda x: torch.tanh(x) * (x.cos() + x.tanh().square()), TURNED),
    # Nothing that reads it depends on the sign.
    Row("cosine", torch.cos, PERMUTED | {("Z2(1)", (7,)): linear("up", 0)}),
    Row("an odd function beside one that is not", lambda x: torch.tanh(x) * torch.relu(x), PERMUTED),
    Row("an odd function plus one that is not", lambda x: torch.tanh(x) + functional.gelu(x), PERMUTED),
    Row("an odd function that is cut", lambda x: torch.tanh(x).clamp(min=-0.5), PERMUTED),
    Row("a norm of an odd function", lambda x: functional.rms_norm(torch.tanh(x), (7,)), TURNED),
    Row("a centred odd function", lambda x: functional.layer_norm(torch.tanh(x), (7,)), PERMUTED),
    Row("relu", torch.relu, SCALED),
    Row("leaky relu", functional.leaky_relu, SCALED),
    Row("absolute values", torch.abs, EVEN),
    Row("larger than zero", lambda x: torch.maximum(x, torch.zeros_like(x)), SCALED),
    Row("relu behind a shift", lambda x: torch.relu(x + 1.0), PERMUTED),
    Row("relu up to six", functional.relu6, PERMUTED),
    Row("relu squared", lambda x: torch.relu(x).square(), SCALED),
    Row("a number for all", lambda x: 3 * torch.tanh(x) + 1, PERMUTED),
    Row("the same mask for all", lambda x: torch.tanh(x) * torch.ones(7), TURNED),
    Row("a mask over units", lambda x: torch.tanh(x) * MASK, IN_PLACE),
    Row("a mask over units that are linear", lambda x: x * (MASK + 1), {("R*(7)", ()): UNITS}),
    Row("a shift by unit", lambda x: torch.relu(x + MASK), {}),
    Row("values that depend on an index", lambda x: torch.tanh(x) * torch.arange(7), IN_PLACE),
    Row("units in a fixed order", lambda x: torch.relu(x)[:, ORDER], {}),
    Row("units in reverse", lambda x: torch.tanh(x).flip(-1), {}),
    Row("units moved by one", lambda x: torch.tanh(x).roll(1, -1), {}),
    Row("running sums", lambda x: torch.tanh(x).cumsum(-1), {}),
    # The order is lost, so that what writes may be permuted by itself.
    Row("units sorted", lambda x: torch.tanh(x).sort(-1).values, {("S(7)", ()): linear("up", 0)}),
    Row("sums over units", lambda x: torch.tanh(x) / torch.tanh(x).abs().sum(-1, keepdim=True), TURNED),
    Row("softmax over units", lambda x: x.softmax(-1), PERMUTED),
    Row("norms of units", lambda x: x / x.norm(dim=-1, keepdim=True), {("O(7)", ()): UNITS}),
    Row("centred units", lambda x: functional.layer_norm(x, (7,)), {("O1(7)", ()): UNITS}),
    Row("a relu behind a norm", lambda x: torch.relu(functional.rms_norm(x, (7,))), PERMUTED),
    Row("a norm behind a relu", lambda x: functional.rms_norm(torch.relu(x), (7,)), PERMUTED),
    Row("the largest unit", lambda x: torch.tanh(x) * (x >= x.amax(-1, keepdim=True)), PERMUTED),
    Row("one hot", lambda x: functional.one_hot(x.argmax(-1), 7).to(x.dtype), {}, may=PERMUTED),
    # Nothing depends on what wrote it.
    Row("all written over", written(0.5, 7), {}, may={("S(7)", ()): linear("up", 0)}),
    Row("one written over", written(0.5, 1), OTHERS),
    Row("one added to in place", marked, {}, may=BEFORE_AND_AFTER),
)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_what_stands_between_two_layers(row: Row) -> None:
    description = groups(found(Between(row.function), 6))
    assert description.items() >= row.left.items()
    assert description.items() <= (row.left | row.may).items()


# --- what one batch does not show ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "function", [torch.relu, functional.leaky_relu, torch.abs, functional.relu6], ids=lambda f: f.__name__
)
def test_relus_that_are_all_active_are_still_relus(function: Callable[[Tensor], Tensor]) -> None:
    """On this batch the module is linear, so that every matrix passes the test of the traced graph."""
    model = Between(function, width=9)
    state = trace(model, {"x": torch.randn(4, 9)}, seed=0).state
    wanted = 1 + torch.rand(4, 7, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    weight, bias = state["up.weight"], state["up.bias"]
    inputs = {"x": torch.linalg.lstsq(weight, (wanted - bias).T).solution.T}
    torch.testing.assert_close(functional.linear(inputs["x"], weight, bias), wanted)
    description = infer(model, inputs, "active", seed=0)
    wanted_groups = {functional.relu6: PERMUTED, torch.abs: EVEN}
    assert groups(description) == wanted_groups.get(function, SCALED)


class Sometimes(Between):
    """A mask over units, but for batches that begin with a large number."""

    def forward(self, x: Tensor) -> Tensor:
        units = torch.tanh(self.up(x))
        return self.down(units if bool(x[0, 0] > 10) else units * MASK)


def test_what_holds_for_the_traced_batch_alone_is_left_out() -> None:
    inputs = {"x": torch.randn(4, 6, generator=torch.Generator().manual_seed(3))}
    inputs["x"][0, 0] = 11.0
    description = infer(Sometimes(torch.tanh), inputs, "sometimes")
    assert groups(description) == {}
    assert any("other inputs" in note for note in description.notes)
