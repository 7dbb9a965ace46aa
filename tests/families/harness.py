"""What must hold for every architecture, in float64 on its real model classes: a property for each function."""

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fusionlab import checkpoints
from fusionlab.forward import logits
from fusionlab.matching.align import align_states, gauged
from fusionlab.matching.gauge import balance
from fusionlab.matching.options import MatchOptions
from fusionlab.matching.weights import match_weights, squared_distance
from fusionlab.symmetry import Alignment, Blueprint, blueprint
from fusionlab.symmetry.axes import chains
from fusionlab.symmetry.float64 import InFloat64
from fusionlab.symmetry.folding import fold
from fusionlab.symmetry.groups import Invertible, Orthogonal, Permutation, Rotary, Scale, Signs, random_orthogonal
from tests.symmetry.scramble import scrambled

EXACT = 1e-9
FLOAT32 = 1e-5


@dataclass(frozen=True)
class Case:
    """One model class of one architecture.

    Attributes:
        name: shown as the test's id.
        build: makes the model, small, with any initialisation.
        untouched: the parameters that no space touches, in order: the coverage report, literally.
        stored: whether it is a transformers model to be saved and read back.
        notes: a word of each reason that the blueprint must give for leaving a symmetry out.
        unread: the parameters with a basis that no output depends on, biases of keys apart: nothing can tell whether
            their axes are right.
    """

    name: str
    build: Callable[[], nn.Module]
    untouched: tuple[str, ...]
    stored: bool = True
    notes: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()


def random_model(case: Case, seed: int = 0) -> nn.Module:
    """The model in float64 and eval mode, every parameter random, so that biases, gains and scales all matter."""
    model = case.build().double().eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
            if parameter.ndim == 1:
                parameter.add_(0.5)
    return model


@lru_cache(maxsize=2)
def described(case: Case) -> tuple[nn.Module, Blueprint]:
    """A case's random model, which no check changes, and its blueprint; those of the last two cases are kept."""
    model = random_model(case)
    return model, blueprint(model)


def in_gauge(case: Case, folded: bool) -> tuple[nn.Module, Blueprint]:
    """The same, folded if asked for."""
    model, description = described(case)
    if folded:  # as far as the architecture can be
        description = description.after_folding or description
        model = with_state(model, fold(model.state_dict(), description))
    return model, description


def with_state(model: nn.Module, state: dict[str, Tensor]) -> nn.Module:
    twin = copy.deepcopy(model)
    twin.load_state_dict(state)
    return twin


def outputs(model: nn.Module, description: Blueprint, seed: int = 1) -> dict[str, Tensor]:
    """Everything a model returns on random inputs, flattened: ``logits``, ``hidden_states.0``, ``attentions.1``, ..."""
    return Observed(model).outputs(model.state_dict(), description, seed)


class Observed:
    """A model that returns all it computes, for any parameters; copied once, which takes longer than running it."""

    def __init__(self, model: nn.Module) -> None:
        self.model, self.eager = copy.deepcopy(model), copy.deepcopy(model)
        if hasattr(model, "main_input_name"):
            # Only the eager implementation returns attention maps.
            eager: Any = self.eager
            eager.set_attn_implementation("eager")

    @torch.no_grad()
    def outputs(self, state: dict[str, Tensor], description: Blueprint, seed: int = 1) -> dict[str, Tensor]:
        """What the model returns with these parameters on random inputs."""
        self.model.load_state_dict(state)
        generator = torch.Generator().manual_seed(seed)
        inputs = {i.name: i.random(2, generator) for i in description.inputs}
        if not hasattr(self.model, "main_input_name"):
            with InFloat64():
                return dict(named_tensors("output", self.model(*inputs.values())))
        self.eager.load_state_dict(state)
        with InFloat64():
            result = self.model(**inputs, output_hidden_states=True, return_dict=True)
        found = dict(item for name, value in result.items() for item in named_tensors(name, value))
        with InFloat64():
            result = self.eager(**inputs, output_attentions=True, return_dict=True)
        every = dict(item for name, value in result.items() for item in named_tensors(name, value))
        return found | {name: tensor for name, tensor in every.items() if "attentions" in name}


