"""Settings that a method refuses are refused before any work, by one function."""

from pathlib import Path
from typing import Any

import pytest
import torch

import fusionlab
from fusionlab.cli import main
from fusionlab.errors import InputError
from fusionlab.fusion import FusionModule
from fusionlab.merging import find_method, merge_states, methods
from tests.commands.small import vit
from tests.merging.near_base import fine_tunes

TIES: dict[str, dict[str, Any]] = {"consensus": {"combination": "ties"}}
# By method values out of range, with what the sentence begins with.
OUT_OF_RANGE: list[tuple[str, dict[str, Any], str]] = [
    ("adamerging", {"steps": -1}, "steps is -1"),
    ("adamerging", {"learning_rate": 0.0}, "learning_rate is 0.0"),
    ("ace", {"epsilon": 0.0}, "epsilon is 0.0"),
    ("knots", {"density": 1.5}, "density is 1.5"),
    ("breadcrumbs", {"density": 0.0}, "density is 0.0"),
    ("breadcrumbs", {"density": 0.95}, "gamma is 0.1"),
    ("circuit", {"ridge": 0.0}, "ridge is 0.0"),
    ("consensus", {"k": 3}, "k is 3"),
    ("consensus", {"k": -1}, "k is -1"),
    ("consensus", {"threshold": -0.1}, "threshold is -0.1"),
    ("consensus", {"combination": "ties", "density": 2.0}, "density is 2.0"),
    ("dare", {"density": 1.5}, "density is 1.5"),
    ("della", {"epsilon": 0.5}, "epsilon is 0.5"),
    ("fisher", {"floor": -1.0}, "floor is -1.0"),
    ("iso_cts", {"common": 1.1}, "common is 1.1"),
    ("karcher", {"iterations": 0}, "iterations is 0"),
    ("ot", {"regularization": 0.0}, "regularization is 0.0"),
    ("pcb", {"ratio": 0.0}, "ratio is 0.0"),
    ("regmean", {"alpha": 1.5}, "alpha is 1.5"),
    ("regmean", {"ridge": -1.0}, "ridge is -1.0"),
    ("regmean_pp", {"alpha": -0.5}, "alpha is -0.5"),
    ("sce", {"density": -0.1}, "density is -0.1"),
    ("slerp", {"t": 2.0}, "t is 2.0"),
    ("ties", {"density": 0.0}, "density is 0.0"),
    *(
        case
        for method in ("breadcrumbs", "consensus", "dare", "della", "knots", "ties")
        for case in (
            (method, {**TIES.get(method, {}), "density": [0.2, 1.5]}, "density of model 1 is 1.5"),
            (method, {**TIES.get(method, {}), "density": [0.5]}, r"density is \[0.5\]"),
            (method, {**TIES.get(method, {}), "density": []}, r"density is \[\]"),
        )
    ),
    ("wudi", {"steps": -1}, "steps is -1"),
    ("wudi", {"learning_rate": 0.0}, "learning_rate is 0.0"),
]


@pytest.mark.parametrize(("method", "given", "words"), OUT_OF_RANGE)
def test_out_of_range_is_refused_without_a_model(method: str, given: dict[str, Any], words: str) -> None:
    """By the method alone; a command knows no more before it reads a file."""
    with pytest.raises(InputError, match=f"^{words}; expected "):
        find_method(method).check([0.5, 0.5], given)
    find_method(method).check([0.5, 0.5], {})


def test_values_by_pattern_are_checked_where_names_are_known() -> None:
    """Also two that fit each other for some parameters only."""
    della, names = find_method("della"), ["a", "b"]
    given = {"density": {"a": 0.3, "b": 0.05}}
    della.check([0.5, 0.5], given)
    with pytest.raises(InputError, match=r"epsilon is 0\.07; expected .* below density \(0\.05\)"):
        della.check([0.5, 0.5], given, names)
    with pytest.raises(InputError, match="the pattern 'c', which matches no parameter"):
        della.check([0.5, 0.5], {"density": {"c": 0.5}}, names)
    with pytest.raises(InputError, match=r"the pattern 'b', which matches 'b'; that is tied to 'a'"):
        della.check([0.5, 0.5], {"density": {"b": 0.5}}, names, {"b": "a"})


