"""Merging by the Python call."""

import re
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn
from transformers import GPT2Config, GPT2LMHeadModel

import fusionlab
from fusionlab.errors import InputError
from fusionlab.models import untie
from fusionlab.symmetry import SymmetryError
from tests.api.models import batches
from tests.commands.small import vit


def test_merge_is_the_weighted_mean() -> None:
    """Of every parameter, weights in the order of the models."""
    a, b = vit(0), vit(1)
    merged = fusionlab.merge([a, b], weights=[1, 3])
    for mean, left, right in zip(merged.parameters(), a.parameters(), b.parameters(), strict=True):
        assert mean.double().allclose(0.25 * left.double() + 0.75 * right.double(), atol=1e-6)


def test_tied_and_untied_models_are_refused() -> None:
    """Of two tensors in one place one would be lost, and of the models, or of the base, nobody would know which."""
    tied = [GPT2LMHeadModel(GPT2Config(vocab_size=11, n_positions=8, n_embd=8, n_layer=1, n_head=2)) for _ in range(2)]
    for models in ([tied[0], untie(tied[1])], [untie(tied[0]), tied[1]]):
        with pytest.raises(InputError, match=r"'lm_head.weight' is tied to 'transformer.wte.weight' in one of model 1"):
            fusionlab.merge(models)
    with pytest.raises(InputError, match="in one of the base model and model 0 alone; expected both tied or both"):
        fusionlab.merge(tied, "task_arithmetic", base=untie(tied[0]))


def test_a_merge_is_scored_on_shared_data_once() -> None:
    """The soup of two models scores both and their mean: three passes over the data, not three for each model."""

    class Counted(list[dict[str, Tensor]]):
        seen = 0

        def __iter__(self) -> Iterator[dict[str, Tensor]]:
            for batch in super().__iter__():
                self.seen += 1
                yield batch

    data = Counted(batches((4,) * 10))
    fusionlab.merge([vit(0), vit(1)], "soup", data=data)
    assert 30 <= data.seen < 40, "what the data are is found out by looking at the first batch"


@pytest.mark.parametrize("call", [fusionlab.merge, lambda models, **_: fusionlab.fuse(models, "none")])
def test_numbers_that_are_none(call: Callable[..., nn.Module]) -> None:
    """A mean with them is no number either: the model and the parameter are named, as of checkpoints."""
    broken = vit(1)
    with torch.no_grad():
        broken.classifier.weight[2, 3] = torch.inf
    with pytest.raises(InputError, match=r"model 1 of \w+: parameter classifier.weight holds 1 value of \d+"):
        call([vit(0), broken])
    with pytest.raises(InputError, match=r"the base model: parameter classifier.weight"):
        fusionlab.merge([vit(0), vit(2)], "task_arithmetic", base=broken)
    with pytest.raises(InputError, match=r"model 1: parameter classifier.weight"):
        fusionlab.FusionModule([vit(0), broken])


def test_fuse_without_matching_asks_for_no_symmetry() -> None:
    """It is a merge, whose anchor is looked at all the same."""
    models = [nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)) for _ in range(2)]
    torch.testing.assert_close(fusionlab.fuse(models, "none").state_dict(), fusionlab.merge(models).state_dict())
    with pytest.raises(InputError, match="anchor is 7"):
        fusionlab.fuse(models, "none", anchor=7)


def test_a_class_whose_symmetry_cannot_be_inferred_is_merged_by_what_needs_none() -> None:
    base, a, b = (nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)) for _ in range(3))
    data = [{"x": torch.randn(4, 3), "labels": torch.tensor([0, 1, 0, 1])} for _ in range(2)]
    with pytest.raises(SymmetryError, match="Sequential"):
        fusionlab.merge([a, b], "circuit")
    found = fusionlab.merge([a, b], "task_arithmetic", base=base, lambda_=0.5)
    for name, tensor in found.state_dict().items():
        start, *ends = (model.state_dict()[name] for model in (base, a, b))
        torch.testing.assert_close(tensor, start + 0.5 * sum((end - start) / 2 for end in ends))
    for method in ("fisher", "regmean"):
        merged = fusionlab.merge([a, a], method, data=data).state_dict()
        for name, tensor in a.state_dict().items():
            torch.testing.assert_close(merged[name], tensor, rtol=1e-4, atol=1e-5)


def test_what_a_method_chose_is_told_by_the_logger(caplog: pytest.LogCaptureFixture) -> None:
    """At level INFO, behind the method's name; a method that chooses nothing tells nothing."""
    models, data = [vit(0), vit(1), vit(2)], batches((4,) * 3)
    with caplog.at_level("INFO", "fusionlab"):
        merged = fusionlab.merge(models, "soup", data=data)
    (record,) = caplog.records
    assert (record.levelname, record.getMessage()[:11]) == ("INFO", "soup: Kept ")
    kept = re.findall(r"model (\d)", re.match(r"soup: (Kept .*?) of 3 models", record.getMessage())[1])  # type: ignore[index]
    states = [models[int(index)].state_dict() for index in kept]
    assert all(
        torch.allclose(tensor, torch.stack([state[name] for state in states]).mean(0), atol=1e-6)
        for name, tensor in merged.state_dict().items()
    )
    caplog.clear()
    with caplog.at_level("INFO", "fusionlab"):
        fusionlab.merge(models)
    assert not caplog.records