def named_tensors(name: str, value: Any) -> Iterator[tuple[str, Tensor]]:
    """Every tensor inside what a model returned, by the path to it."""
    if isinstance(value, Tensor):
        yield name, value
    elif hasattr(value, "items"):
        for key, part in value.items():
            yield from named_tensors(f"{name}.{key}", part)
    elif isinstance(value, tuple | list):
        for index, part in enumerate(value):
            yield from named_tensors(f"{name}.{index}", part)


def assert_same_outputs(model: nn.Module, twin: nn.Module, alignment: Alignment, tolerance: float = EXACT) -> None:
    """All outputs agree: those whose basis the alignment changes up to that change, all others as they are."""
    observed, description = Observed(model), alignment.blueprint
    before, after = (observed.outputs(one.state_dict(), description) for one in (model, twin))
    assert_same(before, after, alignment, tolerance)


def assert_same(
    before: dict[str, Tensor], after: dict[str, Tensor], alignment: Alignment, tolerance: float = EXACT
) -> None:
    """The same of outputs that are there already."""
    description = alignment.blueprint
    assert before.keys() == after.keys()
    assert before
    for name, tensor in before.items():
        axes = description.outputs.get(name) or description.outputs.get(name.rsplit(".", 1)[0])
        expected = tensor if axes is None else alignment.transform(tensor, axes)
        error = float((after[name] - expected).abs().max() / expected.abs().max().clamp_min(1e-30))
        allowed = max(tolerance, FLOAT32) if "attentions" in name else tolerance
        assert error <= allowed, f"{name} changed by {error:.1e}"


def check_random_alignment(case: Case, folded: bool) -> None:
    """A random element of every space's group leaves every output unchanged."""
    model, description = in_gauge(case, folded)
    alignment = Alignment.random(description, torch.Generator().manual_seed(2))
    twin = alignment.apply(model)
    state, after = model.state_dict(), twin.state_dict()
    moved = {name for name, tensor in state.items() if not torch.equal(tensor, after[name])}
    # Biases that folding has emptied are moved, but zero stays zero.
    touched = {name for name in description.touching(description.spaces) if bool(state[name].any())}
    assert moved == touched
    assert_same_outputs(model, twin, alignment)


def check_each_space(case: Case, folded: bool) -> None:
    """Every space alone leaves every output unchanged, and changes some parameter."""
    model, description = in_gauge(case, folded)
    whole = Alignment.random(description, torch.Generator().manual_seed(3))
    roles = {space.role: name for name, space in description.spaces.items()}
    observed, state = Observed(model), model.state_dict()
    before = observed.outputs(state, description)
    for name in roles.values():
        alignment = Alignment(description, {name: whole.elements[name]})
        assert_same(before, observed.outputs(alignment.apply(state), description), alignment)


def check_gauges(case: Case) -> None:
    """Folding and balancing change no output; after balancing a second time moves nothing."""
    model, _ = described(case)
    folded, description = in_gauge(case, folded=True)
    state = folded.state_dict()
    if description.norms or description.layer_scales:
        before, after = outputs(model, description), outputs(folded, description)
        for name in before:
            if name not in description.outputs and name.rsplit(".", 1)[0] not in description.outputs:
                scale = float(before[name].abs().max().clamp_min(1e-30))
                assert float((before[name] - after[name]).abs().max()) <= EXACT * scale, name
    balancing = balance(state, description)
    balanced = balancing.apply(folded)
    assert_same_outputs(folded, balanced, balancing)
    again = balance(balanced.state_dict(), description).apply(balanced.state_dict())
    assert squared_distance(again, balanced.state_dict()) < 1e-16 * max(
        1.0, squared_distance(again, {n: torch.zeros_like(t) for n, t in again.items()})
    )


def length_preserving(description: Blueprint, seed: int = 4) -> Alignment:
    """A random alignment of elements that keep lengths: what matching without rescaling can undo."""
    generator = torch.Generator().manual_seed(seed)
    elements = {}
    for name, space in description.spaces.items():
        element = space.group.random(space.copies, generator)
        if isinstance(space.group, Rotary):
            element = element / element.norm(dim=-1, keepdim=True)
        elif isinstance(space.group, Scale):
            element = element.sign()
        elif isinstance(space.group, Invertible) and not isinstance(space.group, Orthogonal):
            element = random_orthogonal(space.group.size, space.copies, generator)
        else:
            assert isinstance(space.group, Permutation | Orthogonal | Signs)
        elements[name] = element
    return Alignment(description, elements)