def test_counts_of_models() -> None:
    """Another number of weights by parameter than models, too many models, too few with a weight."""
    with pytest.raises(InputError, match=r"layer_weights for 'a\*' has 1 numbers for 2 models"):
        find_method("simple").check([0.5, 0.5], {"layer_weights": {"a*": [1.0]}})
    with pytest.raises(InputError, match="slerp was given 3 models; expected exactly two"):
        find_method("slerp").check([1 / 3] * 3, {})
    with pytest.raises(InputError, match=r"slerp has t 0.5 and weights 0.9 and 0.1; expected one of them"):
        find_method("slerp").check([0.9, 0.1], {"t": 0.5})
    with pytest.raises(InputError, match="at least two weights above 0"):
        find_method("stock").check([1.0, 0.0], {})
    with pytest.raises(InputError, match="at least two weights above 0"):
        find_method("stock").check([0.5, 0.5], {"layer_weights": {"a": [0, 1]}}, ["a", "b"])


@pytest.mark.parametrize("method", methods())
def test_defaults_are_accepted(method: str) -> None:
    """For two models."""
    find_method(method).check([0.5, 0.5], {}, ["a", "b"])


def test_every_way_to_merge_asks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """States, models in Python, a Lightning module, and the commands, which have read nothing then."""
    base, states = fine_tunes(2)
    words = "density is 1.5; expected a number above 0, at most 1"
    with pytest.raises(InputError, match=words):
        merge_states(states, "dare", base=base, density=1.5)
    models = [vit(seed) for seed in range(3)]
    with pytest.raises(InputError, match=words):
        fusionlab.merge(models[:2], "dare", base=models[2], density=1.5)
    with pytest.raises(InputError, match=words):
        FusionModule(models[:2], "learned", {"dare": {"density": 1.5}}, base=models[2])
    for command in ("merge a b", "merge a b --samples 3", "fuse --match learned --ckpts a b"):
        given = ["--method", "dare", "--hyperparameters.density", "1.5", "--output", str(tmp_path / "out")]
        assert main([*command.split(), *given]) == 2
        assert words in capsys.readouterr().err


def test_a_density_for_each_model_by_every_way(tmp_path: Path) -> None:
    """The command on files and on models, a config and Python give what states do; of patterns each may be a list."""
    models = {name: vit(seed) for seed, name in enumerate(("a", "b", "base"))}
    for name, model in models.items():
        fusionlab.save(model, tmp_path / name)
    states = [model.state_dict() for model in models.values()]
    shares = [0.8, 0.3]
    expected = merge_states(states[:2], "breadcrumbs", base=states[2], density=shares)
    assert not torch.equal(
        expected["classifier.weight"],
        merge_states(states[:2], "breadcrumbs", base=states[2], density=shares[::-1])["classifier.weight"],
    )
    pattern = {"*": shares}
    for place, given in enumerate(("[0.8, 0.3]", '{"*": [0.8, 0.3]}', "[0.8,0.3]")):
        out = tmp_path / f"out{place}"
        paths = [str(tmp_path / "a"), str(tmp_path / "b"), "--base", str(tmp_path / "base"), "--output", str(out)]
        more = ["--samples", "3"] if place == 2 else []
        assert main(["merge", *paths, "--method", "breadcrumbs", "--hyperparameters.density", given, *more]) == 0
        made = fusionlab.load(out).state_dict()
        assert all(torch.allclose(made[name], tensor, atol=1e-6) for name, tensor in expected.items())
    again = ["merge", "--config", str(tmp_path / "out0" / "fusionlab.yaml"), "--output", str(tmp_path / "again")]
    assert main(again) == 0
    for found in (
        fusionlab.load(tmp_path / "again"),
        fusionlab.merge([models["a"], models["b"]], "breadcrumbs", base=models["base"], density=shares),
        fusionlab.merge([models["a"], models["b"]], "breadcrumbs", base=models["base"], density=tuple(shares)),
        fusionlab.merge([models["a"], models["b"]], "breadcrumbs", base=models["base"], density=pattern),
    ):
        assert all(torch.allclose(found.state_dict()[name], one, atol=1e-6) for name, one in expected.items())
