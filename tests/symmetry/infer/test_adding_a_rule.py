"""A rule is one function: the page's example, run as it stands."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from fusionlab.symmetry.infer.blueprint import infer
from fusionlab.symmetry.infer.rules.pointwise import combined
from fusionlab.symmetry.infer.values import RULES, Value, rule

PAGE = Path(__file__).parents[3] / "docs" / "inference.md"


class Outer(nn.Module):
    """A hidden layer whose units pass through ``x + outer(a, b)``, both a bias by unit."""

    def __init__(self) -> None:
        super().__init__()
        self.enter, self.leave = nn.Linear(4, 9), nn.Linear(9, 3)
        self.bias = nn.Parameter(torch.randn(9))

    def forward(self, x: Tensor) -> Tensor:
        found = torch.addr(self.enter(x), torch.ones(len(x), dtype=x.dtype), self.bias)
        return self.leave(nn.functional.gelu(found))


def test_the_rule_of_the_page_finds_what_was_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it the units have a fixed basis and the notes say why; with it they are permuted."""
    inputs = {"x": torch.randn(3, 4, generator=torch.Generator().manual_seed(0))}
    monkeypatch.delitem(RULES, "addr", raising=False)
    before = infer(Outer(), inputs, "outer")
    assert before.spaces == {}
    assert any("no rule for the operation addr" in note for note in before.notes)
    (code,) = re.findall(r"```python\n(@rule\(.*?)```", PAGE.read_text(), re.DOTALL)
    exec(code, {"rule": rule, "Value": Value, "combined": combined})
    after = infer(Outer(), inputs, "outer")
    assert [str(space.group) for space in after.spaces.values()] == ["S(9)"]
    assert set(after.touching(after.spaces)) == {"enter.weight", "enter.bias", "bias", "leave.weight"}


@pytest.fixture(autouse=True)
def _rules_as_they_were() -> Iterator[None]:
    kept = dict(RULES)
    yield
    RULES.clear()
    RULES.update(kept)
