"""Statistics of mixtures of experts: what is gathered is right, what is not gathered is named."""

import pytest
import torch
from torch import Tensor, nn

from fusionlab.errors import InputError
from fusionlab.experiment import omission_notes
from fusionlab.merging.ingredients import Ingredients
from fusionlab.merging.regmean import regmean
from fusionlab.statistics import Fisher, Grams, exploring
from fusionlab.statistics.gather import gather
from fusionlab.statistics.store import StatisticsStore
from tests.symmetry.infer.cases import seq2seq
from tests.symmetry.infer.cases.experts import SAMPLES
from tests.symmetry.models import generator

# The routers of the last two are linear modules, which answer with several tensors.
NAMES = ("mixtral", "gpt_oss", "qwen3_moe", "deepseek_v3", "phimoe", "llama4")
MODELS = {sample.name: sample for sample in SAMPLES if sample.name in NAMES}
Batch = dict[str, Tensor]


def model_of(name: str, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return MODELS[name].build().eval()


def batches() -> list[Batch]:
    """Two of three texts of 7 tokens, the second one padded after 4."""
    found = []
    for seed in range(2):
        ids = torch.randint(5, 37, (3, 7), generator=generator(seed))
        mask = torch.ones_like(ids)
        mask[1, 4:] = 0
        found.append({"input_ids": ids, "attention_mask": mask, "labels": ids.masked_fill(mask == 0, -100)})
    return found


@pytest.mark.parametrize("seed", range(3))
def test_experts_are_told_where_all_examples_are_alike(seed: int) -> None:
    """They read other numbers of tokens than those beside them; a later batch that sends others to them is none."""
    torch.manual_seed(seed)
    model = next(one for one in seq2seq.SAMPLES if one.name == "switch_transformers").build().eval()
    same, other = (
        {"input_ids": ids, "decoder_input_ids": ids[:, :5], "labels": ids[:, :5]}
        for ids in (torch.full((3, 7), 5), torch.randint(5, 37, (3, 7), generator=generator(seed)))
    )
    grams = gather(model, [same, other], ("gram",))["gram"]
    assert isinstance(grams, Grams)
    experts = {name for name, _ in model.named_parameters() if ".experts." in name}
    assert experts
    assert {name for name in experts if name in grams.settings["left_out"]} == experts


@pytest.mark.parametrize("name", MODELS)
def test_experts_in_one_tensor_and_their_routers_are_named_as_left_out(name: str) -> None:
    """Their module multiplies with them by itself, so that nothing sees what they read; all else is gathered."""
    model = model_of(name)
    grams = gather(model, batches(), ("gram",))["gram"]
    assert isinstance(grams, Grams)
    # Biases of experts are vectors, one for each.
    every = {name for name, x in model.named_parameters() if x.ndim > 1 and "embed" not in name}
    matrices = {name for name in every if not name.endswith("bias")}
    mixture = {name for name in matrices if ".experts." in name or ".gate.weight" in name or ".router.weight" in name}
    assert mixture
    assert matrices - mixture == set(grams.maps)
    told = grams.settings["left_out"]
    assert {name for name in matrices if name in told} == mixture


def test_regmean_averages_what_is_left_out() -> None:
    models = [model_of("mixtral", seed) for seed in range(2)]
    first, second = states = [model.state_dict() for model in models]
    found = [gather(model, batches(), ("gram",)) for model in models]
    merged = regmean(Ingredients(states, (0.5, 0.5), None, found, None, None, 0))
    same = {name for name in merged if torch.allclose(merged[name], (first[name] + second[name]) / 2, atol=1e-6)}
    at = "model.layers.1"
    assert {f"{at}.mlp.gate.weight", f"{at}.mlp.experts.gate_up_proj", f"{at}.mlp.experts.down_proj"} <= same
    assert f"{at}.self_attn.q_proj.weight" not in same


def test_a_report_says_what_is_averaged() -> None:
    """By reason, the first names; fuse and compare put the sentences beside their results."""
    found = [gather(model_of("mixtral", seed), batches(), ("gram",)) for seed in range(2)]
    router, experts = omission_notes(StatisticsStore(given=found))
    at = "model.layers.0.mlp"
    assert router == (
        f"Nothing was gathered for {at}.gate.weight and {at.replace('0', '1')}.gate.weight (a matrix that its module "
        f"multiplies with by itself, as routers do): methods that look at Gram matrices average them."
    )
    assert f"{at}.experts.gate_up_proj, {at}.experts.down_proj and 2 more (several matrices" in experts
    assert omission_notes(StatisticsStore()) == []


@pytest.mark.parametrize("name", MODELS)
def test_fisher_information_covers_experts_and_routers(name: str) -> None:
    """The mean over examples of the squared gradient of the log-likelihood of all tokens of one; by hand."""
    model, data = model_of(name), batches()
    fisher = gather(model, data, ("fisher",), labels="empirical")["fisher"]
    assert isinstance(fisher, Fisher)
    expected = {name: torch.zeros_like(x) for name, x in model.named_parameters()}
    for batch in data:
        for index in range(3):
            one = {key: value[index : index + 1] for key, value in batch.items()}
            found = model(input_ids=one["input_ids"], attention_mask=one["attention_mask"]).logits.log_softmax(-1)
            targets = one["labels"][:, 1:]
            picked = found[:, :-1].gather(-1, targets.clamp_min(0)[..., None])[..., 0]
            score = picked[targets >= 0].sum()
            gradients = torch.autograd.grad(score, list(model.parameters()), materialize_grads=True)
            for key, gradient in zip(expected, gradients, strict=True):
                expected[key] += gradient.square() / 6
    inside = [key for key, x in expected.items() if (".mlp." in key or ".feed_forward." in key) and x.any()]
    assert any("experts" in key for key in inside)
    for key in inside:
        torch.testing.assert_close(
            fisher.diagonal[key], expected[key], rtol=1e-3, atol=1e-6 * float(expected[key].max())
        )


class Loop(nn.Module):
    """Experts that are modules of their own, each called with the tokens that the router sends to it.

    The router goes by a token's number: 0 to the first expert and then the second, 1 to the second and then the third.
    """

    def __init__(self, chosen: int) -> None:
        super().__init__()
        self.embedding, self.router, self.head = nn.Embedding(37, 6), nn.Linear(6, 3), nn.Linear(6, 4)
        self.experts = nn.ModuleList(nn.Linear(6, 6) for _ in range(3))
        self.chosen = chosen
        with torch.no_grad():
            order = torch.tensor([[2.0, 1.0, 0.0], [0.0, 2.0, 1.0], [1.0, 0.0, 2.0]])
            self.embedding.weight[:, :3] = order[torch.arange(37) % 3]
            self.router.weight.copy_(torch.eye(3, 6))
            self.router.bias.zero_()

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        x = self.embedding(input_ids)
        tokens = x.flatten(0, 1)
        weights, index = self.router(tokens).softmax(-1).topk(self.chosen)
        out = tokens.clone()
        for number, expert in enumerate(self.experts):
            place, rank = torch.where(index == number)
            if len(place):
                out.index_add_(0, place, expert(tokens[place]) * weights[place, rank, None])
        return self.head(out.reshape(x.shape).mean(1))


class Unmasked(Loop):
    """The same, for texts of one length: it takes no mask, so that no shorter one is tried."""

    def forward(self, input_ids: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(input_ids)


def routed() -> list[Batch]:
    """Batches in which no two texts send as many tokens to the same expert."""
    found = batches()
    for batch in found:
        batch["input_ids"] = torch.tensor([[0, 0, 0, 0, 1, 1, 2], [0, 1, 1, 2, 2, 2, 2], [1, 1, 1, 1, 1, 1, 2]])
        del batch["labels"]
    return found


@pytest.mark.parametrize("chosen", [1, 2])
def test_experts_that_are_modules_are_named_as_left_out(chosen: int) -> None:
    """Which tokens they read is theirs to choose, so padding and other models' rows cannot be told by place."""
    torch.manual_seed(0)
    model = Loop(chosen).eval()
    data = routed()
    found = gather(model, data, ("gram", "activations"))
    for statistics in found.values():
        assert isinstance(statistics, Grams) or hasattr(statistics, "inputs")
        assert set(statistics.maps) == {"router.weight", "head.weight"}
        experts = "experts.0.weight, experts.1.weight, experts.2.weight"
        assert (
            statistics.settings["left_out"]
            == f"{experts}: reads the tokens that are sent to it, as an expert's modules do"
        )
    grams = found["gram"]
    assert isinstance(grams, Grams)
    counted = torch.cat([model.embedding(b["input_ids"])[b["attention_mask"].bool()] for b in data])
    torch.testing.assert_close(grams.matrices["router.weight"][:-1, :-1], counted.T @ counted)


def test_a_module_that_chooses_its_tokens_only_later_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """An expert that all tokens of the examples that were looked at went to."""
    monkeypatch.setattr(exploring, "EXPLORED", 1)
    torch.manual_seed(0)
    model = Loop(3).eval()
    data = routed()
    whole = model.forward

    def later(input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        model.chosen = 3 if len(input_ids) < 3 else 2
        return whole(input_ids, attention_mask)

    monkeypatch.setattr(model, "forward", later)
    with pytest.raises(InputError, match=r"'experts\.\d\.weight' read \d+ of 21 tokens in one batch and all of them"):
        gather(model, data, ("gram",))


def test_one_expert_that_chooses_tells_of_all() -> None:
    """As many tokens of every text go to the second expert; of two texts others go elsewhere."""
    torch.manual_seed(0)
    data = [{"input_ids": torch.tensor([[0, 0, 1, 1, 2, 2, 2], [0, 0, 0, 1, 1, 2, 2]])}]
    found = gather(Loop(1).eval(), data, ("gram",))["gram"]
    assert set(found.maps) == {"router.weight", "head.weight"}
    assert "experts.1.weight" in found.settings["left_out"]


def test_rows_that_are_no_examples_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a mask: an expert that fewer tokens go to than there are texts."""
    monkeypatch.setattr(exploring, "EXPLORED", 1)
    torch.manual_seed(0)
    data = [{"input_ids": torch.tensor([[0], [1], [1]])}]
    with pytest.raises(InputError, match=r"'experts.0.weight': 1 rows were read of 3 examples, .*; expected batches"):
        gather(Unmasked(1).eval(), data, ("activations",))


def test_regmean_averages_what_one_model_left_out() -> None:
    """Every text sends as many tokens to each expert of one model, and other numbers to those of the other."""
    models = [Unmasked(1).eval(), Unmasked(1).eval()]
    for seed, model in enumerate(models):
        for name, parameter in model.named_parameters():
            if name.startswith(("experts", "head")):
                nn.init.normal_(parameter, generator=generator(seed))
    even, uneven = [torch.tensor(rows) for rows in ([[0, 1, 2], [2, 0, 1]], [[0, 1, 2], [2, 2, 1]])]
    found = [gather(m, [{"input_ids": ids}], ("gram",)) for m, ids in zip(models, (even, uneven), strict=True)]
    assert "experts.0.weight" in found[0]["gram"].maps
    assert "experts.0.weight" not in found[1]["gram"].maps
    first, second = (model.state_dict() for model in models)
    merged = regmean(Ingredients([first, second], (0.5, 0.5), None, found, None, None, 0))
    for name in first:
        mean = (first[name] + second[name]) / 2
        assert torch.allclose(merged[name], mean, atol=1e-6) == (name not in {"head.weight", "head.bias"})
