"""Heads of different tasks: found in any library, joined by label name, kept apart on a merged body."""

import copy
from collections.abc import Callable
from itertools import cycle

import pytest
import timm
import torch
from sklearn.datasets import load_digits
from torch import nn
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    BertForTokenClassification,
    BertModel,
    DebertaV2Config,
    DebertaV2ForSequenceClassification,
    RobertaConfig,
    RobertaForSequenceClassification,
    RobertaForTokenClassification,
    ViTConfig,
    ViTForImageClassification,
)

from fusionlab.api import align
from fusionlab.checkpoints import load, save
from fusionlab.errors import InputError
from fusionlab.forward import forward, logits
from fusionlab.fusion.heads.bodies import align_bodies, body_states, split_heads
from fusionlab.fusion.heads.labels import labels_of, merge_heads, with_union_heads
from fusionlab.fusion.heads.parameters import head_parameters
from fusionlab.matching.presets import preset
from fusionlab.merging import merge_states
from fusionlab.models import with_state
from fusionlab.polish import PolishOptions, polish
from fusionlab.symmetry import Alignment, blueprint
from tests.parts import one_in
from tests.symmetry.models import randomize, relative

CAT, DOG, FOX, OWL = "cat", "dog", "fox", "owl"
SMALL = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 40}
TEXT = {**SMALL, "vocab_size": 31, "max_position_embeddings": 20}


def named(labels: tuple[str, ...]) -> dict[str, dict]:
    return {"id2label": dict(enumerate(labels)), "label2id": {name: index for index, name in enumerate(labels)}}


def vit(labels: tuple[str, ...]) -> nn.Module:
    return ViTForImageClassification(ViTConfig(**SMALL, image_size=12, patch_size=4, **named(labels)))


def deberta(labels: tuple[str, ...]) -> nn.Module:
    attention = {"relative_attention": True, "position_buckets": 4, "pos_att_type": ["p2c", "c2p"]}
    config = DebertaV2Config(**TEXT, **attention, share_att_key=True, norm_rel_ebd="layer_norm", **named(labels))
    return DebertaV2ForSequenceClassification(config)


def of_timm(labels: tuple[str, ...]) -> nn.Module:
    size = {"img_size": 12, "patch_size": 4, "embed_dim": 24, "depth": 2, "num_heads": 3}
    model = timm.create_model("vit_tiny_patch16_224", pretrained=False, num_classes=len(labels), **size)
    model.pretrained_cfg = {**model.pretrained_cfg, "label_names": list(labels)}
    return model


def distilled(labels: tuple[str, ...]) -> nn.Module:
    size = {"img_size": 12, "patch_size": 4, "embed_dim": 24, "depth": 2, "num_heads": 3}
    model = timm.create_model("deit_tiny_distilled_patch16_224", pretrained=False, num_classes=len(labels), **size)
    model.pretrained_cfg = {**model.pretrained_cfg, "label_names": list(labels)}
    return model


Build = Callable[[tuple[str, ...]], nn.Module]
BUILDERS: dict[str, Build] = {
    "vit": vit,
    "bert-sequence": lambda labels: BertForSequenceClassification(BertConfig(**TEXT, **named(labels))),
    "bert-token": lambda labels: BertForTokenClassification(BertConfig(**TEXT, **named(labels))),
    "roberta-sequence": lambda labels: RobertaForSequenceClassification(RobertaConfig(**TEXT, **named(labels))),
    "deberta": deberta,
    "timm": of_timm,
    "timm-distilled": distilled,
}
HEADS = {
    "vit": {"classifier.weight", "classifier.bias"},
    "bert-sequence": {"classifier.weight", "classifier.bias"},
    "bert-token": {"classifier.weight", "classifier.bias"},
    "roberta-sequence": {
        f"classifier.{layer}.{part}" for layer in ("dense", "out_proj") for part in ("weight", "bias")
    },
    "deberta": {f"{layer}.{part}" for layer in ("pooler.dense", "classifier") for part in ("weight", "bias")},
    "timm": {"head.weight", "head.bias"},
    "timm-distilled": {f"{layer}.{part}" for layer in ("head", "head_dist") for part in ("weight", "bias")},
}
each = pytest.mark.parametrize("name", BUILDERS)


def inputs_of(model: nn.Module, seed: int = 3) -> dict[str, torch.Tensor]:
    draw = torch.Generator().manual_seed(seed)
    return {i.name: i.random(4, draw) for i in blueprint(model).inputs}


def pair(name: str) -> list[nn.Module]:
    """Two models whose labels overlap, in another order."""
    labels = ((CAT, DOG, FOX), (OWL, DOG))
    return [randomize(BUILDERS[name](own), seed) for seed, own in enumerate(labels)]


@each
def test_the_head_is_what_stands_outside_the_body(name: str) -> None:
    assert set(head_parameters(pair(name)[0])) == HEADS[name]


