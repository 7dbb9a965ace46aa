"""Measures of weights in the benchmark: what turns a model turns its matrices alike in all of them; and the page."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fusionlab
from fusionlab.matching.options import GAUGES
from fusionlab.statistics import Grams
from fusionlab.statistics.gather import gather
from fusionlab.symmetry import Alignment
from tests.commands.small import randomized

TURNED = ("residual", "layers.0.heads", "layers.0.ffn")


@pytest.fixture
def model() -> nn.Module:
    """A small vision transformer in the gauge that it is matched in, float64."""
    from transformers import ViTConfig, ViTForImageClassification  # noqa: PLC0415 - slow

    sizes: dict[str, Any] = {"num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 8, "patch_size": 4}
    config = ViTConfig(hidden_size=8, intermediate_size=12, num_channels=1, num_labels=10, **sizes)
    return fusionlab.canonical(randomized(ViTForImageClassification(config), 0).double().eval(), GAUGES)


def images() -> Tensor:
    return torch.randn(40, 1, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def grams(model: nn.Module) -> Grams:
    found = gather(model, [{"pixel_values": images()}], [Grams.kind])[Grams.kind]
    assert isinstance(found, Grams)
    return found


def test_every_measure_turns_with_the_model(benchmark: Any, model: nn.Module) -> None:
    """By a rotation of the stream and permutations of heads and units, so that what matches there is an alignment."""
    tried = benchmark("measures_tried")
    blueprint, generator = fusionlab.blueprint(model).in_gauge(GAUGES[:1]), torch.Generator().manual_seed(2)
    elements = {name: blueprint.spaces[name] for name in TURNED}
    turn = Alignment(blueprint, {n: s.group.random(s.copies, generator) for n, s in elements.items()})
    turned = turn.apply(model)
    for measure in tried.TRIED.values():
        before = turn.apply(tried.in_measure(model, measure, grams(model))).state_dict()
        after = tried.in_measure(turned, measure, grams(turned)).state_dict()
        for name, value in before.items():
            assert torch.allclose(after[name], value, atol=1e-6), (measure.name, name)


def test_with_all_of_the_moments_lengths_are_those_of_outputs(benchmark: Any, model: nn.Module) -> None:
    """The squared length of a map and its bias is the mean square of what it writes, in units of what it reads."""
    tried = benchmark("measures_tried")
    found = grams(model)
    seen = tried.in_measure(model, tried.TRIED["moments 1"], found).state_dict()
    written: dict[str, Tensor] = {}
    for name, module in model.named_modules():
        module.register_forward_hook(lambda _, __, output, name=name: written.__setitem__(name, output))
    with torch.no_grad():
        model(pixel_values=images())
    looked_at = 0
    for name, linear in found.maps.items():
        if name.endswith("weight") and linear.bias is not None and isinstance(written[name[:-7]], Tensor):
            rows = written[name[:-7]]
            if rows.ndim == 4:  # of a convolution
                rows = rows.flatten(2).transpose(1, 2)
            moments = found.matrices[linear.inputs].double() / found.rows[linear.inputs]
            length = seen[name].square().sum() + seen[linear.bias].square().sum()
            wanted = rows.flatten(0, -2).square().sum(-1).mean() / (moments.trace() / len(moments))
            assert torch.allclose(length, wanted, rtol=1e-3), name
            looked_at += 1
    assert looked_at >= 7


def test_cells_are_measured_once_and_shown(
    benchmark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every measure on every pair; what agrees most with the end models is chosen pair by pair, by no real inputs."""
    command, tried = benchmark("measures"), benchmark("measures_tried").TRIED
    names = {measure: name for name, measure in tried.items()}

    class Known:
        """A pair on which other measures are good."""

        def __init__(self, best: str) -> None:
            self.best = best

        def measure(self, measure: Any) -> dict[str, float]:
            apart = 0.0 if measure.is_real else 0.1 if names[measure] == self.best else 0.5
            value = 0.75 if names[measure] == self.best else 0.25
            return {"score": value, "barrier": value, "loss": 1.0, "apart": apart}

    monkeypatch.setattr(command, "kept_pairs", lambda *_: [Known("relative 0"), Known("spectrum 2")])
    monkeypatch.setattr("sys.argv", ["measures.py", "--results", str(tmp_path)])
    assert command.main() == 0
    page = (tmp_path / "measures.md").read_text()
    assert "| chosen by agreement | 75.0 | 75.0, 75.0 |" in page
    assert "| chosen by agreement | 0.750 | 0.750, 0.750 |" in page
    assert f"| {tried['relative 0'].name} | 50.0 | 75.0, 25.0 |" in page
    monkeypatch.setattr(command, "kept_pairs", lambda *_: pytest.fail("measured again"))
    assert command.main() == 0
    assert "gpt2 spectrum 2" in capsys.readouterr().err
