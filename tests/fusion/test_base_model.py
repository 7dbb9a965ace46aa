"""Methods that are given a base model use it in the twins' basis, whatever brought them there."""

import copy
import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM

import fusionlab
from fusionlab.errors import InputError
from fusionlab.evaluation.distance import parameter_distance
from fusionlab.experiment import base_note
from fusionlab.fusion import Fuser, FusionPlan
from fusionlab.inputs import Inputs
from fusionlab.matching.align import gauged
from fusionlab.matching.recipe import RECIPES, recipe
from fusionlab.models import with_state
from fusionlab.stages import run
from fusionlab.symmetry import Alignment, blueprint
from tests.commands.small import bert, random_logits, randomized, vit
from tests.parts import one_in
from tests.symmetry.scramble import scrambled

# The base has no part in a sum of task vectors whose factors sum to 1.
HYPERPARAMETERS: dict[str, dict[str, Any]] = {
    "ties": {"density": 0.5},
    "dare": {"density": 0.5, "lambda_": 0.5},
    "task_arithmetic": {"lambda_": 0.5},
    "stock": {},
    "iso_c": {"lambda_": 0.5},
}
# One of each kind: by number, by parameter, by matrix. All others are given the base by the same lines of code.
BASED = list(HYPERPARAMETERS)


# What takes steps is asked for so few and small ones that it stays where it starts.
QUICK: dict[str, dict[str, Any]] = {"learned": {"steps": 1, "learning_rate": 1e-15}, "paper": {"rescale": "off"}}


