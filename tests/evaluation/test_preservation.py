"""The promise that matching never changes a function is really checked."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from transformers import JetMoeForCausalLM

from fusionlab.errors import InputError
from fusionlab.evaluation.preservation import check_preservation, samples
from fusionlab.symmetry import Alignment, blueprint
from fusionlab.symmetry.axes import Fixed
from fusionlab.symmetry.inputs import Input
from tests.commands.small import bert, random_logits, timm_vit, vit
from tests.symmetry.infer.cases import experts


def random_alignment(model: Any, seed: int = 0) -> Alignment:
    return Alignment.random(blueprint(model), torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("make", [vit, bert, timm_vit])
def test_a_symmetry_passes(make: Any) -> None:
    """With the difference it really has, relative to the largest logit, and nothing modified."""
    model = make(0)
    alignment = random_alignment(model)
    twin = alignment.apply(model)
    check = check_preservation(model, twin, alignment)
    assert check.exact < 1e-10
    assert 0 < check.stored < 1e-4
    before, after = random_logits(model, seed=0), random_logits(twin, seed=0)
    again = check_preservation(model, twin, alignment, seed=0, count=5)
    assert again.stored == pytest.approx(float((after - before).abs().max() / before.abs().max()))
    assert again.scale == pytest.approx(float(before.abs().max()))
    assert {parameter.dtype for parameter in (*model.parameters(), *twin.parameters())} == {torch.float32}


def test_rounding_to_bfloat16_is_told_and_allowed() -> None:
    """The alignment is exact; what storing it costs is another number."""
    model = vit(0).bfloat16()
    alignment = random_alignment(model)
    check = check_preservation(model, alignment.apply(model), alignment)
    assert check.exact < 1e-10
    assert check.stored > 1e-4


def test_padding_is_not_looked_at() -> None:
    """Its embedding is zero, so that a router finds all experts equal and their order decides."""
    torch.manual_seed(0)
    sample = next(one for one in experts.SAMPLES if one.name == "jetmoe")
    config = sample.build().config
    config.pad_token_id = 0
    model = JetMoeForCausalLM(config).eval()
    assert not model.get_input_embeddings().weight[0].any()
    orders = {n: e for n, e in random_alignment(model).elements.items() if n.endswith("experts")}
    assert orders
    alignment = Alignment(blueprint(model), orders)
    assert check_preservation(model, alignment.apply(model), alignment).exact < 1e-10
    drawn = samples(model, alignment.blueprint.inputs, seed=0, count=20)
    assert all((one["input_ids"] != 0).all() for one in drawn)


@pytest.mark.parametrize(
    ("one", "token", "left"),
    [
        (Input("input_ids", (9,), 4), 0, {1, 2, 3}),
        (Input("input_ids", (9,), 4), None, {0, 1, 2, 3}),
        (Input("input_ids", (9,), 4, last=3), 0, {1, 2, 3}),
        (Input("input_ids", (9,), 4, last=3), 3, {0, 1, 2, 3}),
        (Input("decoder_input_ids", (9,), 2), 1, {0}),
        (Input("input_ids", (9,), 1), 0, {0}),
        (Input("token_type_ids", (9,), 2), 0, {0, 1}),
    ],
)
def test_a_token_is_left_out_of_texts(one: Input, token: int | None, left: set[int]) -> None:
    """Not where it has a place of its own, and not of other inputs; every other token is still drawn."""
    drawn = one.random(50, torch.Generator().manual_seed(0))
    assert set(one.without(token, drawn).flatten().tolist()) == left


def test_a_key_that_is_not_rotated_is_caught() -> None:
    """A blueprint that forgets one axis describes no symmetry."""
    model = vit(0)
    right = blueprint(model)
    for name in ("vit.layers.0.attention.k_proj.weight", "vit.layers.1.mlp.fc2.weight"):
        axes = tuple(Fixed() for _ in right.parameters[name])
        wrong = replace(right, parameters={**right.parameters, name: axes})
        alignment = Alignment(wrong, random_alignment(model).elements)
        with pytest.raises(InputError, match="changed the model's function: its logits differ by"):
            check_preservation(model, alignment.apply(model), alignment)


def test_an_element_outside_its_group_is_caught() -> None:
    """A unit that is dropped, and a value that is not a number."""
    model = vit(0)
    twice = torch.arange(32)
    twice[1] = 0
    broken = torch.eye(8, dtype=torch.float64).repeat(2, 1, 1)
    broken[0, 0, 0] = torch.nan
    for elements in ({"layers.0.ffn": twice}, {"layers.0.qk": broken}):
        alignment = Alignment(blueprint(model), elements)
        with pytest.raises(InputError, match="changed the model's function"):
            check_preservation(model, alignment.apply(model), alignment)


@pytest.mark.parametrize(("change", "passes"), [(1e-10, True), (1e-6, False), (1e-5, False)])
def test_a_small_change_of_the_function_is_caught(change: float, passes: bool) -> None:
    """A millionth of the largest logit is no rounding in float64; a ten thousandth of a millionth may be."""
    model = vit(0)
    alignment = random_alignment(model)
    apply = Alignment.apply

    def nearly(self: Alignment, given: Any) -> Any:
        twin = apply(self, given)
        if isinstance(twin, dict):
            twin |= {name: (1 + change) * twin[name] for name in twin if name.startswith("classifier")}
        return twin

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Alignment, "apply", nearly)
        if passes:
            assert check_preservation(model, model, alignment).exact == pytest.approx(change, rel=1e-3)
        else:
            with pytest.raises(
                InputError, match=f"differ by {change:.1e} of the largest on random inputs, where 1e-08"
            ):
                check_preservation(model, model, alignment)
