"""The Python calls: modules in, new modules of the same class out, inputs never modified."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import fusionlab
from fusionlab import InputError
from tests.api.models import MAKERS, batches, copied, unchanged
from tests.commands.small import bert, vit

CALLS: dict[str, Callable[[nn.Module, nn.Module], Any]] = {
    "canonical": lambda a, b: [fusionlab.canonical(a), fusionlab.canonical(b)],
    "match": lambda a, b: [fusionlab.match(a, b).apply(a)],
    "align": lambda a, b: fusionlab.align([a, b], preset="weights"),
    "align none": lambda a, b: fusionlab.align([a, b], preset="none"),
    "merge": lambda a, b: [fusionlab.merge([a, b])],
    "fuse": lambda a, b: [fusionlab.fuse([a, b], "weights", options={"gauge": "balanced"})],
}


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("call", CALLS)
def test_inputs_stay_and_outputs_are_new(kind: str, call: str) -> None:
    """Inputs keep every bit, also when the outputs are written to; outputs are of their class, in eval mode."""
    a, b = MAKERS[kind](0), MAKERS[kind](1)
    before = copied(a), copied(b)
    for model in CALLS[call](a, b):
        assert type(model) is type(a)
        assert not any(module.training for module in model.modules())
        assert all(parameter.requires_grad for parameter in model.parameters())
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(1)
    assert unchanged(a, before[0])
    assert unchanged(b, before[1])


@pytest.mark.parametrize("call", ["match", "barrier"])
def test_calls_that_return_no_model_leave_inputs_alone(call: str) -> None:
    """Inputs keep every bit."""
    a, b = vit(0), vit(1)
    before = copied(a), copied(b)
    fusionlab.match(a, b) if call == "match" else fusionlab.barrier(a, b, batches(), 3)
    assert unchanged(a, before[0])
    assert unchanged(b, before[1])


REFUSED: dict[str, tuple[Callable[[nn.Module, nn.Module], Any], str]] = {
    "match space": (lambda a, b: fusionlab.match(a, b, spaces=["qk"]), "spaces names 'qk'; expected some of all"),
    "match layer": (lambda a, b: fusionlab.match(a, b, layers=[2]), "layers asks for '2'; expected layers from 0 to 1"),
    "match rescale": (lambda a, b: fusionlab.match(a, b, rescale="on"), "rescale is 'on'"),  # type: ignore[arg-type]
    "match data": (lambda a, b: fusionlab.match(a, b, data=[1]), "data holds a int; expected batches"),  # type: ignore[arg-type]
    "match other": (lambda a, b: fusionlab.match(a, bert()), "expected end models of one architecture"),
    "align preset": (lambda a, b: fusionlab.align([a, b], preset="learn"), "'learn' does not exist; expected one of"),
    "align steps": (lambda a, b: fusionlab.align([a, b], preset="weights", steps=3), "no option 'steps' .an option of"),
    "align option": (lambda a, b: fusionlab.align([a, b], space="ffn"), "no option 'space'; expected some of"),
    "align gauge": (lambda a, b: fusionlab.align([a, b], gauge="fold"), "gauge names 'fold'"),
    "align anchor": (lambda a, b: fusionlab.align([a, b], 2), "anchor is 2; expected 'nearest' or an index"),
    "align data": (lambda a, b: fusionlab.align([a, b], data=[1]), "data holds a int; expected batches"),  # type: ignore[list-item]
    "align precision": (
        lambda a, b: fusionlab.align([a, b], trainer={"precision": "16-true"}),
        "which rounds the models",
    ),
    "align trainer": (
        lambda a, b: fusionlab.align([a, b], preset="learned", steps=1, trainer={"precison": "32-true"}),
        "unexpected keyword argument 'precison'",
    ),
    "align accelerator": (
        lambda a, b: fusionlab.align([a, b], preset="learned", steps=1, trainer={"accelerator": "gpus"}),
        "accelerator",
    ),
    "align one": (lambda a, b: fusionlab.align([a]), "1 end model was given"),
    "merge method": (lambda a, b: fusionlab.merge([a, b], "fish"), "'fish' does not exist; expected one of"),
    "merge needs": (lambda a, b: fusionlab.merge([a, b], "fisher"), "'fisher' needs the Fisher information"),
    "merge hyperparameter": (lambda a, b: fusionlab.merge([a, b], floor=1), "no hyperparameter 'floor'"),
    "merge data": (lambda a, b: fusionlab.merge([a, b], "fisher", data=[1]), "data holds a int; expected"),  # type: ignore[list-item]
    "merge classes": (lambda a, b: fusionlab.merge([a, bert()]), "expected one class"),
    "merge one": (lambda a, b: fusionlab.merge([a]), "expected at least two"),
    "merge none": (lambda a, b: fusionlab.merge([]), "expected at least two"),
    "fuse option": (lambda a, b: fusionlab.fuse([a, b], options={"space": "ffn"}), "no option 'space'"),
    "fuse hyperparameter": (lambda a, b: fusionlab.fuse([a, b], alpha=1), "no hyperparameter 'alpha'"),
    "canonical gauge": (lambda a, b: fusionlab.canonical(a, ("fold",)), "gauge 'fold' does not exist"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_exist_is_refused(name: str) -> None:
    """One sentence that says what was given and what was expected."""
    call, message = REFUSED[name]
    with pytest.raises(InputError, match=message) as caught:
        call(vit(0), vit(1))
    assert "\n" not in str(caught.value)


def test_public_names() -> None:
    """All that is announced is there; nothing else is invented."""
    for name in fusionlab.__all__:
        assert getattr(fusionlab, name) is not None
        assert name in dir(fusionlab)
    with pytest.raises(AttributeError, match="nothing_like_it"):
        _ = fusionlab.nothing_like_it
