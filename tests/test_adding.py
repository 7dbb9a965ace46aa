"""A merge method, a matcher and an option are one file each: docs/adding.md, done to the letter."""

import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification

import fusionlab
import fusionlab.matching.matchers
import fusionlab.merging
from fusionlab.commands import matching_options, parsing
from fusionlab.errors import InputError
from fusionlab.evaluation.preservation import check_preservation
from fusionlab.inputs import Inputs
from fusionlab.matching.align_models import align_models
from fusionlab.matching.matchers import registry as all_matchers
from fusionlab.matching.matchers.registry import Models, matcher
from fusionlab.matching.options import MatchOptions, Selection
from fusionlab.matching.recipe import Recipe, recipe
from fusionlab.matching.refine_options import RefineOptions
from fusionlab.matching.starts.registry import start
from fusionlab.merging import find_method
from fusionlab.merging import registry as merge_methods
from fusionlab.merging.ingredients import Ingredients
from fusionlab.merging.registry import merge_method
from fusionlab.stages import run
from fusionlab.symmetry import Alignment
from tests.symmetry.models import randomize, text_config

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "adding.md"


def listings(section: str) -> list[str]:
    """The code of one section of the page."""
    found = re.search(rf"^## {section}$(.*?)(?=^## |\Z)", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert found is not None
    return re.findall(r"^```python\n(.*?)^```$", found[1], re.MULTILINE | re.DOTALL)


def place(section: str) -> str:
    """The file that a section says its first listing is."""
    found = re.search(
        rf"^## {section}$.*?`(fusionlab/[\w/]+)\.py`", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    assert found is not None
    return found[1]


@pytest.fixture
def added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Makes a listing a file of its package, and gives the names of what is done with it."""
    names: list[str] = []

    def add(section: str, text: str | None = None) -> str:
        folder, _, name = place(section).rpartition("/")
        package = importlib.import_module(folder.replace("/", "."))
        assert not (ROOT / f"{folder}/{name}.py").exists()
        (tmp_path / f"{name}.py").write_text(text or listings(section)[0], encoding="utf-8")
        monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path)])
        names.append(f"{package.__name__}.{name}")
        importlib.import_module(names[-1])
        return names[-1]

    monkeypatch.setattr(merge_methods, "METHODS", dict(merge_methods.METHODS))
    monkeypatch.setattr(all_matchers, "MATCHERS", dict(all_matchers.MATCHERS))
    yield add
    for name in names:
        del sys.modules[name]


def done(text: str) -> dict[str, Any]:
    """The names after a listing was run."""
    names: dict[str, Any] = {}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        exec(text, names)
    return names


def test_a_merge_method(added: Any) -> None:
    """The listing's method is found by its name, is the median, and its hyperparameter is checked."""
    added("A merge method")
    shown = done(listings("A merge method")[1])
    for name, tensor in shown["merged"].state_dict().items():
        values = [model.state_dict()[name].numpy() for model in shown["models"]]
        numpy.testing.assert_allclose(tensor.numpy(), numpy.median(values, 0), rtol=1e-6)
    mean = fusionlab.merge(shown["models"], "median", share=0)
    assert torch.allclose(mean.weight, sum(model.weight for model in shown["models"]) / 3)
    with pytest.raises(InputError, match="share is 2; expected a number from 0 to 1"):
        fusionlab.merge(shown["models"], "median", share=2)
    with pytest.raises(InputError, match="has no hyperparameter 'shrae'; expected share, did you mean share"):
        find_method("median").requires(shrae=1)


def test_files_are_found_by_themselves() -> None:
    """A process of its own finds a method and a matcher that lie in the packages, though nothing imports them."""
    program = (
        "import importlib, pkgutil, sys; sys.path.insert(0, sys.argv[1]); import fusionlab.merging as m; m.methods()\n"
        "names = {f'fusionlab.merging.{x.name}' for x in pkgutil.iter_modules(m.__path__)}\n"
        "import fusionlab.matching.matchers as k; import fusionlab.matching.starts as s\n"
        "names |= {f'{p.__name__}.{x.name}' for p in (k, s) for x in pkgutil.iter_modules(p.__path__)}\n"
        "assert len(names) > 20 and names <= sys.modules.keys(), names - sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", program, str(ROOT)], check=True)


def test_a_matcher(added: Any) -> None:
    """The listing's matcher finds the hidden model again; it is a preset with flags, and can be refined."""
    module = sys.modules[added("A matcher")]
    shown = done(listings("A matcher")[1])
    original, twin = shown["model"].state_dict(), shown["twin"].state_dict()
    written = "bert.encoder.layer.0.intermediate.dense.weight"
    assert not torch.equal(shown["hidden"].state_dict()[written], original[written])
    for name, tensor in original.items():
        torch.testing.assert_close(twin[name], tensor, rtol=0, atol=0)
    parser = parsing.make_parser("match", "")
    matching_options.add_matching(parser)
    parsed = parsing.parse(parser, ["--match", "lengths", "--power", "1", "--layers", "0"])
    assert matching_options.matching_recipe(parsed) == Recipe(module.LengthOptions(layers="0", power=1.0))
    assert "Of lengths: of the norm, 1 or more" in " ".join(parser.format_help().split())
    refined = Recipe(module.LengthOptions(spaces=("ffn", "attention")), refine=RefineOptions(steps=2, batch_size=4))
    assert refined.needs_inputs


def test_what_a_matcher_finds_can_be_refined(added: Any) -> None:
    """Learning starts from there, over the spaces that were selected, whatever the matcher is."""
    module = sys.modules[added("A matcher")]
    bare = [BertForSequenceClassification(text_config(BertConfig)) for _ in range(2)]
    # Fresh ones answer alike, and what is no better than the start is not kept.
    models = [randomize(model, seed).float().eval() for seed, model in enumerate(bare)]
    options = module.LengthOptions(spaces=("ffn", "attention"))
    chosen = Recipe(options, refine=RefineOptions(steps=2, batch_size=4, mixtures=0))
    inputs = Inputs.synthetic(models, 8)
    found = run(align_models(models, fusionlab.blueprint(models[0]), chosen, 0, inputs)).alignments
    assert any(element.is_floating_point() for element in found[1].elements.values())
    check_preservation(models[1], found[1].apply(models[1]), found[1])


def test_an_option(added: Any) -> None:
    """With the changed class in the file, the option has a range; nothing else was written."""
    first, second = listings("A matcher")[0], listings("An option")[0]
    before = first[first.index("@dataclass") : first.index("@matcher")]
    text = first.replace(before, f"{second}\n\n").replace(
        "from fusionlab.matching.matchers",
        "from fusionlab.errors import InputError\nfrom fusionlab.matching.matchers",
        1,
    )
    added("A matcher", text)
    use = listings("An option")[1]
    assert done(use)["told"] == use.strip().rpartition("# ")[2]
    with pytest.raises(InputError, match=r"power is 0\.5; expected at least 1"):
        recipe("lengths", power=0.5)


def wrong_options(models: Models, options: dict[str, Any]) -> list[Alignment]:
    raise AssertionError


def anothers_options(models: Models, options: MatchOptions) -> list[Alignment]:
    raise AssertionError


def bare_options(models: Models, options: Selection) -> list[Alignment]:
    raise AssertionError


def no_options(models: Models) -> list[Alignment]:
    raise AssertionError


def untold(models: Models, options) -> list[Alignment]:  # type: ignore[no-untyped-def]
    raise AssertionError


def of_text(ingredients: Ingredients, how: str = "x") -> Any:
    raise AssertionError


def without_default(ingredients: Ingredients, alpha: float) -> Any:
    raise AssertionError


def fine(ingredients: Ingredients, alpha: float | None = None) -> Any:
    raise AssertionError


@pytest.mark.parametrize(
    ("register", "function", "sentence"),
    [
        (matcher("x"), wrong_options, "expected a dataclass derived from Selection"),
        (matcher("x"), anothers_options, "MatchOptions, which is no class of its own; expected one"),
        (matcher("x"), bare_options, "options of Selection, which is no class of its own"),
        (matcher("x"), no_options, r"takes \(models\); expected \(models, options\)"),
        (matcher("x"), untold, "does not say what options is; expected an annotation"),
        (start("x"), no_options, r"the start 'no_options' takes \(models\); expected \(pair, options\)"),
        (merge_method("x"), of_text, "has a hyperparameter 'how' of <class 'str'>; expected float, int, bool"),
        (merge_method("x"), without_default, r"takes \(ingredients, alpha\); expected \(ingredients\), and a default"),
        (merge_method("x", needs=("fish",)), fine, "needs 'fish'; expected some of gram, fisher"),
    ],
)
def test_a_signature_that_cannot_work_is_refused(register: Any, function: Any, sentence: str) -> None:
    """When it is registered, not when it is called."""
    with pytest.raises(TypeError, match=sentence):
        register(function)
