"""The right case for pairs that are known: trained, fine-tuned, renumbered, scaled, merged, noisy, small, grown."""

import copy
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch import nn
from transformers import (
    BertForSequenceClassification,
    LlamaConfig,
    LlamaForSequenceClassification,
    ResNetConfig,
    ResNetForImageClassification,
)

import fusionlab
from fusionlab import checkpoints
from fusionlab.advice import CASES
from fusionlab.errors import InputError
from tests.advice.small import WIDTH, end_model, fresh, renumbered, trained
from tests.commands.small import bert, vit

TRAINED = Path(__file__).resolve().parents[3] / "shared" / "data" / "models"


def mean(one: nn.Sequential, other: nn.Sequential, share: float = 0.5) -> nn.Sequential:
    merged = copy.deepcopy(one)
    with torch.no_grad():
        for parameter, second in zip(merged.parameters(), other.parameters(), strict=True):
            parameter.lerp_(second, share)
    return merged


def noisy(model: nn.Sequential, size: float, factor: float = 1) -> nn.Sequential:
    """The model times a factor, with noise as long as a share of each parameter."""
    moved, draw = copy.deepcopy(model), torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in moved.parameters():
            noise = torch.randn(parameter.shape, generator=draw)
            noise *= size * parameter.norm() / noise.norm()
            parameter.mul_(factor).add_(noise)
    return moved


def tuned(classes: Sequence[int], steps: int, width: int = WIDTH) -> nn.Sequential:
    """A fine-tune of one base on some of the classes."""
    return trained(end_model(1, width), steps, 1e-3, classes)


PAIRS: dict[str, tuple[str, Callable[[], nn.Module], Callable[[], nn.Module]]] = {
    "fresh, never trained": ("other_seeds", lambda: fresh(1), lambda: fresh(2)),
    "other seeds": ("other_seeds", lambda: end_model(1), lambda: end_model(2)),
    "other seeds, narrow": ("other_seeds", lambda: end_model(1, 16), lambda: end_model(2, 16)),
    "other seeds, other classes": (
        "other_seeds",
        lambda: trained(fresh(3), 150, 3e-3, range(5)),
        lambda: trained(fresh(4), 150, 3e-3, range(5, 10)),
    ),
    "short fine-tunes": ("one_base", lambda: tuned(range(5), 10), lambda: tuned(range(5, 10), 10)),
    "long fine-tunes": ("one_base", lambda: tuned(range(5), 300), lambda: tuned(range(5, 10), 300)),
    "fine-tunes, narrow": ("one_base", lambda: tuned(range(5), 80, 16), lambda: tuned(range(5, 10), 80, 16)),
    "base and fine-tune": ("one_base", lambda: end_model(1), lambda: trained(end_model(1), 100, 1e-3, range(5))),
    "one model in another order": ("one_model_in_two_bases", lambda: end_model(1), lambda: renumbered(end_model(1), 5)),
    "fine-tune in another order": (
        "other_seeds",
        lambda: end_model(1),
        lambda: renumbered(trained(end_model(1), 100, 1e-3), 5),
    ),
    "a merge and its end model": ("one_base", lambda: end_model(1), lambda: mean(end_model(1), end_model(2))),
    "noise": ("one_base", lambda: end_model(1), lambda: noisy(end_model(1), 0.3)),
    "much noise": ("one_basis_far_apart", lambda: end_model(1), lambda: noisy(end_model(1), 1.9)),
    "nothing but noise": ("other_seeds", lambda: end_model(1), lambda: noisy(end_model(1), 1000)),
    "scaled": ("one_base", lambda: end_model(1), lambda: noisy(end_model(1), 0, 3.0)),
    "the same": ("same", lambda: end_model(1), lambda: copy.deepcopy(end_model(1))),
    "too narrow to tell": ("unclear", lambda: fresh(1, 4)[2], lambda: fresh(2, 4)[2]),
    "other widths": ("sizes", lambda: end_model(1), lambda: fresh(2, 48)),
    "other depths": ("sizes", lambda: vit(0), lambda: vit(1, num_hidden_layers=3)),
    "other vocabularies": ("vocabularies", lambda: bert(0), lambda: bert(1, vocab_size=40)),
    "other architectures": ("architectures", lambda: bert(0), lambda: vit(0)),
    "random ViTs": ("other_seeds", lambda: vit(0), lambda: vit(1)),
}


