"""RegMean: the map whose outputs are nearest to those of the models' own maps on their own inputs."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fusionlab.errors import InputError
from fusionlab.merging import merge_states
from fusionlab.merging.regmean import solve_symmetric
from fusionlab.statistics import Grams
from tests.merging.least_squares import IN, MAPS, State, grams_of, random_inputs, random_state
from tests.merging.measured import measure
from tests.symmetry.models import generator, random_model, timm_model


def setting(rows: tuple[int, ...] = (40, 90, 25)) -> tuple[list[State], list[Tensor], list[dict[str, Grams]]]:
    states = [random_state(seed) for seed in range(len(rows))]
    inputs = [random_inputs(seed, count) for seed, count in enumerate(rows)]
    return states, inputs, [{"gram": grams_of(s, x)} for s, x in zip(states, inputs, strict=True)]


def loss(state: State, states: list[State], inputs: list[Tensor], weights: list[float]) -> float:
    """The weighted mean squared distance to the models' own outputs."""
    total = 0.0
    for own, x, weight in zip(states, inputs, weights, strict=True):
        written = [x @ (state["c.weight"] - own["c.weight"])]
        for name in "ad":
            moved = {part: state[f"{name}.{part}"] - own[f"{name}.{part}"] for part in ("weight", "bias")}
            written.append(x @ moved["weight"].mT + moved["bias"])
        total += weight / len(x) * sum(float(rows.square().sum()) for rows in written)
    return total


@pytest.mark.parametrize("weights", [[1 / 3, 1 / 3, 1 / 3], [0.6, 0.3, 0.1]])
def test_equals_plain_least_squares(weights: list[float]) -> None:
    """numpy's solution on the concatenated inputs with a column of ones, each row weighted, map by map; of both
    orientations, and of maps that are solved together."""
    states, inputs, statistics = setting()
    merged = merge_states(states, "regmean", weights, statistics=statistics, alpha=1.0, ridge=0.0)
    scales = [(weight / len(x)) ** 0.5 for weight, x in zip(weights, inputs, strict=True)]
    ones = [torch.cat((x, torch.ones(len(x), 1)), 1) for x in inputs]
    left = np.concatenate([s * x.numpy() for s, x in zip(scales, ones, strict=True)])
    for name in "ad":
        weight, bias = f"{name}.weight", f"{name}.bias"
        right = np.concatenate(
            [s * (x @ m[weight].mT + m[bias]).numpy() for s, x, m in zip(scales, inputs, states, strict=True)]
        )
        expected = np.linalg.lstsq(left, right)[0]
        np.testing.assert_allclose(merged[weight].numpy(), expected[:-1].T, rtol=0, atol=1e-11)
        np.testing.assert_allclose(merged[bias].numpy(), expected[-1], rtol=0, atol=1e-11)
    right = np.concatenate([s * (x @ m["c.weight"]).numpy() for s, x, m in zip(scales, inputs, states, strict=True)])
    expected = np.linalg.lstsq(left[:, :-1], right)[0]
    np.testing.assert_allclose(merged["c.weight"].numpy(), expected, rtol=0, atol=1e-11)
    assert torch.equal(merged["gain"], merge_states(states, "simple", weights)["gain"])


@pytest.mark.parametrize("seed", range(5))
def test_never_a_larger_loss(seed: int) -> None:
    """Than any model's, their mean's, or that of the result moved a little."""
    rows = (10 + 7 * seed, 60, 30)
    states, inputs, statistics = setting(rows)
    weights = [0.2, 0.5, 0.3]
    merged = merge_states(states, "regmean", weights, statistics=statistics, alpha=1.0, ridge=0.0)
    least = loss(merged, states, inputs, weights)
    for other in (*states, merge_states(states, "simple", weights)):
        assert least < loss(other, states, inputs, weights)
    moved = {n: t + 1e-3 * torch.randn(t.shape, generator=generator(seed)) for n, t in merged.items()}
    assert least < loss(moved, states, inputs, weights)


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("ridge", [0.0, 0.1])
def test_equal_matrices_give_the_plain_mean(alpha: float, ridge: float) -> None:
    """Where all models read the same there is nothing to weigh; sums and means agree as well."""
    states = [random_state(seed) for seed in range(3)]
    statistics = [{"gram": grams_of(state, random_inputs(0))} for state in states]
    for normalize in (True, False):
        merged = merge_states(states, "regmean", statistics=statistics, alpha=alpha, ridge=ridge, normalize=normalize)
        for name, tensor in merge_states(states).items():
            torch.testing.assert_close(merged[name], tensor, rtol=0, atol=1e-12)


