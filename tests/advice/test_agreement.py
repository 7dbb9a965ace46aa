"""How often the plain mean of models says what they say together: counted here by hand, and what follows from it."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader
from transformers import (
    BertConfig,
    BertForMaskedLM,
    ResNetConfig,
    ResNetForImageClassification,
    T5Config,
    T5ForSequenceClassification,
)

import fusionlab
from fusionlab.advice import choose
from fusionlab.advice.agreement import INPUTS, LEAST, Agreement, agreement_of
from fusionlab.advice.situations import CASES, ENOUGH, judged
from fusionlab.errors import InputError
from fusionlab.fusion import FusionModule
from fusionlab.fusion.plan_of_names import recipes
from fusionlab.inputs import Inputs
from fusionlab.trainers import quiet_trainer
from tests.commands.small import bert, vit


def moved(size: float, seed: int = 0) -> nn.Module:
    """A model off a common one by random numbers."""
    model, draw = vit(0), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(size * parameter.std().nan_to_num() * torch.randn(parameter.shape, generator=draw))
    return model


def images(count: int, seed: int = 0) -> Tensor:
    return torch.randn(count, 1, 8, 8, generator=torch.Generator().manual_seed(seed))


def batches(pixels: Tensor, size: int = 32) -> list[dict[str, Tensor]]:
    return [{"pixel_values": part} for part in pixels.split(size)]


def by_hand(models: list[nn.Module], pixels: Tensor) -> float:
    """The share of images that the merged model classifies as the mean of all probabilities."""
    with torch.no_grad():
        middle = fusionlab.merge(models)(pixel_values=pixels).logits.argmax(-1)
        spoken = sum(model(pixel_values=pixels).logits.softmax(-1) for model in models).argmax(-1)
    return float((middle == spoken).double().mean())


def test_it_is_what_a_count_says() -> None:
    """Of three models too; the modes and numbers of the models stay as they were."""
    pixels = images(200)
    for models in ([moved(0.6, 1), moved(0.6, 2)], [moved(0.6, 1), moved(0.6, 2), moved(0.6, 3)]):
        models[0].train()
        before = [{name: t.clone() for name, t in model.state_dict().items()} for model in models]
        found = agreement_of(models, batches(pixels))
        assert models[0].training
        assert not models[1].training
        assert all(
            torch.equal(t, model.state_dict()[n]) for b, model in zip(before, models, strict=True) for n, t in b.items()
        )
        models[0].eval()
        assert found == Agreement(pytest.approx(by_hand(models, pixels), abs=0.006), 200)
    assert agreement_of([vit(0), vit(0)], batches(pixels)) == Agreement(1.0, 200)


@pytest.mark.parametrize("kind", ["list", "loader", "iterable"])
def test_inputs_are_spread_over_all_of_them(kind: str) -> None:
    """Data that are sorted are not judged by their beginning."""

    class Again:
        def __iter__(self) -> Any:
            return iter(batches(pixels))

    count = 4 * INPUTS
    pixels = torch.cat([images(count // 2), 40 * images(count // 2, 1)])
    models = [moved(0.6, 1), moved(0.6, 2)]
    parts = [by_hand(models, half) for half in pixels.chunk(2)]
    assert abs(parts[0] - parts[1]) > 0.1
    loader = DataLoader([{"pixel_values": one} for one in pixels], 32)  # type: ignore[arg-type]
    given = {"list": batches(pixels), "loader": loader, "iterable": Again()}[kind]
    found = agreement_of(models, given)
    assert found is not None
    assert found.count == INPUTS
    assert found.share == pytest.approx(sum(parts) / 2, abs=0.05)


def test_what_cannot_be_looked_at() -> None:
    """Other sizes, no classes of whole inputs, running statistics, few inputs."""
    pixels = images(LEAST)
    assert agreement_of([vit(0), vit(1, hidden_size=24)], batches(pixels)) is None
    assert agreement_of([vit(0), vit(1)], batches(pixels[1:])) is None
    tokens = [{"input_ids": torch.ones(LEAST, 4, dtype=torch.long)}]
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    assert agreement_of([BertForMaskedLM(BertConfig(vocab_size=9, **sizes)) for _ in "ab"], tokens) is None
    regression = [bert(seed) for seed in (0, 1)]
    for model in regression:
        model.config.problem_type = "regression"
    assert agreement_of(regression, tokens) is None
    with pytest.raises(InputError, match="the data does not fit the model: "):
        agreement_of([vit(0), vit(1)], batches(pixels[:, :, :4, :4]))
    small = ResNetConfig(num_channels=1, embedding_size=8, hidden_sizes=[8], depths=[1], layer_type="basic")
    assert agreement_of([ResNetForImageClassification(small) for _ in "ab"], batches(pixels)) is None


def test_tied_embeddings_count_once() -> None:
    """T5's encoder and decoder have one table, under three names."""
    sizes = {"d_model": 8, "d_kv": 4, "d_ff": 8, "num_layers": 1, "num_heads": 2, "vocab_size": 9, "num_labels": 2}
    models = [T5ForSequenceClassification(T5Config(**sizes, decoder_start_token_id=0)).eval() for _ in "ab"]
    texts = torch.randint(2, 9, (LEAST, 5), generator=torch.Generator().manual_seed(0))
    texts[:, -1] = 1
    found = agreement_of(models, [{"input_ids": texts}])
    assert found is not None
    assert found.count == LEAST
    assert agreement_of([models[0], models[0]], [{"input_ids": texts}]) == Agreement(1.0, LEAST)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.is_open])