def check_planted_alignment_is_recovered(case: Case, folded: bool) -> None:
    """A model moved by a known alignment is brought back to distance zero."""
    model, description = in_gauge(case, folded)
    state = model.state_dict()
    planted = length_preserving(description).apply(state)
    found = match_weights(planted, state, description, MatchOptions(spaces=("all",), rescale="off"))
    start, end = squared_distance(planted, state), squared_distance(found.apply(planted), state)
    assert start > 1
    assert end < EXACT**2 * start


def check_hidden_model_is_found(case: Case, options: MatchOptions, seed: int = 0) -> None:
    """Preset ``weights`` brings a model and its twin in a random basis of every space together again."""
    model = random_model(case, seed)
    description, state = blueprint(model), model.state_dict()
    states = [state, scrambled(state, description, seed=seed + 6)]
    _, gauges = gauged(states, description, options)
    apart = [gauge.apply(x) for gauge, x in zip(gauges, states, strict=True)]
    met = [found.apply(x) for found, x in zip(align_states(states, description, options), states, strict=True)]
    before, after = (squared_distance(*pair) ** 0.5 for pair in (apart, met))
    assert before > 1
    assert after < EXACT * before, f"{after / before:.1e} of the distance is left"


def check_coverage(case: Case) -> None:
    """Of the parameters that no space touches all are listed, and what is left out is said."""
    _, description = described(case)
    assert set(description.untouched()) <= {*case.untouched, *case.unread}
    for word in case.notes:
        assert any(word in note for note in description.notes), f"no note mentions {word!r}: {description.notes}"


def check_layers(case: Case) -> None:
    """A space belongs to the layer that its name says, so that choosing layers chooses it; the others to none."""
    spaces = described(case)[1].spaces.values()
    assert spaces
    for space in spaces:
        _, _, rest = space.name.partition("layers.")
        assert space.layer == (int(rest.split(".")[0]) if rest else None), space.name


def check_elements(case: Case) -> None:
    """No element serves several blocks of which each could have its own: a head, a unit, a group of queries.

    Every space stands somewhere in a parameter inside of nothing that does not index it.
    """
    _, description = described(case)
    around: dict[str, list[set[str]]] = {}
    for axis in (axis for axes in description.parameters.values() for axis in axes):
        for *outer, name in filter(None, chains(axis)):
            around.setdefault(name, []).append(set(outer) - set(description.spaces[name].index))
    assert around
    assert [name for name, found in around.items() if set() not in found] == []


def check_saved_twin_loads(case: Case, folder: Path) -> None:
    """A twin written as a checkpoint loads as the same class and gives the same logits."""
    model, description = described(case)
    twin = Alignment.random(description, torch.Generator().manual_seed(5)).apply(model)
    checkpoints.save(twin, folder / "twin")
    loaded = checkpoints.load(folder / "twin")
    assert type(loaded) is type(model)
    generator = torch.Generator().manual_seed(1)
    inputs = {i.name: i.random(2, generator) for i in description.inputs}
    with torch.no_grad():
        before, after = logits(twin, inputs), logits(loaded, inputs)
    # The loaded model may compute attention by another kernel.
    assert float((before - after).abs().max()) <= 1e-12 * float(before.abs().max())


def check_bfloat16(case: Case) -> None:
    """A bfloat16 model stays bfloat16, and every parameter of its twin is the exact one, rounded once."""
    model, description = described(case)
    model = copy.deepcopy(model).bfloat16()
    alignment = length_preserving(description)
    twin = alignment.apply(model).state_dict()
    exact = alignment.apply(copy.deepcopy(model).double().state_dict())
    for name, tensor in twin.items():
        if tensor.is_floating_point():
            assert tensor.dtype == torch.bfloat16
            # One rounding to 8 bits; float32 arithmetic before it may turn a tie.
            assert torch.allclose(tensor.double(), exact[name], rtol=2**-7.9, atol=1e-6), name
