"""Correction of activation statistics after a merge: the moments that were asked for, in the same architecture."""

import copy

import pytest
import torch
from torch import Tensor, nn
from transformers import BertConfig, BertForSequenceClassification, GPT2Config, GPT2LMHeadModel
from transformers.pytorch_utils import Conv1D

from fusionlab.errors import InputError
from fusionlab.forward import forward, logits
from fusionlab.merging import merge_states
from fusionlab.merging.correction import correct
from fusionlab.models import with_state
from fusionlab.symmetry import Alignment, blueprint
from tests.commands.small import randomized, timm_vit, vit
from tests.statistics.passes import model_of
from tests.symmetry.infer.cases.seq2seq import SAMPLES
from tests.symmetry.models import relative


def bert(seed: int) -> nn.Module:
    size = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    model = BertForSequenceClassification(BertConfig(vocab_size=31, max_position_embeddings=20, **size))
    return randomized(model, seed)


def gpt2(seed: int) -> nn.Module:
    size = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 20}
    return randomized(GPT2LMHeadModel(GPT2Config(vocab_size=31, **size)), seed)


BUILDERS = {
    "vit": vit,
    "timm": timm_vit,
    "bert": bert,
    "gpt2": gpt2,
    "deberta-v3": lambda seed: model_of("deberta-v3-sequence", seed).float(),
    "t5": lambda seed: model_of("t5-lm", seed).float(),
}


def batches_of(model: nn.Module, count: int = 2) -> list[dict[str, Tensor]]:
    """Batches of unequal size; of texts, half have hidden tokens at the end, a decoder's as long have others."""
    draw, found = torch.Generator().manual_seed(0), []
    for index in range(count):
        batch = {i.name: i.random(12 + 4 * index, draw, torch.float32) for i in blueprint(model).inputs}
        if "input_ids" in batch:
            batch["attention_mask"] = torch.ones_like(batch["input_ids"])
            batch["attention_mask"][::2, 4:] = 0
        if "decoder_input_ids" in batch:
            batch["decoder_input_ids"] = batch["input_ids"].roll(1, 1)
            batch["decoder_attention_mask"] = torch.ones_like(batch["input_ids"])
            batch["decoder_attention_mask"][1::2, 3:] = 0
        found.append(batch)
    return found


