"""Circuits merged in the metric of their inputs."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from fusionlab.merging import merge_states
from fusionlab.models import with_state
from fusionlab.statistics import Grams, LinearMap, basis_of
from fusionlab.statistics.gather import gather
from fusionlab.symmetry import blueprint
from tests.commands.small import vit
from tests.merging.circuits import products, rebased
from tests.merging.measured import measure
from tests.merging.test_circuit import small_gpt2
from tests.symmetry.models import generator, outputs, random_model, relative


def unit_grams(state: dict[str, Tensor], seed: int, rows: int = 200) -> Grams:
    """Gram matrices of random inputs, of very different size along the coordinates, for the small ViT."""
    draw = generator(seed)
    maps, matrices = {}, {}
    for name in state:
        if name.endswith("_proj.weight"):
            inputs = name.removesuffix(".weight")
            maps[name] = LinearMap(inputs, 1, f"{inputs}.bias")
            scales = torch.linspace(-2, 2, 24, dtype=torch.float64).exp()[torch.randperm(24, generator=draw)]
            x = torch.randn(rows, 24, generator=draw, dtype=torch.float64) * scales
            x = torch.cat((x, torch.ones(rows, 1, dtype=torch.float64)), 1)
            matrices[inputs] = x.mT @ x
    return Grams(
        architecture="vit",
        basis=basis_of(state),
        examples=rows,
        matrices=matrices,
        rows=dict.fromkeys(matrices, rows),
        maps=maps,
    )


@pytest.mark.parametrize("weights", [[0.5, 0.5], [0.25, 0.75]])
def test_metric_of_the_inputs(weights: list[float]) -> None:
    """In the metric of the mean Gram matrix the products are nearer to the mean product, and optimal."""
    description = blueprint(random_model("vit-classifier"))
    states = [random_model("vit-classifier", seed).state_dict() for seed in range(2)]
    grams = [unit_grams(state, seed) for seed, state in enumerate(states)]
    plain = merge_states(states, "circuit", weights, blueprint=description)
    given = [{"gram": gram} for gram in grams]
    tuned = merge_states(states, "circuit", weights, blueprint=description, statistics=given, metric="gram", ridge=1e-9)
    at = "vit.layers.0.attention"
    roots = {}
    for name in "qkv":
        gram = sum(w * g.mean(f"{at}.{name}_proj.weight") for w, g in zip(weights, grams, strict=True))
        values, vectors = torch.linalg.eigh(gram)
        roots[name] = vectors * values.sqrt() @ vectors.mT
    means = [weights[0] * a + weights[1] * b for a, b in zip(*map(products, states), strict=True)]
    metrics = [lambda c: roots["q"] @ c @ roots["k"], lambda c: roots["v"] @ c]
    for kind, metric in enumerate(metrics):
        best = math.sqrt(float(torch.linalg.svdvals(metric(means[kind]))[:, 8:].square().sum()))
        errors = [float(metric(products(merged)[kind] - means[kind]).norm()) for merged in (tuned, plain)]
        assert errors[0] == pytest.approx(best, rel=1e-6)
        assert errors[0] < 0.9 * errors[1]


@pytest.mark.parametrize("rows", [200, 10, 0])
def test_metric_keeps_a_twins_function(rows: int) -> None:
    """Nothing is truncated for a twin, so its function is kept in any metric, also one that knows few directions."""
    model = random_model("vit-classifier")
    description, state = blueprint(model), model.state_dict()
    states = [state, rebased(state, description, 1)]
    statistics = [{"gram": unit_grams(s, 3, rows)} for s in states]
    merged = merge_states(states, "circuit", [1, 3], blueprint=description, statistics=statistics, metric="gram")
    assert all(bool(torch.isfinite(tensor).all()) for tensor in merged.values())
    assert relative(outputs(with_state(model, merged)), outputs(model)) < 1e-9


def test_metric_of_a_fused_projection_that_reads_along_its_first_dimension() -> None:
    """GPT-2's weight of queries, keys and values has inputs first, and its bias no such dimension."""
    models = [small_gpt2(seed) for seed in range(2)]
    description, state = blueprint(models[0]), models[0].state_dict()
    words = [{"input_ids": torch.randint(31, (3, 9), generator=generator(seed))} for seed in range(2)]
    grams = gather(models[0], words, ("gram",))["gram"]
    twin = rebased(state, description, 1)
    moved = replace(grams, basis=basis_of(twin))
    given = {"blueprint": description, "statistics": [{"gram": grams}, {"gram": moved}], "metric": "gram"}
    merged = merge_states([state, twin], "circuit", **given)
    assert relative(outputs(with_state(models[0], merged)), outputs(models[0])) < 1e-9
    other = models[1].state_dict()
    given["statistics"] = [{"gram": grams}, {"gram": replace(grams, basis=basis_of(other))}]
    tuned, plain = (
        merge_states([state, other], "circuit", **given | {"metric": metric, "ridge": 1e-9})
        for metric in ("gram", "frobenius")
    )
    at = "transformer.h.0.attn.c_attn"
    values, vectors = torch.linalg.eigh(grams.mean(f"{at}.weight"))
    root = vectors * values.clamp_min(0).sqrt() @ vectors.mT

    def scores(found: dict[str, Tensor]) -> Tensor:
        both = torch.cat([found[f"{at}.weight"], found[f"{at}.bias"][None]])
        query, key, _ = (part.unflatten(1, (3, 8)).movedim(1, 0) for part in both.split(24, 1))
        return root @ query @ key.mT @ root

    errors = [float((scores(found) - (scores(state) + scores(other)) / 2).norm()) for found in (tuned, plain)]
    assert errors[0] < errors[1] * (1 - 1e-3)


def test_metric_of_maps_without_a_bias() -> None:
    """Their Gram matrices are taken without the column of ones; a twin's function is kept, and inputs count."""
    models = [vit(seed, qkv_bias=False).double().eval() for seed in range(2)]
    description = blueprint(models[0])
    states = [model.state_dict() for model in models]
    given = [measure(model, "gram", seed=seed) for seed, model in enumerate(models)]
    grams = [found["gram"] for found in given]
    assert any(linear.bias is None for gram in grams for linear in gram.maps.values())
    twin = rebased(states[0], description, 1)
    moved = replace(grams[0], basis=basis_of(twin))
    merged = merge_states(
        [states[0], twin], "circuit", blueprint=description, statistics=[given[0], {"gram": moved}], metric="gram"
    )
    assert relative(outputs(with_state(models[0], merged)), outputs(models[0])) < 1e-9
    options = {"blueprint": description, "statistics": given, "ridge": 1e-9}
    tuned, plain = (merge_states(states, "circuit", metric=metric, **options) for metric in ("gram", "frobenius"))
    at = "vit.layers.0.attention"
    gram = sum(0.5 * found.mean(f"{at}.v_proj.weight")[:-1, :-1] for found in grams)
    values, vectors = torch.linalg.eigh(gram)
    root = vectors * values.clamp_min(0).sqrt() @ vectors.mT
    heads = models[0].config.num_attention_heads
    errors = []
    for state in (tuned, plain):
        v, o = (
            [s[f"{at}.v_proj.weight"].unflatten(0, (heads, -1)) for s in (state, *states)],
            [s[f"{at}.o_proj.weight"].unflatten(1, (heads, -1)).movedim(0, -1) for s in (state, *states)],
        )
        found, *own = [a.mT @ b for a, b in zip(v, o, strict=True)]
        errors.append(float((root @ (found - sum(own) / 2)).norm()))
    assert errors[0] < errors[1] * (1 - 1e-3)
