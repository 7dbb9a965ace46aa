"""RegMean++ (Nguyen et al., "RegMean++: enhancing effectiveness and generalization of regression mean", 2025)."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial

import torch
from torch import Tensor, nn

from fusionlab.errors import InputError
from fusionlab.merging.ingredients import Ingredients
from fusionlab.merging.layers import Walk, blocks, without_cache
from fusionlab.merging.registry import merge_method
from fusionlab.merging.regmean import refuse_settings, shared_maps, solve_maps
from fusionlab.statistics import Grams
from fusionlab.statistics.exploring import explore
from fusionlab.statistics.gram import GramAccumulator
from fusionlab.statistics.linear_maps import LinearMaps, linear_maps
from fusionlab.statistics.watching import Observer
from fusionlab.types import Batch


# Each model, a copy that runs, its Gram matrices of a layer; the merge, the model that it is in, and maps in float64.
@merge_method("regmean_pp", needs=("inputs",), refuse=refuse_settings, holds=(5, 4))
def regmean_pp(
    ingredients: Ingredients, alpha: float = 0.9, ridge: float = 1e-6, normalize: bool = True
) -> dict[str, Tensor]:
    """RegMean whose layers are merged in order, each for what the merged layers before it give.

    A layer of each model is run on what the merge gives for that model's inputs up to there; the Gram matrices of what
    its linear maps read then are those of `regmean`. So every layer takes account of what merging did before it. What
    comes before the first layer reads the inputs themselves; what runs between two layers (a projector between two
    stacks), or behind the last one, their merged outputs. Each layer runs twice for each batch, as it is in the model
    and as it is in the merge: two passes over the data in all.

    Args:
        ingredients: models, weights, inputs of each model, and how a model is made of a state. Layers are the modules
            of the outermost lists of the model.
        alpha: see `regmean`, like what follows.
        ridge: see there.
        normalize: see there.

    Returns:
        The merged state, each tensor in the first model's dtype.

    Raises:
        InputError: no inputs, a model without layers in a list or with one that runs more than once, or integer buffers
            that differ between the models.
    """
    assert ingredients.model is not None
    models = [without_cache(ingredients.model(s, index).eval()) for index, s in enumerate(ingredients.states)]
    batches = [list(own) for own in ingredients.inputs]
    if not all(batches):
        raise InputError("regmean_pp was given no inputs of a model; expected at least one batch of each")
    merged = ingredients.averaged()
    merge = without_cache(ingredients.model(merged, 0).eval())
    paths = blocks(merge, batches[0][0])
    walks = [Walk(merge, paths, own) for own in batches]
    maps = [_explored(model, walk.batches[0]) for model, walk in zip(models, walks, strict=True)]
    inside = {path: {name for name in maps[0].weights if name.startswith(f"{path}.")} for path in paths}

    def solve(names: Collection[str], run: Callable[[Walk, nn.Module, int], None]) -> None:
        known = {name for name in names if name in merged}
        grams = [_grams(*one, known, run) for one in zip(models, walks, maps, strict=True)]
        solve_maps(merged, ingredients, grams, shared_maps(grams), alpha, ridge, normalize)
        merge.load_state_dict({name: merged.get(name, own) for name, own in merge.state_dict().items()})

    seen: set[str] = set()
    for path in paths:
        for walk in walks:
            walk.advance()
        ran = _up_to(models[0], walks[0]) - seen
        if between := ran & maps[0].weights.keys():
            solve(between, Walk.run_up_to)
        # Where a stream goes past the layers, what it starts from is the merge's too.
        if given := {name: merged[name] for name in ran if name in merged}:
            for model in models:
                model.load_state_dict({**model.state_dict(), **given})
        seen |= ran
        solve(inside[path], Walk.run_layer)
    for walk in walks:
        walk.advance()
    solve(set(maps[0].weights) - seen - set().union(*inside.values()), Walk.run_end)
    return merged


def _explored(model: nn.Module, batch: Batch) -> LinearMaps:
    """The linear maps of a model and how each reads its data."""
    maps = linear_maps(model)
    explore(model, maps, batch)
    return maps


def _up_to(model: nn.Module, walk: Walk) -> set[str]:
    """The parameters and buffers of all modules that run before the layer that was reached, outside of layers."""
    ran: set[str] = set()

    def note(path: str, module: nn.Module, *_: object) -> None:
        ran.update(f"{path}.{name}".removeprefix(".") for name in module.state_dict())

    leaves = [(path, module) for path, module in model.named_modules() if not list(module.children())]
    handles = [module.register_forward_hook(partial(note, path)) for path, module in leaves]
    try:
        with torch.no_grad():
            walk.run_up_to(model, 0)
    finally:
        for handle in handles:
            handle.remove()
    return ran


def _on(run: Callable[[Walk, nn.Module, int], None], walk: Walk, index: int, model: nn.Module, _: Batch) -> None:
    run(walk, model, index)


def _grams(
    model: nn.Module, walk: Walk, maps: LinearMaps, names: Collection[str], run: Callable[[Walk, nn.Module, int], None]
) -> Grams:
    """Gram matrices of some maps of a model while a part of it runs on all batches."""
    part, accumulator = maps.part(names), GramAccumulator()
    accumulator.start(part)
    observer = Observer(part, [accumulator])
    for index, batch in enumerate(walk.batches):
        observer.watch(model, batch, partial(_on, run, walk, index))
    common = {"architecture": type(model).__name__, "basis": "", "examples": len(walk.batches), "settings": {}}
    return accumulator.finish(accumulator.sums(), common)  # type: ignore[arg-type]