def llama(seed: int) -> LlamaForCausalLM:
    """A small Llama with grouped queries, its norms' gains far from one."""
    config = LlamaConfig(
        vocab_size=29, hidden_size=16, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        intermediate_size=24, max_position_embeddings=20, tie_word_embeddings=False,
    )  # fmt: skip
    model = LlamaForCausalLM(config)
    randomized(model, seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name:
                parameter.mul_(0.2)
    return model


MAKERS: dict[str, Callable[[int], nn.Module]] = {"vit": vit, "bert": bert, "llama": llama}


def family(kind: str, seed: int = 0) -> tuple[list[nn.Module], nn.Module]:
    """Three end models and their base in float64, whose best alignment is known: none.

    Every parameter of an end model is a positive multiple of the base's. What is correlated with it is then symmetric
    and positive, so no rotation or permutation brings it nearer. Biases are 0, which folding would mix with weights.
    """
    base = MAKERS[kind](seed).double()
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in base.named_parameters():
            if name.endswith("bias"):
                parameter.zero_()
    ends = []
    for _ in range(3):
        end = copy.deepcopy(base)
        with torch.no_grad():
            for parameter in end.parameters():
                parameter.mul_(1 + 0.3 * torch.rand((), generator=draw, dtype=torch.float64))
        ends.append(end)
    return ends, base


def tuned(kind: str, seed: int = 0) -> tuple[list[nn.Module], nn.Module]:
    """Two fine-tunes of one base: every parameter changed by a few percent."""
    base = MAKERS[kind](seed).double()
    draw = torch.Generator().manual_seed(seed)
    ends = []
    for _ in range(2):
        end = copy.deepcopy(base)
        with torch.no_grad():
            for parameter in end.parameters():
                noise = torch.randn(parameter.shape, generator=draw, dtype=torch.float64)
                parameter.add_(0.03 * parameter.std(correction=0) * noise)
        ends.append(end)
    return ends, base


def apart(first: nn.Module, second: nn.Module) -> float:
    """Largest difference of logits in float64, relative to the largest logit."""
    left, right = random_logits(first), random_logits(second)
    return float((left - right).abs().max() / right.abs().max())


def images() -> list[dict[str, Tensor]]:
    return [{"pixel_values": torch.randn(6, 1, 8, 8, generator=torch.Generator().manual_seed(1))}]


def gauge_of(model: nn.Module, preset: str) -> Alignment:
    """What brings a model into the preset's gauge, and no nearer to any other."""
    _, (gauge,) = gauged([model.state_dict()], blueprint(model), recipe(preset).options)
    return gauge


@pytest.mark.parametrize(
    ("preset", "kind", "method"),
    one_in(4, [
        *(("weights", "vit", method) for method in BASED),
        # The base is brought into a gauge before any method sees it: one method shows that, whatever the gauge.
        *((preset, "vit", BASED[place % 2]) for place, preset in enumerate(RECIPES) if preset != "weights"),
        ("weights", "llama", BASED[2]), ("weights", "bert", BASED[3]), ("paper", "llama", BASED[3]),
    ]),
)  # fmt: skip
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_merge_of_twins_is_the_moved_merge(preset: str, kind: str, method: str) -> None:
    """Models hidden behind random alignments merge into what models and base in the gauge give without matching."""
    ends, base = family(kind)
    wanted = fusionlab.merge(
        [gauge_of(end, preset).apply(end) for end in ends],
        method,
        base=gauge_of(ends[0], preset).apply(base),
        seed=3,
        **HYPERPARAMETERS[method],
    )
    given = list(ends)
    if preset == "weights":
        hidden = [scrambled(end.state_dict(), blueprint(end), 5 + index) for index, end in enumerate(ends[1:])]
        given[1:] = [with_state(end, state) for end, state in zip(ends[1:], hidden, strict=True)]
        assert parameter_distance(given[1].state_dict(), ends[1].state_dict()) > 3
    merged = fusionlab.fuse(
        given,
        preset,
        method,
        base=base,
        data=images() if recipe(preset).needs_inputs else None,
        options=QUICK.get(preset),
        seed=3,
        **HYPERPARAMETERS[method],
    )
    # Activations are gathered in float32.
    assert apart(merged, wanted) < (1e-5 if recipe(preset).needs_inputs else 1e-7)
    if recipe(preset).gauge:
        # The base as it comes is no part of this basis and gives something else.
        twins = fusionlab.align(ends, preset=preset, data=images() if kind == "vit" else None, **QUICK.get(preset, {}))
        raw = fusionlab.merge(twins, method, base=base, seed=3, **HYPERPARAMETERS[method])
        assert apart(raw, wanted) > 1e-3


@pytest.mark.parametrize("method", one_in(5, BASED))
def test_the_anchor_may_be_any_model(method: str) -> None:
    """Moved by a permutation, the anchor takes base and merge with it: the merge computes the same function."""
    ends, base = family("vit")
    # A density below 1 draws or breaks ties by place, which a permutation changes.
    options = {name: 1.0 if name == "density" else value for name, value in HYPERPARAMETERS[method].items()}
    wanted = fusionlab.fuse(ends, "weights", method, anchor=2, base=base, **options)
    description = blueprint(base)
    order = next(name for name, space in description.spaces.items() if space.role == "ffn")
    element = {order: torch.randperm(32, generator=torch.Generator().manual_seed(2))}
    moved = [Alignment(description, element).apply(model) for model in (ends[2], base)]
    merged = fusionlab.fuse([*ends[:2], moved[0]], "weights", method, anchor=2, base=moved[1], **options)
    # Polar factors of nearly singular sums amplify rounding.
    assert apart(merged, wanted) < (1e-5 if method == "iso_c" else 1e-7)
    stale = fusionlab.fuse([*ends[:2], moved[0]], "weights", method, anchor=2, base=base, **options)
    assert apart(stale, wanted) > 1e-4


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("gauge", ["folded,biases", "folded,biases,balanced"])
def test_task_vectors_are_as_long_as_in_the_gauge(kind: str, gauge: str) -> None:
    """Rotations and permutations keep lengths; balancing heads scales them, within a few percent of fine-tunes."""
    ends, base = tuned(kind)
    matching = recipe("weights", gauge=gauge)
    plan = FusionPlan({"mine": matching}, {"ties": {}}, anchor=1)
    fuser = Fuser({"a": ends[0], "b": ends[1]}, plan, base=base)
    run(fuser.match("mine"))
    assert fuser.base is not None
    lengths = fuser.base.task_lengths("mine")
    twins = fuser.fused.matched["mine"].twins
    for end, twin, (given, moved) in zip(ends, twins, lengths, strict=True):
        assert given == pytest.approx(parameter_distance(end.state_dict(), base.state_dict()))
        alone = [fusionlab.canonical(model, gauge.split(",")).state_dict() for model in (end, base)]
        # The anchor's is folded and then only rotated; heads of the base are balanced by the anchor's element.
        exact = "balanced" not in gauge and end is ends[1]
        assert moved == pytest.approx(parameter_distance(*alone), rel=1e-9 if exact else 0.2)
        if kind != "bert":
            assert parameter_distance(twin.state_dict(), base.state_dict()) > 3 * moved
    note = base_note(fuser.base, "mine")
    assert note.startswith("mine: the base model was brought into the basis of the matched models")
    assert f"{lengths[0][1]:.3g}"[:3] in note


@pytest.mark.parametrize(("kind", "method"), one_in(2, itertools.product(MAKERS, BASED)))
def test_fine_tunes_merge_much_as_without_matching(kind: str, method: str) -> None:
    """The task vectors are fine-tuning's and not the gauge's, which would be several times as long."""
    ends, base = tuned(kind)
    given = {"base": base, "seed": 0, **HYPERPARAMETERS[method]}
    unmatched = fusionlab.merge(ends, method, **given)
    step = apart(ends[0], base)
    assert 0.01 < step < 0.5
    assert apart(fusionlab.fuse(ends, "weights", method, **given), unmatched) < 1.5 * step


@pytest.mark.parametrize("method", BASED)
def test_the_fuser_merges_as_the_python_call(method: str) -> None:
    """Unmatched with the base as it comes, matched with the base moved."""
    ends, base = tuned("llama")
    models = {"a": ends[0], "b": ends[1]}
    plan = FusionPlan({"weights": recipe("weights")}, {method: HYPERPARAMETERS[method]}, anchor=1)
    fuser = Fuser(models, plan, base=base)
    for matching, preset in (("none", "none"), ("weights", "weights")):
        wanted = fusionlab.fuse(ends, preset, method, anchor=1, base=base, **HYPERPARAMETERS[method])
        assert apart(run(fuser.merge(method, matching)).model, wanted) < 1e-9


def test_a_base_of_another_architecture_is_refused() -> None:
    ends = {"a": vit(0), "b": vit(1)}
    with pytest.raises(InputError, match="in the base model; expected shape"):
        Fuser(ends, FusionPlan({"paper": recipe("paper")}, {"ties": {}}), base=vit(2, intermediate_size=40))
    with pytest.raises(InputError, match="the base model is a BertForSequenceClassification"):
        fusionlab.fuse(list(ends.values()), "paper", "ties", base=bert(0))


def test_distances_before_and_after_are_in_one_gauge() -> None:
    """What folding and balancing change is not matching's effect: matched to itself, a model in its gauge stays."""
    model = llama(0)
    state = model.state_dict()
    # The same function as the first, its gains moved into other places: the whole raw distance is the gauge's.
    twin = with_state(model, scrambled_gains(model))
    plan = FusionPlan({"weights": recipe("weights"), "paper": recipe("paper")})
    fuser = Fuser({"a": model, "b": twin}, plan)
    run(fuser.match("weights"))
    run(fuser.match("paper"))
    raw = parameter_distance(state, twin.state_dict())
    assert raw > 1
    parts = {m: [d for d in fuser.fused.distances if d.matching == m] for m in ("weights", "paper")}
    given, before, after = (
        sum(getattr(d, kind) ** 2 for d in parts["weights"]) ** 0.5 for kind in ("given", "before", "after")
    )
    assert given == pytest.approx(raw, rel=1e-5)
    assert before < 1e-3 * raw
    assert after < 1e-3 * raw
    assert all(d.as_given is None for d in parts["paper"])
    assert sum(d.before**2 for d in parts["paper"]) ** 0.5 == pytest.approx(raw, rel=1e-5)


def scrambled_gains(model: nn.Module) -> dict[str, Tensor]:
    """Every gain made three times as large and what reads it a third: the function is the same."""
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    for norm in blueprint(model).norms:
        state[norm.weight] *= 3
        for reader in norm.readers:
            state[reader.weight] /= 3
    return state


def test_inputs_of_merges_are_not_modified() -> None:
    """The base keeps every bit."""
    ends, base = tuned("vit")
    before = copy.deepcopy(base.state_dict())
    fusionlab.fuse(ends, "weights", "ties", base=base, data=Inputs.from_batches(images(), 2))
    assert all(torch.equal(before[name], tensor) for name, tensor in base.state_dict().items())