@pytest.mark.parametrize("name", PAIRS)
def test_case(name: str) -> None:
    """Both ways round."""
    case, one, other = PAIRS[name]
    first, second = one(), other()
    for models in ((first, second), (second, first)):
        assert fusionlab.advise(*models).case == case


def test_several_models_are_the_worst_of_their_pairs() -> None:
    near = trained(end_model(1), 10, 1e-3)
    assert fusionlab.advise([end_model(1), near]).case == "one_base"
    assert fusionlab.advise([end_model(1), near, end_model(2)]).case == "other_seeds"


def test_gains_near_one_and_biases_near_zero_tell_nothing() -> None:
    """Unrelated models whose vectors are nearly the same: their plain cosine is near 1."""
    first, second = fresh(1), fresh(2)
    with torch.no_grad():
        first[4].weight.normal_(1, 1e-3)
        second[4].weight.normal_(1, 1e-3)
    found = fusionlab.advise(first, second)
    plain = torch.nn.functional.cosine_similarity(first[4].weight, second[4].weight, dim=0)
    (pair,) = found.pairs
    assert plain > 0.99
    assert pair.vectors is not None
    assert found.case == "other_seeds"


def test_frozen_embeddings_do_not_hide_other_seeds() -> None:
    """Most kinds of parameters decide, not most numbers; the others are named."""
    first, second = bert(0, 400), bert(1, 400)
    second.bert.embeddings.load_state_dict(first.bert.embeddings.state_dict())
    found = fusionlab.advise(first, second)
    assert found.case == "other_seeds"
    assert "word_embeddings" in " ".join(found.exceptions)


def test_a_model_and_the_same_without_its_head() -> None:
    whole = bert(0)
    found = fusionlab.advise(whole.bert, whole)
    (pair,) = found.pairs
    assert found.case == "one_base"
    assert pair.whole.equal == 1
    assert sorted(pair.only) == ["classifier.bias", "classifier.weight"]


def test_other_heads_are_said() -> None:
    first = bert(0)
    config = copy.deepcopy(first.config)
    config.num_labels = 7
    second = BertForSequenceClassification(config)
    second.bert.load_state_dict(first.bert.state_dict())
    found = fusionlab.advise(first, second)
    assert found.case == "one_base"
    assert found.commands == ["fusionlab.FusionModule(models, 'none', 'simple', heads='own')"]
    assert any("classifier.weight" in line and "--heads own" in line for line in found.exceptions)


@pytest.mark.parametrize(
    ("model", "entry", "name"),
    [
        (bert, "max_position_embeddings", "position_embeddings"),
        (bert, "type_vocab_size", "token_type_embeddings"),
        (vit, "image_size", "position_embeddings"),
    ],
)
def test_other_inputs_are_no_other_heads(model: Callable[..., nn.Module], entry: str, name: str) -> None:
    """Rows for positions that one model has not: nothing merges them, and no command is named."""
    first = model(0)
    second = model(0, **{entry: 2 * getattr(first.config, entry)})
    found = fusionlab.advise(first, second)
    assert found.case == "architectures"
    assert found.commands == []
    (told,) = found.exceptions
    assert f"{entry}: {getattr(first.config, entry)} and {getattr(second.config, entry)}" in told
    assert name in told


def test_longer_texts_with_other_heads() -> None:
    """A model that turns positions has no rows for them."""
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2}
    one, other = (
        LlamaForSequenceClassification(
            LlamaConfig(**sizes, vocab_size=64, num_labels=labels, max_position_embeddings=longest)
        )
        for labels, longest in ((3, 64), (5, 128))
    )
    other.model.load_state_dict(one.model.state_dict())
    assert fusionlab.advise(one, other).case == "one_base"