def test_what_follows(name: Any) -> None:
    """Below a share learned matching and the plain mean, from it on nothing; without a look what the weights say."""
    case = CASES[name]
    low, high = judged(case, ENOUGH - 0.01), judged(case, ENOUGH)
    assert (low.match, high.match, judged(case, None)) == ("learned", "none", case)
    assert low.methods == ("simple",)
    assert "learning on inputs" in low.helps
    assert "Learned matching" in high.useless
    assert (low.unsure, high.unsure) == ("", "")
    assert judged(CASES["other_seeds"], 0.9) == CASES["other_seeds"]


def test_fuse_and_modules_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fine-tunes whose mean says something else are matched by learning where there are inputs, and by nothing else."""
    models = {"a": moved(0.05, 1), "b": moved(0.05, 2)}
    given = Inputs.from_batches(batches(images(96)), 2)
    assert choose(models, True, inputs=given).match == "none"
    monkeypatch.setattr("fusionlab.advice.choosing.agreement_of", lambda *_: Agreement(0.3, 96))
    found = choose(models, True, inputs=given)
    assert found.match == "learned"
    assert (
        "Of 96 inputs their plain mean classifies 30% as they do together. So they are matched by learned: about"
        in (found.sentence)
    )
    assert found.advice.to_dict()["agreement"] == 0.3
    assert "preset='learned'" in found.advice.commands[0]
    assert choose(models, True).match == choose(models, False, inputs=given).match == "none"
    assert choose({"a": vit(0), "b": vit(1)}, True, inputs=given).advice.agreement is None
    module = FusionModule(models, inputs=given, methods="simple")
    assert list(module.plan.matchings) == []
    monkeypatch.setattr("fusionlab.advice.choosing.MOST_SECONDS", 0.0)
    assert choose(models, True, inputs=given).match == "none"


def test_a_module_looks_at_what_its_trainer_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """The choice before the fit is by the weights, the one in it by the inputs."""
    monkeypatch.setattr("fusionlab.advice.choosing.agreement_of", lambda *_: Agreement(0.3, 96))
    few = {"learned": {"learned": {"steps": 3}}}  # less to wait for
    monkeypatch.setattr("fusionlab.fusion.module.recipes", lambda match, seed: recipes(few.get(match, match), seed))
    module = FusionModule({"a": moved(0.05, 1), "b": moved(0.05, 2)})
    assert list(module.plan.matchings) == []
    quiet_trainer(accelerator="cpu", limit_train_batches=3).fit(module, batches(images(96)))
    assert module.choice is not None
    assert (list(module.plan.matchings), module.kept.matching) == (["learned"], "learned")
