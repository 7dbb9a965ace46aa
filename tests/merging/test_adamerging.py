"""AdaMerging: coefficients of task vectors by the least entropy on inputs without labels."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    BertForTokenClassification,
    GPT2Config,
    GPT2LMHeadModel,
)

import fusionlab
from fusionlab.errors import InputError
from fusionlab.forward import logits
from fusionlab.fusion.methods import with_merged
from fusionlab.merging import merge_states
from fusionlab.statistics.entropy import mean_entropy
from tests.merging.test_regmean_pp import inputs
from tests.symmetry.models import generator, random_model

COUNT = 2


def classifiers() -> tuple[nn.Module, list[nn.Module]]:
    """A base model and two others of four inputs and three classes."""
    made = []
    for seed in range(COUNT + 1):
        torch.manual_seed(seed)
        made.append(nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double())
    return made[0], made[1:]


def entropy(found: Tensor) -> Tensor:
    """Of each row, the mean."""
    shares = found.softmax(-1)
    return -(shares * shares.log()).sum(-1).mean()


def merged(by: str, weights: list[float] | None = None, **changes: Any) -> dict[str, Tensor]:
    """The merge of the classifiers, each on batches of its own."""
    base, models = classifiers()

    def model(state: dict[str, Tensor], place: int) -> nn.Module:
        made = copy.deepcopy(models[place])
        made.load_state_dict(state)
        return made

    given = {"base": base.state_dict(), "inputs": [inputs(seed) for seed in range(COUNT)], "model": model}
    return merge_states([one.state_dict() for one in models], "adamerging", weights, by=by, **{**given, **changes})


@pytest.mark.parametrize("weights", [[0.5, 0.5], [0.8, 0.2]])
@pytest.mark.parametrize("by", ["task", "layer"])
def test_equals_the_descent_written_out(by: str, weights: list[float]) -> None:
    """Adam on the coefficients, the network spelled out, a batch of each model in turn for every step."""
    base, models = classifiers()
    data = [[batch["x"] for batch in inputs(seed)] for seed in range(COUNT)]
    names = list(base.state_dict())
    start = 0.3 * COUNT * torch.tensor(weights)
    found = {name: start.clone().requires_grad_() for name in (["all"] if by == "task" else names)}
    optimizer = torch.optim.Adam(found.values(), lr=0.05)

    def state() -> dict[str, Tensor]:
        return {
            name: base.state_dict()[name]
            + sum(
                found["all" if by == "task" else name][place] * (model.state_dict()[name] - base.state_dict()[name])
                for place, model in enumerate(models)
            )
            for name in names
        }

    for step in range(5):
        optimizer.zero_grad()
        now = state()
        total = torch.zeros(())
        for weight, rows in zip(weights, data, strict=True):
            hidden = torch.tanh(rows[step % 2] @ now["0.weight"].T + now["0.bias"])
            total = total + weight * entropy(hidden @ now["2.weight"].T + now["2.bias"])
        total.backward()
        optimizer.step()
    result = merged(by, weights, steps=5, learning_rate=0.05)
    for name, tensor in state().items():
        torch.testing.assert_close(result[name], tensor.detach(), rtol=0, atol=1e-6)


def test_no_steps_are_task_arithmetic() -> None:
    """With the coefficients of the start."""
    base, models = classifiers()
    states = [one.state_dict() for one in models]
    expected = merge_states(states, "task_arithmetic", base=base.state_dict(), lambda_=0.3 * COUNT)
    for name, tensor in merged("layer", steps=0).items():
        torch.testing.assert_close(tensor, expected[name], rtol=0, atol=1e-7)


def test_a_transformer_becomes_surer() -> None:
    """In Python's one call, with an image classifier; the end models stay as they are."""
    base, *models = (random_model("vit-classifier", seed) for seed in range(3))
    before = copy.deepcopy(models[0].state_dict())
    draw = generator(2)
    batch = {i.name: i.random(12, draw, torch.float64) for i in fusionlab.blueprint(base).inputs}
    given = {"data": [batch], "base": base, "learning_rate": 0.02}
    levels = []
    for steps in (0, 15):
        made = fusionlab.merge(models, "adamerging", steps=steps, **given)
        with torch.no_grad():
            levels.append(float(entropy(logits(made, batch))))
    assert levels[1] < levels[0]
    assert all(torch.equal(tensor, before[name]) for name, tensor in models[0].state_dict().items())


def tagger(seed: int, kind: Any = BertForSequenceClassification, **changes: Any) -> nn.Module:
    """A small BERT in float64."""
    torch.manual_seed(seed)
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    return kind(BertConfig(vocab_size=20, **sizes, **changes)).double().eval()


def texts() -> dict[str, Tensor]:
    """Four of five tokens, the last of which is padding in all but the first."""
    mask = torch.ones(4, 5, dtype=torch.long)
    mask[1:, 4] = 0
    return {"input_ids": torch.randint(20, (4, 5), generator=generator(0)), "attention_mask": mask}


def test_predictions_of_padding_and_of_tokens_without_a_label_do_not_count() -> None:
    """Of a tagger each token, as far as it is labelled where there are labels; of a language model each next token."""
    model, batch = tagger(0, BertForTokenClassification, num_labels=3), texts()
    with torch.no_grad():
        found, known = logits(model, batch), batch["attention_mask"].bool()
        torch.testing.assert_close(mean_entropy(model, batch), entropy(found[known]))
        labels = torch.full((4, 5), -100)
        labels[:, 1] = 0
        torch.testing.assert_close(mean_entropy(model, {**batch, "labels": labels}), entropy(found[:, 1]))
        causal = GPT2LMHeadModel(GPT2Config(vocab_size=20, n_embd=8, n_layer=1, n_head=2)).double().eval()
        batch = {"input_ids": batch["input_ids"], "attention_mask": batch["attention_mask"]}
        followed = logits(causal, batch)[:, :-1][known[:, 1:]]
        torch.testing.assert_close(mean_entropy(causal, batch), entropy(followed))


