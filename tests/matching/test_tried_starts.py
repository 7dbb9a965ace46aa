"""Several starts of a learned matching: the one that a short descent brings lowest goes on."""

import itertools
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

import fusionlab
from fusionlab.errors import InputError
from fusionlab.evaluation.preservation import check_preservation
from fusionlab.inputs import Inputs
from fusionlab.matching import align_models as aligning
from fusionlab.matching import tried_starts
from fusionlab.matching.learned import Refinement
from fusionlab.matching.options import MatchOptions
from fusionlab.matching.permutations import PermutationOptions
from fusionlab.matching.recipe import Recipe, recipe
from fusionlab.matching.refine_options import RefineOptions
from fusionlab.matching.tried_starts import best_start
from fusionlab.stages import result_of, run
from fusionlab.symmetry import Alignment
from fusionlab.symmetry.unseen import note_unseen
from tests.matching.refining import excess, folded, gpt2, inputs, planted, quiet
from tests.symmetry.models import generator, randomize


def tied_pair() -> tuple[list[nn.Module], Alignment]:
    """A tied GPT-2 and its twin with everything permuted, and what brings the twin back."""
    model = randomize(gpt2(tie_word_embeddings=True), seed=0).float()
    description = folded(model)
    draw = generator(3)
    orders = {n: s.group.random(s.copies, draw) for n, s in description.spaces.items() if s.group.name == "S"}
    moved = Alignment(description, orders)
    return [moved.apply(model), model], moved.inverse()


@pytest.mark.parametrize("order", list(itertools.permutations(("right", "as-is"))))
def test_the_start_of_the_lowest_loss_goes_on(order: tuple[str, ...]) -> None:
    """A permuted twin is brought back by one start, and not by the other; in whichever order they are tried."""
    models, back = tied_pair()
    description, data = folded(models[1]), inputs(models[1], 4)
    stays = Alignment.identity(description)
    starts = {"right": [back, stays], "as-is": [stays, stays]}
    options = RefineOptions(steps=4, batch_size=8)
    tried = {name: starts[name] for name in order}
    best, found = run(best_start(models, tried, data, options, "learned matching", anchor=1), quiet)
    assert best == "right"
    assert excess(models, found, data) < 0.1 * excess(models, starts["as-is"], data)
    for model, alignment in zip(models, found, strict=True):
        check_preservation(model, alignment.apply(model), alignment)


def test_descents_of_starts_are_short_and_see_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """No more steps than one of them takes, the same inputs in each, and a loss of the last third."""
    models = [model.float() for model in planted()]
    description, data = folded(models[0]), inputs(models[0], 4)
    monkeypatch.setattr(tried_starts, "TRIAL", 6)
    losses: list[float] = []
    original = Refinement.step

    def noted(stage: Refinement, *given: Any) -> torch.Tensor:
        losses.append(float(original(stage, *given)))
        return torch.tensor(losses[-1], requires_grad=True)

    start = [Alignment.identity(description)] * 2
    with monkeypatch.context() as patched:
        patched.setattr(Refinement, "step", noted)
        run(best_start(models, {"a": start, "b": start}, data, RefineOptions(steps=9, every=0), "x"), quiet)
    assert len(losses) == 2 * 6
    assert losses[:6] == pytest.approx(losses[6:])
    stage = Refinement(models, start, data, RefineOptions(steps=6, every=0))
    seen: list[float] = []
    found = Refinement.loss

    def told(*given: Any) -> torch.Tensor:
        loss = found(*given)
        seen.append(float(loss))
        return loss

    monkeypatch.setattr(Refinement, "loss", told)
    assert run(result_of(stage), quiet).loss == pytest.approx(sum(seen[4:6]) / 2)


def test_activations_are_needed_where_a_start_needs_them() -> None:
    assert recipe("learned").needs == ()
    assert recipe("learned", starts=("known", "activations")).needs == ("activations",)


