"""A trace asks a forward for all that it can return, by the arguments that it takes."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fusionlab.symmetry.infer.trace import trace


class Named(nn.Module):
    """Takes one of the arguments that ask for more, by its name."""

    def __init__(self) -> None:
        super().__init__()
        self.config, self.layer = SimpleNamespace(), nn.Linear(4, 3)

    def forward(self, x: Tensor, output_hidden_states: bool = False) -> dict[str, Tensor]:
        out = self.layer(x)
        return {"logits": out} | ({"hidden_states": x + out.sum()} if output_hidden_states else {})


class Open(Named):
    """Takes any, and reads those that ask for outputs."""

    def forward(self, x: Tensor, **options: Any) -> dict[str, Tensor]:  # type: ignore[override]
        assert set(options) == {"return_dict", "output_hidden_states", "output_attentions"}
        return super().forward(x, options["output_hidden_states"])


@pytest.mark.parametrize("kind", [Named, Open])
def test_every_output_is_asked_for(kind: type[Named]) -> None:
    """What must stay comes first."""
    found = trace(kind(), {"x": torch.randn(2, 4, generator=torch.Generator().manual_seed(0))})
    assert (found.outputs, found.kept) == (("logits", "hidden_states"), 1)


def test_a_module_without_a_config_is_asked_for_nothing_more() -> None:
    model = Named()
    del model.config
    assert trace(model, {"x": torch.ones(2, 4)}).outputs == ("logits",)


def test_a_forward_that_takes_no_such_option_is_traced_without_a_cache() -> None:
    """By its config, which stays as it was."""

    class Caching(Named):
        def forward(self, x: Tensor) -> dict[str, Tensor]:  # type: ignore[override]
            assert not self.config.use_cache
            return super().forward(x)

    model = Caching()
    model.config.use_cache = True
    assert trace(model, {"x": torch.ones(2, 4)}).outputs == ("logits",)
    assert model.config.use_cache