def test_several_labels_are_questions_of_their_own() -> None:
    """Each yes or no; the sum over two answers, written out."""
    model, batch = tagger(0, num_labels=3, problem_type="multi_label_classification"), texts()
    with torch.no_grad():
        yes = logits(model, batch).sigmoid()
        expected = -(yes * yes.log() + (1 - yes) * (1 - yes).log()).mean()
        torch.testing.assert_close(mean_entropy(model, batch), expected)


@pytest.mark.parametrize("kind", [BertForTokenClassification, BertForMaskedLM])
def test_models_of_tokens_become_surer(kind: Any) -> None:
    """On the real classes, by the commands' own call."""
    base, *models = (tagger(seed, kind) for seed in range(3))
    made = [
        fusionlab.merge(models, "adamerging", data=[texts()], base=base, steps=steps, learning_rate=0.02)
        for steps in (0, 15)
    ]
    with torch.no_grad():
        first, last = (float(mean_entropy(one, texts())) for one in made)
    assert last < first


def test_what_has_no_entropy_is_a_sentence() -> None:
    """Outputs that are no logits, a number, and no inputs."""
    base, *models = (random_model("vit-model", seed) for seed in range(3))
    batch = {i.name: i.random(2, generator(2), torch.float64) for i in fusionlab.blueprint(base).inputs}
    with pytest.raises(InputError, match=r"a ViTModel predicts no labels .* expected a classifier"):
        fusionlab.merge(models, "adamerging", data=[batch], base=base)
    number = [tagger(seed, num_labels=1, problem_type="regression") for seed in range(3)]
    with pytest.raises(InputError, match="a BertForSequenceClassification predicts a number"):
        fusionlab.merge(number[1:], "adamerging", data=[texts()], base=number[0])
    with pytest.raises(InputError, match="'adamerging' needs inputs of each model"):
        fusionlab.merge(models, "adamerging", base=base)


def test_data_that_does_not_fit_is_a_sentence() -> None:
    base, models = classifiers()
    with pytest.raises(InputError, match="the data does not fit the model: mat1 and mat2"):
        fusionlab.merge(models, "adamerging", data=[{"x": torch.ones(2, 99)}], base=base)


def test_heads_of_half_precision_that_models_keep() -> None:
    """What is merged is in float32 while in work, and so is a head that is not: the same as of models in float32."""
    base, models = classifiers()
    base, models = base.bfloat16(), [one.bfloat16() for one in models]

    def result(dtype: torch.dtype) -> dict[str, Tensor]:
        typed = [copy.deepcopy(one).to(dtype) for one in (base, *models)]
        bodies = [{name: one for name, one in each.state_dict().items() if name.startswith("0.")} for each in typed]

        def model(state: dict[str, Tensor], place: int) -> nn.Module:
            return with_merged(typed[1 + place], state)

        given = {"base": bodies[0], "inputs": [inputs(seed) for seed in range(COUNT)], "model": model}
        return merge_states(bodies[1:], "adamerging", steps=3, learning_rate=0.05, **given)

    expected = result(torch.float32)
    for name, tensor in result(torch.bfloat16).items():
        torch.testing.assert_close(tensor, expected[name].bfloat16(), rtol=0.01, atol=1e-4)


def test_batches_that_come_once() -> None:
    """A generator gives all its batches, as a list does, and a single one is gone through over and over."""
    for count in (1, 2):
        data = [inputs(seed)[:count] for seed in range(COUNT)]
        expected = merged("layer", steps=3, inputs=data)
        found = merged("layer", steps=3, inputs=[iter(own) for own in data])
        assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


def test_data_that_lie_class_by_class() -> None:
    """Each step's batch has examples from everywhere in a data set that is read in order."""
    rows = [inputs(seed)[0]["x"][:20] for seed in range(COUNT)]
    loaders = [DataLoader([{"x": row} for row in own], batch_size=4) for own in rows]
    apart = [[{"x": own[place::5]} for place in range(5)] for own in rows]
    expected = merged("layer", steps=9, inputs=apart)
    for name, tensor in merged("layer", steps=9, inputs=loaders).items():
        torch.testing.assert_close(tensor, expected[name], rtol=0, atol=1e-9)


@pytest.mark.parametrize("by", ["task", "layer"])
def test_it_tells_the_coefficients(by: str) -> None:
    """Of each model, those that the merge has: what it adds to the base model in each parameter."""
    base, models = classifiers()
    sentences: list[str] = []
    state = merged(by, [0.8, 0.2], steps=9, learning_rate=0.05, names=["a", "b"], tell=sentences.append)
    found = []
    for name, start in base.state_dict().items():
        changes = torch.stack([(model.state_dict()[name] - start).flatten() for model in models], dim=1)
        added = (state[name] - start).flatten()
        found.append(torch.linalg.lstsq(changes, added[:, None]).solution[:, 0])
    columns = torch.stack(found).T
    if by == "task":
        words = [f"{column[0]:.3g} for {name}" for name, column in zip("ab", columns, strict=True)]
        assert sentences == [f"Coefficients of the task vectors are {words[0]} and {words[1]}."]
    else:
        words = [
            f"{column.mean():.3g} ({column.min():.3g} to {column.max():.3g}) for {name}"
            for name, column in zip("ab", columns, strict=True)
        ]
        assert sentences == [
            "Coefficients of the task vectors are, in the mean over 4 parameters and from the least to the largest, "
            f"{words[0]} and {words[1]}."
        ]