def test_a_permuted_stream_starts_from_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a part of the inputs, unless another start is named; streams that turn and what was grown start by weights."""
    tied, untied = gpt2(), gpt2(tie_word_embeddings=False)
    learned, bare = recipe("learned"), tied.transformer

    def start(chosen: Recipe, model: nn.Module, run: nn.Module | None = None) -> str:
        given = Inputs.from_batches(inputs(tied, 1), 1)
        options = chosen.suited_to(folded(model), [run or model], given).options
        assert isinstance(options, MatchOptions)
        return options.start

    assert (start(learned, tied), start(learned, untied)) == ("gradients", "annealed")
    assert start(learned, tied, bare) == "activations"
    assert start(recipe("learned", start="known"), tied) == "known"
    assert start(recipe("learned", towards="mean"), tied) == start(recipe("weights", start="auto"), tied) == "annealed"
    note_unseen(tied, {"transformer.wte.weight": torch.zeros(1, dtype=torch.bool)})
    assert start(learned, tied) == "annealed"
    assert recipe("git-rebasin").suited_to(folded(tied), [tied]) == recipe("git-rebasin")

    monkeypatch.setattr(aligning, "LOOKED_AT", 6)
    seen: list[tuple[int, bool]] = []
    original = aligning.activations_of

    def noted(model: nn.Module, batches: Any, label: str = "", **settings: Any) -> Any:
        seen.append((len(batches), settings.get("gradients", False)))
        return original(model, batches, label, **settings)

    monkeypatch.setattr(aligning, "activations_of", noted)
    models, _ = tied_pair()
    data, few = inputs(models[0], 6, batch=4), {"steps": 1, "batch_size": 4}
    for wanted, how in (
        ([(2, True)] * 2, {}),
        ([(6, True)] * 2, {"start": "gradients"}),
        ([(6, False)] * 2, {"start": "activations"}),
        ([(6, True)] * 2, {"starts": ("activations",)}),
        ([(2, True)] * 4, {"draws": 2}),
        ([], {"start": "known"}),
    ):
        fusionlab.align(models, preset="learned", data=data, **few, **how)
        assert seen == wanted
        seen.clear()


def test_every_draw_looks_at_other_inputs_and_gives_a_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """All models see the same of each draw; other rows of the same inputs where all are looked at."""
    models, _ = tied_pair()
    data, labels = inputs(models[0], 12, batch=2), list[str]()
    looked: list[tuple[str, str]] = []
    monkeypatch.setattr(aligning, "LOOKED_AT", 6)
    original, begin = aligning.activations_of, Refinement.__init__

    def noted(model: nn.Module, batches: Any, label: str = "", **settings: Any) -> Any:
        found = yield from original(model, batches, label, **(settings | {"samples": 8}))
        texts = sorted(text for batch in batches for text in batch["input_ids"].tolist())
        looked.append((str(texts), found.drawn))
        return found

    def begun(stage: Refinement, *given: Any, **how: Any) -> None:
        begin(stage, *given, **how)
        labels.append(stage.label)

    monkeypatch.setattr(aligning, "activations_of", noted)
    monkeypatch.setattr(Refinement, "__init__", begun)
    how: dict[str, Any] = {"steps": 2, "batch_size": 4, "draws": 3, "starts": ("known",)}
    fusionlab.align(models, anchor=1, preset="learned", data=data, **how)
    assert looked[::2] == looked[1::2]
    assert len({texts for texts, _ in looked}) == len({rows for _, rows in looked}) == 3
    tried = ("gradients", "known", "gradients, draw 2", "gradients, draw 3")
    assert labels == [*(f"learned matching, start {name}" for name in tried), "learned matching"]
    looked.clear()
    fusionlab.align(models, anchor=1, preset="learned", data=data, start="gradients", **how)
    assert (len({texts for texts, _ in looked}), len({rows for _, rows in looked})) == (1, 3)


def test_the_recipe_that_was_followed_names_its_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """In place of one that was left open, and of several the one of the lowest loss."""
    models = [randomize(gpt2(tie_word_embeddings=True), seed).float() for seed in (0, 1)]
    description, few = fusionlab.blueprint(models[0]), {"steps": 3, "batch_size": 4}
    given = Inputs.from_batches(inputs(models[0], 4), 2)
    followed = run(aligning.align_models(models, description, recipe("learned", **few), 1, given), quiet).recipe
    assert followed == recipe("learned", start="gradients", **few)
    losses: dict[str, float] = {}

    def noted(stage: Refinement) -> Any:
        found = yield from result_of(stage)
        losses[stage.label.rpartition(" ")[2]] = found.loss
        return found

    monkeypatch.setattr(tried_starts, "result_of", noted)
    starts = ("as-is", "gradients", "known")
    for own, *others in (starts, starts[::-1]):
        tried = recipe("learned", start=own, starts=tuple(others), **few)
        followed = run(aligning.align_models(models, description, tried, 1, given), quiet).recipe
        assert len(set(losses.values())) == 3
        assert followed == replace(tried, options=replace(tried.options, start=min(losses, key=losses.__getitem__)))


def test_draws_that_nothing_looks_at_are_refused() -> None:
    models = tied_pair()[0]
    few: dict[str, Any] = {"steps": 1, "batch_size": 4, "data": inputs(models[0], 4)}
    with pytest.raises(InputError, match="draws is 2, but start 'known' looks at no inputs"):
        fusionlab.align(models, preset="learned", start="known", draws=2, **few)
    with pytest.raises(InputError, match="draws is 2, but start 'annealed' looks at no inputs"):
        fusionlab.align(
            [randomize(gpt2(tie_word_embeddings=False), seed) for seed in (0, 1)], preset="learned", draws=2, **few
        )
    with pytest.raises(InputError, match="draws is 0"):
        RefineOptions(draws=0)
    with pytest.raises(InputError, match="this matching looks at no inputs"):
        _ = Recipe(PermutationOptions(), RefineOptions(draws=2)).draws


def test_auto_is_annealed_where_nothing_is_run() -> None:
    models = [randomize(gpt2(), seed) for seed in (0, 1)]
    found, expected, other = (
        fusionlab.alignments(models, anchor=1, preset="weights", start=start)[0].element("residual")
        for start in ("auto", "annealed", "as-is")
    )
    assert found.tolist() == expected.tolist() != other.tolist()


def test_starts_that_do_not_exist_are_refused() -> None:
    with pytest.raises(InputError, match="warm"):
        RefineOptions(starts=("warm",))
    with pytest.raises(InputError, match="expected no starts"):
        _ = Recipe(PermutationOptions(), RefineOptions(starts=("known",))).every_start


def test_learned_tries_its_own_start_and_those_that_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each once, then the descent; through the Python call, and twins keep their functions."""
    models = [model.double() for model in tied_pair()[0]]
    data, labels = inputs(models[0], 4), list[str]()
    original = Refinement.__init__

    def noted(stage: Refinement, *given: Any, **how: Any) -> None:
        original(stage, *given, **how)
        labels.append(stage.label)

    monkeypatch.setattr(Refinement, "__init__", noted)
    how: dict[str, Any] = {"steps": 3, "batch_size": 4, "starts": ("known", "activations", "annealed")}
    twins = fusionlab.align(models, anchor=1, preset="learned", data=data, **how)
    tried = [f"learned matching, start {name}" for name in ("gradients", "known", "activations", "annealed")]
    assert labels == [*tried, "learned matching"]
    for model, twin in zip(models, twins, strict=True):
        assert torch.allclose(twin(**data[0]).logits, model(**data[0]).logits, atol=1e-8)
