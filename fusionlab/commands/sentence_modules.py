"""The modules beside the transformers of sentence-transformers folders: their weights are merged too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from safetensors.torch import save
from torch import Tensor

from fusionlab.checkpoints.files import PICKLE, SAFETENSORS
from fusionlab.checkpoints.hub import locate
from fusionlab.checkpoints.sentence_modules import MODULES, WITH_WEIGHTS, SentenceModule, sentence_modules
from fusionlab.commands.merging_options import Located
from fusionlab.dtypes import Types, in_type, widest
from fusionlab.errors import InputError
from fusionlab.merge_weights import merge_weights
from fusionlab.merging import find_method, merge_states
from fusionlab.streaming import Recipe

TYPE_CHECKING = False  # merging files does without what fusion imports
if TYPE_CHECKING:
    from fusionlab.fusion import FusionPlan


def merged_modules(
    found: Mapping[str, Located], recipe: Recipe, base: str | None
) -> tuple[dict[str, bytes | None], list[str]]:
    """The weight files of the modules of a merge, by path in its folder, and what is to be known of them.

    Weights are merged by the method where it goes by parameters. Others look at statistics, at layers or at the model's
    output, which these modules have no part in: their mean is taken then.

    Args:
        found: the end models; nothing is merged if they are of another kind.
        recipe: how they are merged.
        base: the base model, if there is one.

    Raises:
        InputError: modules that differ, in their order, kinds, configs or shapes, or that a model lacks, or whose
            weights it lacks.
    """
    of_all = {name: sentence_modules(model.location) for name, model in found.items()}
    for name, modules in of_all.items():
        _refuse_weightless(name, modules or ())
    first = next(iter(of_all.values()))
    if first is None or not any(module.file for module in first):
        if all(modules is not None for modules in of_all.values()):
            _refuse_other(of_all)
        return {}, []
    _refuse_other(of_all)
    method, values = recipe.method, recipe.hyperparameters
    needs = method.requires(**values)
    by_method = method.unit != "model" and set(needs) <= {"base"}
    bases = _modules_of_base(base, first) if by_method and needs else None
    files: dict[str, bytes | None] = {}
    for place, module in enumerate(first):
        if module.file is None:
            continue
        states = [modules[place].weights() for modules in of_all.values() if modules is not None]
        # What is said of parameters by patterns of names is said of the transformer's.
        plain = {name: value for name, value in values.items() if not isinstance(value, Mapping)}
        of_base = None if bases is None else bases[place].weights()
        types = {name: widest(state[name].dtype for state in states) for name in states[0]}
        asked = {name: recipe.dtype or own if own.is_floating_point else own for name, own in types.items()}
        # In the type of the merge from the start, as a method would round each model's numbers to its own.
        wide = {name: widest([own, asked[name]]) for name, own in types.items()}
        states = [_in_types(state, wide) for state in states]
        if by_method:
            merged = merge_states(states, method.name, recipe.weights, base=of_base, seed=recipe.seed, **plain)
        else:
            merged = merge_states(states, "simple", recipe.weights)
        files[f"{module.folder}/{SAFETENSORS}"] = save(_in_types(merged, asked))
        files[f"{module.folder}/{PICKLE}"] = None
    names = ", ".join(module.folder for module in first if module.file is not None)
    words = f"by {method.name}" if by_method else f"as their mean, since {method.name} is of transformers"
    return files, [f"Weights of the modules beside the transformers ({names}) were merged {words}."]


def modules_of_fusion(
    found: Mapping[str, Located], plan: FusionPlan, base: str | None
) -> tuple[dict[str, bytes | None], list[str]]:
    """The same for the merge that a fusion keeps; nothing where each model keeps what lies behind its body.

    Args:
        found: the end models.
        plan: of the fusion.
        base: the base model, if there is one.
    """
    if plan.heads == "own":
        return {}, []
    method, values = next(iter(plan.methods.items()))
    weights = merge_weights(plan.weights, len(found))
    return merged_modules(found, Recipe(find_method(method), values, weights, plan.seed, plan.dtype), base)


def _refuse_weightless(name: str, modules: Sequence[SentenceModule]) -> None:
    """Refuse a model whose folder lacks the weights of a module that always has some."""
    for module in modules:
        if module.file is None and module.kind in WITH_WEIGHTS:
            raise InputError(
                f"the module {module.folder} of {name} is a {module.kind} without weights; expected {SAFETENSORS} or "
                f"{PICKLE} in {module.folder}"
            )


def _refuse_other(of_all: Mapping[str, Sequence[SentenceModule] | None]) -> None:
    """Refuse models whose modules are not the first one's."""
    (first_name, first), *others = of_all.items()
    assert first is not None
    for name, modules in others:
        if modules is None:
            raise InputError(
                f"{first_name} is a sentence-transformers folder, but {name} has no {MODULES}; expected one in each"
            )
        if len(modules) != len(first):
            raise InputError(
                f"{name} has {len(modules)} modules beside its transformer, but {first_name} has {len(first)}; "
                f"expected the same ones ({MODULES})"
            )
        for own, other in zip(first, modules, strict=True):
            if not own.does_as(other):
                raise InputError(
                    f"the module {other.folder} of {name} is another than {own.folder} of {first_name} (kind, "
                    f"config.json or weights); expected models that make one embedding in one way"
                )


def _modules_of_base(base: str | None, first: Sequence[SentenceModule]) -> list[SentenceModule]:
    place = None if base is None else locate(base)
    modules = None if place is None else sentence_modules(place)
    if modules is None or [one.file is None for one in modules] != [one.file is None for one in first]:
        raise InputError(
            f"the base model {base} has not the modules of the end models ({MODULES}); expected a "
            f"sentence-transformers folder, or a method that needs no base model"
        )
    return modules


def _in_types(state: Mapping[str, Tensor], types: Types) -> dict[str, Tensor]:
    return {name: in_type(name, tensor, types[name]).contiguous() for name, tensor in state.items()}