def test_diagonal_matrices() -> None:
    """At alpha 0 every coordinate is a mean weighted by its second moments, and the bias a plain one."""
    states, inputs, statistics = setting()
    merged = merge_states(states, "regmean", statistics=statistics, alpha=0.0, ridge=0.0)
    moments = torch.stack([x.square().mean(0) for x in inputs])
    expected = sum(m * s["a.weight"] for m, s in zip(moments, states, strict=True)) / moments.sum(0)
    torch.testing.assert_close(merged["a.weight"], expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(merged["a.bias"], merge_states(states)["a.bias"], rtol=0, atol=1e-12)


def test_alpha_scales_what_is_off_the_diagonal() -> None:
    """The normal equations of matrices whose off-diagonal is halved entry by entry, the column of ones too."""
    states, inputs, statistics = setting()
    weights = [0.6, 0.3, 0.1]
    merged = merge_states(states, "regmean", weights, statistics=statistics, alpha=0.5, ridge=0.0)
    scaled = []
    for x in inputs:
        rows = np.concatenate((x.numpy(), np.ones((len(x), 1))), 1)
        scaled.append(np.where(np.eye(IN + 1, dtype=bool), 1, 0.5) * (rows.T @ rows) / len(rows))
    for name in "ad":
        maps = [torch.cat((s[f"{name}.weight"], s[f"{name}.bias"][:, None]), 1).mT.numpy() for s in states]
        right = sum(w * g @ b for w, g, b in zip(weights, scaled, maps, strict=True))
        expected = np.linalg.solve(sum(w * g for w, g in zip(weights, scaled, strict=True)), right)
        np.testing.assert_allclose(merged[f"{name}.weight"].numpy(), expected[:-1].T, rtol=0, atol=1e-11)
        np.testing.assert_allclose(merged[f"{name}.bias"].numpy(), expected[-1], rtol=0, atol=1e-11)
    inner = [gram[:-1, :-1] for gram in scaled]
    right = sum(w * g @ s["c.weight"].numpy() for w, g, s in zip(weights, inner, states, strict=True))
    expected = np.linalg.solve(sum(w * g for w, g in zip(weights, inner, strict=True)), right)
    np.testing.assert_allclose(merged["c.weight"].numpy(), expected, rtol=0, atol=1e-11)


def test_ridge_leads_to_the_mean() -> None:
    """The further the larger it is, relative to the matrices' size: inputs ten times as large change nothing."""
    states, inputs, statistics = setting()
    mean = merge_states(states)["c.weight"]
    distances = []
    for ridge in (0.0, 0.1, 10.0, 1e9):
        merged = merge_states(states, "regmean", statistics=statistics, alpha=1.0, ridge=ridge)["c.weight"]
        distances.append(float((merged - mean).norm()))
        scaled = [{"gram": grams_of(s, 10 * x)} for s, x in zip(states, inputs, strict=True)]
        again = merge_states(states, "regmean", statistics=scaled, alpha=1.0, ridge=ridge)["c.weight"]
        torch.testing.assert_close(again, merged, rtol=0, atol=1e-10)
    assert distances == sorted(distances, reverse=True)
    assert distances[-1] < 1e-8
    assert distances[0] > 0.1


@pytest.mark.parametrize("ridge", [0.0, 1e-6])
@pytest.mark.parametrize("rows", [0, 2])
def test_directions_without_data_get_the_mean(ridge: float, rows: int) -> None:
    """Singular matrices: what no row reaches is the plain mean, not zero and not infinite."""
    states = [random_state(seed) for seed in range(2)]
    inputs = [random_inputs(seed, rows) for seed in range(2)]
    for x in inputs:
        x[:, 4:] = 0
    statistics = [{"gram": grams_of(s, x)} for s, x in zip(states, inputs, strict=True)]
    merged = merge_states(states, "regmean", statistics=statistics, alpha=1.0, ridge=ridge)
    mean = merge_states(states)
    torch.testing.assert_close(merged["a.weight"][:, 4:], mean["a.weight"][:, 4:], rtol=0, atol=1e-9)
    assert all(bool(torch.isfinite(tensor).all()) for tensor in merged.values())
    if rows:
        assert loss(merged, states, inputs, [0.5, 0.5]) < loss(mean, states, inputs, [0.5, 0.5])
        spanned = torch.cat((torch.cat(inputs), torch.ones(2 * rows, 1)), 1)
        change = torch.cat((merged["a.weight"] - mean["a.weight"], (merged["a.bias"] - mean["a.bias"])[:, None]), 1)
        outside = change @ (torch.eye(IN + 1) - torch.linalg.pinv(spanned) @ spanned)
        assert float(outside.norm()) < 1e-8 * float(change.norm())
    else:
        torch.testing.assert_close(merged["a.weight"], mean["a.weight"], rtol=0, atol=1e-14)


@pytest.mark.parametrize("rest", [0.0, 1e-15, 1e-13])
def test_nearly_singular_matrices_have_the_solution_of_least_norm(rest: float) -> None:
    """Also where a Cholesky decomposition goes through, on a pivot that is nothing but rounding."""
    gram = torch.tensor([[1.0, 1.0], [1.0, 1.0 + rest]], dtype=torch.float64)
    found = solve_symmetric(gram, torch.ones(2, 1, dtype=torch.float64))
    torch.testing.assert_close(found, torch.full((2, 1), 0.5, dtype=torch.float64), rtol=0, atol=1e-3)


def test_size_of_the_data() -> None:
    """More rows of the same change nothing with means, and count more with sums."""
    states, inputs, statistics = setting((40, 40, 40))
    longer = [{"gram": grams_of(states[0], inputs[0].repeat(3, 1))}, *statistics[1:]]
    for normalize, same in ((True, True), (False, False)):
        merged, other = (
            merge_states(states, "regmean", statistics=given, normalize=normalize)["a.weight"]
            for given in (statistics, longer)
        )
        assert torch.allclose(merged, other, rtol=0, atol=1e-12) == same
    sums = merge_states(states, "regmean", statistics=longer, normalize=False, ridge=0.0)["a.weight"]
    weighted = merge_states(states, "regmean", [3, 1, 1], statistics=statistics, ridge=0.0)["a.weight"]
    torch.testing.assert_close(sums, weighted, rtol=0, atol=1e-11)


def test_stale_statistics_are_refused() -> None:
    """Matrices of the models as they were before are of no use after a step."""
    states, _, statistics = setting()
    changed = [{**states[0], "gain": states[0]["gain"] + 1}, *states[1:]]
    with pytest.raises(InputError, match="measured on another model, or on model 0 in another basis"):
        merge_states(changed, "regmean", statistics=statistics)
    with pytest.raises(InputError, match="needs Gram matrices"):
        merge_states(states, "regmean")
    other = replace(statistics[0]["gram"], maps={"a.weight": MAPS["a.weight"]})
    with pytest.raises(InputError, match="different linear maps"):
        merge_states(states, "regmean", statistics=[{"gram": other}, *statistics[1:]])


def test_hyperparameters_out_of_range() -> None:
    """Refused by name."""
    states, _, statistics = setting()
    for name, value in (("alpha", 1.5), ("alpha", float("nan")), ("ridge", -1.0), ("ridge", float("nan"))):
        with pytest.raises(InputError, match=f"{name} is"):
            merge_states(states, "regmean", statistics=statistics, **{name: value})


@pytest.mark.parametrize("build", ["vit-classifier", "timm"])
def test_layers_of_a_real_model(build: str) -> None:
    """On a real class, patch convolution and fused projection included, no layer has a larger regression loss."""
    models: list[nn.Module] = [
        timm_model("vit_tiny_patch16_224").double().eval() if build == "timm" else random_model(build, seed)
        for seed in range(2)
    ]
    states = [model.state_dict() for model in models]
    measured = [measure(model, "gram", seed=seed) for seed, model in enumerate(models)]
    merged = merge_states(states, "regmean", statistics=measured, alpha=1.0, ridge=0.0)
    mean = merge_states(states)
    grams = [found["gram"] for found in measured]
    assert any(states[0][name].ndim == 4 for name in grams[0].maps), "the patch convolution is a linear map"

    def layer_loss(state: State, weight: str) -> float:
        total = 0.0
        for own, gram in zip(states, grams, strict=True):
            difference = (state[weight] - own[weight]).flatten(1)
            bias = gram.maps[weight].bias
            difference = torch.cat((difference, (state[bias] - own[bias])[:, None]), 1)
            total += float((difference @ gram.mean(weight) * difference).sum())
        return total

    for weight in grams[0].maps:
        least = layer_loss(merged, weight)
        for other in (*states, mean):
            assert least <= layer_loss(other, weight) * (1 + 1e-9), weight
        assert least < 0.999 * layer_loss(mean, weight), weight