def test_heads_whose_names_have_a_number() -> None:
    """ResNet's is `classifier.1`, which is no layer of two sizes."""
    sizes = {"embedding_size": 4, "hidden_sizes": [4, 8], "depths": [1, 1], "layer_type": "basic"}
    models = [ResNetForImageClassification(ResNetConfig(**sizes, num_labels=count)) for count in (3, 5)]
    models[1].resnet.load_state_dict(models[0].resnet.state_dict())
    found = fusionlab.advise(*models)
    assert found.case == "one_base"
    assert all("heads='own'" in command for command in found.commands)
    wider = ResNetForImageClassification(ResNetConfig(**{**sizes, "hidden_sizes": [4, 16]}, num_labels=5))
    assert fusionlab.advise(models[0], wider).case == "sizes"


def test_labels_in_another_order_are_said() -> None:
    """What is named to be run keeps a head for each, since one head of both is refused."""
    first, second = bert(0), bert(1)
    names = list(first.config.id2label.values())
    second.config.id2label = dict(enumerate([*names[1:], names[0]]))
    advice = fusionlab.advise(first, second)
    (told,) = (line for line in advice.exceptions if "have the same labels in another order" in line)
    assert "--heads union" in told
    assert all("heads='own'" in command for command in advice.commands)
    second.config.id2label = dict(first.config.id2label)
    assert not any("another order" in line for line in fusionlab.advise(first, second).exceptions)


def test_adapters(tmp_path: Path) -> None:
    """Of one base, of two, and beside a whole model."""
    checkpoints.save(bert(0), tmp_path / "base")
    for name, base in (("one", "base"), ("two", "base"), ("other", "elsewhere")):
        adapted = get_peft_model(bert(0), LoraConfig(r=2, target_modules=["query"]))
        adapted.peft_config["default"].base_model_name_or_path = str(tmp_path / base)
        adapted.save_pretrained(tmp_path / name)
    one, two, other = (str(tmp_path / name) for name in ("one", "two", "other"))
    found = fusionlab.advise(one, two)
    assert found.case == "adapters"
    assert found.cost is not None
    assert found.commands[1].startswith(f"fusionlab merge {one} {two} --method simple --base {tmp_path / 'base'}")
    assert fusionlab.advise(one, other).case == "architectures"
    file = tmp_path / "two" / "adapter_config.json"
    file.write_text(file.read_text().replace(str(tmp_path / "base"), f"{tmp_path / 'one' / '..' / 'base'}/"))
    assert fusionlab.advise(one, two).case == "adapters", "one base model, whose path is written in two ways"
    with pytest.raises(InputError, match="one is an adapter, and others are whole models"):
        fusionlab.advise(one, str(tmp_path / "base"))


def test_what_it_says() -> None:
    """A sentence with the numbers, what helps and what does not, lines to run; short, and as a page."""
    found = fusionlab.advise(end_model(1), end_model(2))
    assert found.sentence.startswith("These are models trained apart (other seeds)")
    assert ", by chance " in found.sentence
    assert found.commands == [
        "fusionlab.fuse(models, preset='learned', data=batches)",
        "fusionlab.fuse(models, preset='weights')",
    ]
    assert len(repr(found)) < 500
    assert "<table>" in found._repr_html_()
    assert f"{found.pairs[0].first} and {found.pairs[0].second}" in found._repr_html_()
    assert found.to_dict()["pairs"][0]["kinds"][0]["relation"] == "unrelated"
    assert set(CASES) >= {case for case, _, _ in PAIRS.values()}


@pytest.mark.parametrize(
    ("given", "message"), [([1, 2], "is a int"), ([], "0 end model"), ([nn.Linear(2, 2)], "1 end model")]
)
def test_bad_input(given: list[object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        fusionlab.advise(*given)


@pytest.mark.skipif(not TRAINED.is_dir(), reason="no trained models beside the repository")
def test_trained_models() -> None:
    """Real end models of other seeds, and what matching by weights makes of them."""
    for name, count in (("digits_vit_seed", 4), ("cifar10_vit_seed", 2)):
        found = fusionlab.advise([TRAINED / f"{name}{seed}" for seed in range(1, count + 1)])
        assert (found.case, found.match) == ("other_seeds", "learned")
    one, two = (fusionlab.load(TRAINED / f"digits_vit_seed{seed}") for seed in (1, 2))
    assert fusionlab.advise(fusionlab.align([one, two], preset="weights")).case == "one_basis_far_apart"