def test_a_tied_output_embedding_is_no_head_and_a_bare_encoder_has_none() -> None:
    """What the body shares is body: taking it for a head would keep the body's own embedding unmerged."""
    masked = BertForMaskedLM(BertConfig(**TEXT))
    assert "cls.predictions.decoder.weight" not in head_parameters(masked)
    assert "cls.predictions.transform.dense.weight" in head_parameters(masked)
    assert head_parameters(BertModel(BertConfig(**TEXT))) == ()


@pytest.mark.parametrize("name", one_in(2, BUILDERS))
def test_on_the_labels_it_knows_a_model_with_a_union_head_says_what_it_said(name: str) -> None:
    """The union head only adds rows: the logits of known labels are the old ones, found by name."""
    models = pair(name)
    union = with_union_heads(models)
    assert union.labels == (CAT, DOG, FOX, OWL)
    assert [known.tolist() for known in union.known] == [[True, True, True, False], [False, True, False, True]]
    for model, wide in zip(models, union.models, strict=True):
        assert labels_of(wide) == union.labels
        inputs = inputs_of(model)
        columns = [union.labels.index(label) for label in labels_of(model)]
        # A product with more rows may be summed in another order.
        assert relative(logits(wide, inputs)[..., columns], logits(model, inputs)) < 1e-12


@each
def test_a_row_is_the_mean_over_the_models_that_know_its_label(name: str) -> None:
    """Each row against its own sum, written out: a label that one model knows keeps that model's row and bias."""
    union = with_union_heads(pair(name))
    states = [model.state_dict() for model in union.models]
    plain = with_state(union.models[0], merge_states(states, "simple", (0.25, 0.75)))
    found = merge_heads(plain, union.models, union, (0.25, 0.75)).state_dict()
    for layer in union.layers:
        for part in (f"{layer}.weight", f"{layer}.bias"):
            first, second = states[0][part], states[1][part]
            expected = [first[0], 0.25 * first[1] + 0.75 * second[1], first[2], second[3]]
            assert torch.allclose(found[part], torch.stack(expected), atol=1e-12)
    rest = [name for name in found if name.rpartition(".")[0] not in union.layers]
    assert all(torch.equal(found[name], plain.state_dict()[name]) for name in rest)


@pytest.mark.parametrize(
    ("name", "matching"), one_in(2, zip(BUILDERS, cycle(("weights", "weights", "paper", "paper")), strict=False))
)
def test_models_with_different_heads_are_matched_without_changing_their_functions(name: str, matching: str) -> None:
    """Alignments found on the bodies act on the whole models, whose heads have other sizes."""
    models = pair(name)
    for model, alignment in zip(models, align_bodies(models, preset(matching)), strict=True):
        twin = alignment.apply(model)
        assert relative(logits(twin, inputs_of(model)), logits(model, inputs_of(model))) < 1e-9


@pytest.mark.parametrize("name", ["vit", "bert-sequence", "deberta", "timm"])
def test_a_planted_twin_is_found_by_its_body(name: str) -> None:
    """A scrambled copy with another head comes back to the original's body exactly."""
    model = pair(name)[0]
    other = randomize(BUILDERS[name]((OWL, DOG)), 5)
    other = with_state(other, {**other.state_dict(), **body_states([model])[0]})
    description = blueprint(other)
    scrambled = Alignment.random(description.after_folding or description, torch.Generator().manual_seed(2)).apply(
        other
    )
    options = preset("weights", gauge=("folded", "balanced"))
    twins = [a.apply(m) for a, m in zip(align_bodies([model, scrambled], options), (model, scrambled), strict=True)]
    anchor, matched = body_states(twins)
    assert sum(float((matched[key] - anchor[key]).square().sum()) for key in anchor) < 1e-6


def test_tasks_of_different_kinds_share_a_body_and_keep_their_heads() -> None:
    """A sequence and a token classifier: one merged body in both, each with its own head, pooler included."""
    sequence = randomize(BUILDERS["roberta-sequence"]((CAT, DOG)), 0)
    config = RobertaConfig(**TEXT, **named((FOX, OWL, DOG)))
    token = randomize(RobertaForTokenClassification(config), 1)
    models = [sequence, token]
    twins = [a.apply(m) for a, m in zip(align_bodies(models, preset("weights")), models, strict=True)]
    body = merge_states(body_states(twins))
    merged = split_heads(body, twins)
    assert [type(model) for model in merged] == [type(model) for model in models]
    for model, twin in zip(merged, twins, strict=True):
        head = head_parameters(twin)
        assert all(torch.equal(model.state_dict()[name], twin.state_dict()[name]) for name in head)
    first, second = body_states(merged)
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_one_models_twin_split_again_is_itself() -> None:
    """With a body of its own, splitting changes nothing: no head leaks into another."""
    models = [vit((CAT, DOG)).double().eval(), vit((FOX, OWL, DOG)).double().eval()]
    inputs = inputs_of(models[0])
    for model, state in zip(models, body_states(models), strict=True):
        assert torch.equal(logits(split_heads(state, [model])[0], inputs), logits(model, inputs))