def written(model: nn.Module, batches: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """What each linear map writes over all batches, rows that count only: an independent reading by hooks."""
    found: dict[str, list[Tensor]] = {}
    current: dict[str, Tensor] = {}

    def hook(name: str) -> object:
        def on_forward(module: nn.Module, args: object, output: Tensor) -> None:
            rows = output.flatten(2).transpose(1, 2) if isinstance(module, nn.Conv2d) else output
            of_decoder = name.startswith("decoder") and not name.endswith(("EncDecAttention.k", "EncDecAttention.v"))
            mask = current.get("decoder_attention_mask" if of_decoder else "attention_mask")
            if mask is not None and rows.ndim == 3:
                if rows.shape[:-1] != mask.shape:
                    return  # relative positions
                rows = rows[mask.bool()]
            found.setdefault(name, []).append(rows.reshape(-1, rows.shape[-1]).double())

        return on_forward

    kinds = (nn.Linear, Conv1D, nn.Conv2d)
    handles = [m.register_forward_hook(hook(n)) for n, m in model.named_modules() if isinstance(m, kinds)]
    with torch.no_grad():
        for batch in batches:
            current = batch
            forward(model, batch)
    for handle in handles:
        handle.remove()
    return {name: torch.cat(rows) for name, rows in found.items()}


@pytest.mark.parametrize("name", BUILDERS)
def test_every_unit_gets_the_mean_of_its_twins_moments(name: str) -> None:
    """Spread after the correction is the weighted one of the twins for every map of the model, and so is the mean where
    there is a bias to hold it: over tokens that count, on the side that a map reads, and no relative positions."""
    twins = [BUILDERS[name](seed) for seed in (0, 1)]
    merged = with_state(twins[0], merge_states([twin.state_dict() for twin in twins], "simple", (0.25, 0.75)))
    batches = batches_of(merged)
    corrected = correct(merged, twins, batches, (0.25, 0.75))
    assert type(corrected) is type(merged)
    found, first, second = (written(model, batches) for model in (corrected, *twins))
    tied = {"lm_head"}  # also the input embedding, so no map alone
    moments = [lambda rows: rows.std(0, correction=0), lambda rows: rows.mean(0)]
    for layer in found.keys() - tied:
        for moment in moments if corrected.get_submodule(layer).bias is not None else moments[:1]:
            expected = 0.25 * moment(first[layer]) + 0.75 * moment(second[layer])
            assert torch.allclose(moment(found[layer]), expected, rtol=1e-3, atol=1e-3), layer


def test_experts_that_are_modules_are_left_as_they_are() -> None:
    """They read what is sent to them; all else is corrected."""
    sample = next(sample for sample in SAMPLES if sample.name == "switch_transformers")
    twins = [randomized(sample.build().float(), seed).eval() for seed in range(2)]
    merged = with_state(twins[0], merge_states([twin.state_dict() for twin in twins], "simple"))
    draw = torch.Generator().manual_seed(0)
    batch = {name: torch.randint(20, (4, 6), generator=draw) for name in ("input_ids", "decoder_input_ids")}
    before, found = merged.state_dict(), correct(merged, twins, [batch]).state_dict()
    changed = {name for name, tensor in found.items() if not torch.equal(tensor, before[name])}
    assert changed
    assert not any(".experts." in name for name in changed)


@pytest.mark.parametrize("name", BUILDERS)
def test_a_merge_of_equal_models_is_left_as_it_is(name: str) -> None:
    model = BUILDERS[name](0)
    batches = batches_of(model)
    corrected = correct(model, [model, copy.deepcopy(model)], batches)
    with torch.no_grad():
        assert relative(logits(corrected, batches[0]), logits(model, batches[0])) < 1e-4


def test_nothing_given_is_modified() -> None:
    """Neither the merge nor its twins."""
    twins = [vit(0), vit(1)]
    merged = with_state(twins[0], merge_states([twin.state_dict() for twin in twins]))
    before = [copy.deepcopy(model.state_dict()) for model in (*twins, merged)]
    correct(merged, twins, batches_of(merged))
    for model, state in zip((*twins, merged), before, strict=True):
        assert all(torch.equal(model.state_dict()[name], tensor) for name, tensor in state.items())


def test_the_correction_undoes_a_shrunken_layer() -> None:
    """A model whose rows were shrunk and shifted comes back exactly: what was lost is all in the moments."""
    model = vit(0)
    spoilt = copy.deepcopy(model)
    layer = spoilt.vit.layers[0].mlp.fc1
    with torch.no_grad():
        layer.weight.mul_(0.3)
        layer.bias.add_(1)
    found = correct(spoilt, [model], batches_of(model)).state_dict()
    assert all(torch.allclose(found[name], tensor, atol=1e-4) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize(("size", "scaled"), [(1e-5, False), (1e-2, True)])
def test_units_that_hardly_vary_are_shifted_only(size: float, scaled: bool) -> None:
    """The spread of a unit that is constant as far as can be told says nothing: its row stays, only its mean is set."""
    twin = vit(0).double()
    merged = copy.deepcopy(twin)
    layer = merged.vit.layers[0].mlp.fc1
    with torch.no_grad():
        layer.weight[0].mul_(size)
        layer.bias[0].add_(2)
    batches = [{name: value.double() for name, value in batch.items()} for batch in batches_of(twin)]
    found = correct(merged, [twin], batches).vit.layers[0].mlp.fc1
    expected = (twin if scaled else merged).vit.layers[0].mlp.fc1.weight[0]
    torch.testing.assert_close(found.weight[0], expected, rtol=1e-6, atol=0)
    wanted = written(twin, batches)["vit.layers.0.mlp.fc1"].mean(0)[0]
    corrected = correct(merged, [twin], batches)
    torch.testing.assert_close(written(corrected, batches)["vit.layers.0.mlp.fc1"].mean(0)[0], wanted)


def test_in_another_basis_of_units_the_correction_is_the_same_model() -> None:
    """Permuting hidden units of merge and twins alike permutes the corrected model, no more."""
    twins = [vit(0), vit(1)]
    merged = with_state(twins[0], merge_states([twin.state_dict() for twin in twins]))
    description, batches = blueprint(merged), batches_of(merged)
    elements = {n: s.group.random(s.copies, torch.Generator().manual_seed(3)) for n, s in description.spaces.items()
                if s.role in ("ffn", "heads", "residual")}  # fmt: skip
    move = Alignment(description, elements)
    straight = correct(merged, twins, batches)
    moved = correct(move.apply(merged), [move.apply(twin) for twin in twins], batches)
    with torch.no_grad():
        assert relative(logits(moved, batches[0]), logits(straight, batches[0])) < 1e-4


def test_bad_input_is_refused_in_a_sentence() -> None:
    model = vit(0)
    with pytest.raises(InputError, match="only once"):
        correct(model, [model], iter(batches_of(model)))
    with pytest.raises(InputError, match="no batch"):
        correct(model, [model], [])