def trained(digits: range, seed: int) -> nn.Module:
    """A small ViT that has seen some digits only, and has a head for those."""
    torch.manual_seed(seed)
    shape = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
    kinds = named(tuple(str(digit) for digit in digits))
    model = ViTForImageClassification(ViTConfig(**shape, image_size=8, patch_size=4, num_channels=1, **kinds))
    images, labels = digit_images(digits)
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
    draw = torch.Generator().manual_seed(seed)
    for _ in range(60):
        chosen = torch.randint(len(images), (64,), generator=draw)
        loss = nn.functional.cross_entropy(logits(model, {"pixel_values": images[chosen]}), labels[chosen] - digits[0])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval()


def digit_images(digits: range, test: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    data = load_digits()
    order = torch.randperm(1797, generator=torch.Generator().manual_seed(0))
    order = order[1400:] if test else order[:1400]
    images = torch.tensor(data.images[order], dtype=torch.float32)[:, None] / 8 - 1
    labels = torch.tensor(data.target[order])
    kept = torch.isin(labels, torch.tensor(digits))
    return images[kept], labels[kept]


def test_digits_0_to_4_and_5_to_9_from_two_seeds_become_one_model_that_tells_ten_apart() -> None:
    """Each end model teaches on its own unlabelled inputs; neither alone can be right about more than half of ten."""
    halves = (range(5), range(5, 10))
    union = with_union_heads([trained(digits, seed) for seed, digits in enumerate(halves)])
    twins = align(union.models, preset="weights")
    merged = with_state(twins[0], merge_states([twin.state_dict() for twin in twins]))
    merged = merge_heads(merged, twins, union)
    own = [[{"pixel_values": digit_images(digits)[0]}] for digits in halves]
    polished = polish(merged, union.models, own, PolishOptions(steps=120), known=union.known)
    images, labels = digit_images(range(10), test=True)

    def accuracy(model: nn.Module) -> float:
        with torch.no_grad():
            return float((logits(model, {"pixel_values": images}).argmax(-1) == labels).double().mean())

    assert max(accuracy(model) for model in union.models) < 0.55
    assert accuracy(polished) > max(0.7, accuracy(merged) + 0.1)


def test_a_union_checkpoint_is_an_ordinary_one(tmp_path: object) -> None:
    """Written and read back, a classifier of transformers and one of timm have all labels and the same logits."""
    for name in ("vit", "timm"):
        wide = with_union_heads([model.float() for model in pair(name)]).models[0]
        folder = tmp_path / name  # type: ignore[operator]
        save(wide, folder)
        back = load(folder)
        assert labels_of(back) == (CAT, DOG, FOX, OWL)
        written, read = wide.state_dict(), back.state_dict()
        assert written.keys() == read.keys()
        assert all(torch.equal(tensor, read[key]) for key, tensor in written.items())
        assert relative(logits(back, inputs_of(wide)), logits(wide, inputs_of(wide))) < 1e-5


def test_a_model_with_a_union_head_goes_through_the_engine() -> None:
    """Models with union heads have equal shapes, so `align` takes them as they are."""
    union = with_union_heads(pair("vit"))
    for model, twin in zip(union.models, align(union.models, preset="weights"), strict=True):
        assert relative(logits(twin, inputs_of(model)), logits(model, inputs_of(model))) < 1e-9


def test_what_cannot_be_joined_is_refused_in_a_sentence() -> None:
    first, second = pair("vit")
    with pytest.raises(InputError, match="expected one class"):
        with_union_heads([first, pair("timm")[0]])
    twice = copy.deepcopy(first)
    twice.config.id2label = {0: CAT, 1: CAT, 2: FOX}
    with pytest.raises(InputError, match="'cat' is there twice"):
        with_union_heads([first, twice])
    with pytest.raises(InputError, match="no classifier"):
        labels_of(BertModel(BertConfig(**TEXT)))
    union = with_union_heads([first, second])
    with pytest.raises(InputError, match="'owl' have weight 0"):
        merge_heads(union.models[0], union.models, union, (1, 0))
    with pytest.raises(InputError, match="differ in 'vit"):
        body_states([first, ViTForImageClassification(ViTConfig(**{**SMALL, "hidden_size": 12}, image_size=12))])


def test_the_inputs_are_not_modified() -> None:
    models = pair("bert-sequence")
    before = [copy.deepcopy(model.state_dict()) for model in models]
    union = with_union_heads(models)
    align_bodies(models, preset("weights"))
    forward(merge_heads(union.models[0], union.models, union), inputs_of(models[0]))
    for model, state in zip(models, before, strict=True):
        assert all(torch.equal(model.state_dict()[name], tensor) for name, tensor in state.items())
    assert models[0].config.num_labels == 3
