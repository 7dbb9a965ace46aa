"""Types of models: the widest of several, what another type makes of a model, and what a merge is written in."""

import copy

import pytest
import torch
from torch import nn

import fusionlab
from fusionlab.checkpoints.checkpoint import read, save
from fusionlab.dtypes import (
    common_types,
    differing,
    find_dtype,
    in_types,
    main_dtype,
    merge_note,
    rounded,
    stored_size,
    types_of,
    widened,
    widest,
)
from fusionlab.errors import InputError
from fusionlab.fusion import Fuser, FusionPlan
from fusionlab.inputs import Inputs
from fusionlab.matching.recipe import recipe
from fusionlab.polish import PolishOptions
from fusionlab.stages import run
from fusionlab.statistics import basis_of
from fusionlab.statistics.gather import gather
from tests.commands.small import bert, timm_vit

BF16, F16, F32, F64 = torch.bfloat16, torch.float16, torch.float32, torch.float64


def layer(dtype: torch.dtype, bias: torch.dtype | None = None) -> nn.Module:
    """A linear map, an integer buffer, and a bias that may have a type of its own."""
    model = nn.Linear(3, 2).to(dtype)
    model.register_buffer("steps", torch.tensor(7))
    if bias is not None:
        model.bias.data = model.bias.data.to(bias)
    return model


@pytest.mark.parametrize(
    ("types", "expected"),
    [((BF16, F32), F32), ((BF16, F16), F32), ((F16, F16), F16), ((F32, F64, BF16), F64), ((BF16,), BF16)],
)
def test_widest(types: tuple[torch.dtype, ...], expected: torch.dtype) -> None:
    """Holds every number of all, and is the narrowest that does, in any order."""
    assert widest(types) == widest(reversed(types)) == expected


def test_names() -> None:
    """Those that models are stored in."""
    assert find_dtype("bfloat16") == find_dtype(BF16) == BF16
    assert find_dtype(None) is None
    for name in ("int8", torch.int8, "half", "float", torch.float8_e4m3fn):
        with pytest.raises(InputError, match="expected one of float32, bfloat16, float16, float64"):
            find_dtype(name)


def test_widened_parameter_by_parameter() -> None:
    """Each in the widest type that any model has it in, no number changed; integers and the given models stay."""
    models = {"a": layer(BF16), "b": layer(BF16, bias=F32), "c": layer(F16)}
    before = {name: copy.deepcopy(model.state_dict()) for name, model in models.items()}
    found = widened(models)
    for name, model in found.items():
        assert types_of(model) == {"weight": F32, "bias": F32, "steps": torch.int64}
        for key, tensor in model.state_dict().items():
            assert torch.equal(tensor.double(), before[name][key].double())
            assert models[name].state_dict()[key].dtype == before[name][key].dtype
    pair = {name: models[name] for name in "ab"}
    assert common_types(pair.values()) == {"weight": BF16, "bias": F32, "steps": torch.int64}
    wide = widened(pair, F64)["a"]
    assert types_of(wide) == {"weight": F64, "bias": F64, "steps": torch.int64}
    same = {"a": layer(BF16), "b": layer(BF16)}
    assert all(found is same[name] for name, found in widened(same).items())


def test_in_types_of_a_mixed_model() -> None:
    """Each parameter has the type that is named for it; one that is not named keeps its own."""
    model = layer(F32)
    found = in_types(model, {"weight": BF16, "steps": torch.int64})
    assert types_of(found) == {"weight": BF16, "bias": F32, "steps": torch.int64}
    assert torch.equal(found.weight, model.weight.to(BF16))
    assert torch.equal(found.bias, model.bias)
    assert types_of(in_types(model, F16)) == {"weight": F16, "bias": F16, "steps": torch.int64}
    assert in_types(model, {"weight": F32}) is model
    assert model.weight.dtype == F32


def test_what_a_type_cannot_hold() -> None:
    """Is refused by the parameter's name; infinity itself is no such number."""
    model = layer(F32)
    with torch.no_grad():
        model.bias[1] = -70000.0
    with pytest.raises(InputError, match=r"parameter bias holds 7e\+04, which is more than float16 can hold"):
        in_types(model, F16)
    in_types(model, BF16)
    with torch.no_grad():
        model.bias[1] = torch.inf
    assert in_types(model, F16).bias[1] == torch.inf


def test_rounded_has_the_numbers_that_are_written() -> None:
    """In the type that it came in."""
    model = layer(F32)
    found = rounded(model, BF16)
    assert types_of(found) == types_of(model)
    assert torch.equal(found.weight, model.weight.to(BF16).float())
    assert not torch.equal(found.weight, model.weight)
    assert rounded(model, None) is model


def test_words() -> None:
    """The type of most numbers is a model's; nothing is said where there is nothing to say."""
    a, b = layer(BF16, bias=F32), layer(F32)
    assert main_dtype(a.state_dict()) == BF16
    assert differing({"a": a, "b": b}) == "a in bfloat16, b in float32"
    assert differing({"a": a, "b": layer(BF16)}) == merge_note({"a": a, "b": layer(BF16)}) == ""
    assert merge_note({"a": a, "b": a}, BF16) == ""
    assert "made and written in float32, the narrowest" in merge_note({"a": a, "b": b})
    assert "written in float16, as asked for; the end models are stored in float32" in merge_note({"b": b}, F16)
    assert "stored in different types (a in bfloat16, b in float32)" in merge_note({"a": a, "b": b}, BF16)


def test_stored_size() -> None:
    """In bytes, by the type that each parameter is written in."""
    model = layer(F32)
    assert stored_size(model) == 8 * 4 + 8
    assert stored_size(model, BF16) == 8 * 2 + 8
    assert stored_size(model, {"weight": F64}) == 6 * 8 + 2 * 4 + 8


def halves() -> tuple[nn.Module, nn.Module]:
    return bert(0).to(BF16), bert(1)


@pytest.mark.parametrize("order", [1, -1])
def test_a_merge_of_two_types_rounds_neither(order: int) -> None:
    """Python: the mean in float32 whichever model comes first; in another type where that is asked for."""
    pair = halves()[::order]
    merged = fusionlab.merge(pair)
    narrow = fusionlab.merge(pair, dtype="bfloat16")
    for name, tensor in merged.state_dict().items():
        if tensor.is_floating_point():
            exact = sum(model.state_dict()[name].double() for model in pair) / 2
            assert tensor.dtype == F32
            assert (tensor.double() - exact).abs().max() <= 1e-6 * exact.abs().max().clamp(min=1)
            assert torch.equal(narrow.state_dict()[name], tensor.to(BF16))
    wide = fusionlab.fuse([model.to(BF16) for model in map(copy.deepcopy, pair)], preset="none", dtype="float32")
    assert main_dtype(wide.state_dict()) == F32
    exact = sum(model.state_dict()["classifier.weight"].to(BF16).double() for model in pair) / 2
    assert (wide.state_dict()["classifier.weight"].double() - exact).abs().max() < 1e-6


def test_statistics_of_a_narrower_model_still_count() -> None:
    """They were measured on the same numbers; those of another model do not."""
    models = halves()
    batches = [{"input_ids": torch.arange(12).reshape(2, 6), "attention_mask": torch.ones(2, 6, dtype=torch.long)}]
    given = [gather(model, batches, ["gram"]) for model in models]
    assert given[0]["gram"].basis == basis_of(models[0].state_dict())
    merged = fusionlab.merge(models, "regmean", data=given)
    fuser = Fuser(dict(zip("ab", models, strict=True)), FusionPlan(methods={"regmean": {}}), statistics=given)
    other = run(fuser.merge("regmean", "none")).model
    for name, tensor in merged.state_dict().items():
        assert torch.equal(tensor, other.state_dict()[name])
    with pytest.raises(InputError, match="needed"):
        fusionlab.merge(models, "regmean", data=[gather(bert(5), batches, ["gram"]), given[1]])


def test_a_checkpoint_is_written_in_the_types_it_was_read_in(tmp_path) -> None:  # type: ignore[no-untyped-def]
    """Parameter by parameter, whatever type the model to be written has; or in the one asked for."""
    save(timm_vit(0).to(BF16), tmp_path / "a")
    checkpoint = read(tmp_path / "a")
    wide = copy.deepcopy(checkpoint.model).float()
    checkpoint.write(wide, tmp_path / "b")
    assert types_of(read(tmp_path / "b").model) == dict(checkpoint.dtypes)
    checkpoint.write(wide, tmp_path / "c", types=F16)
    assert set(types_of(read(tmp_path / "c").model).values()) == {F16}
    save(wide, tmp_path / "d", dtype="float64")
    assert main_dtype(read(tmp_path / "d").model.state_dict()) == F64


def test_buffers_are_converted_like_parameters() -> None:
    """Those that hold floating-point numbers."""
    model = layer(F32)
    model.register_buffer("scale", torch.tensor([1.0, 1 / 3]))
    found = in_types(model, BF16)
    assert found.scale.dtype == BF16
    assert torch.equal(found.scale, torch.tensor([1.0, 1 / 3]).to(BF16))


def test_a_models_type_is_that_of_most_of_its_numbers() -> None:
    """Not of most of its parameters, nor of the first."""
    state = {"a": torch.zeros(2, dtype=F32), "b": torch.zeros(2, dtype=F32), "c": torch.zeros(5, dtype=BF16)}
    assert main_dtype(state) == BF16
    assert main_dtype({"steps": torch.zeros(9, dtype=torch.int64)}) == F32


def test_what_is_corrected_and_polished_is_rounded_too() -> None:
    """Every merge that is tested has the numbers that would be written."""
    models = {name: bert(seed) for seed, name in enumerate("ab")}
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(0, 31, (8, 6), generator=generator)
    batches = [{"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}]
    plan = FusionPlan(correct=True, polish=PolishOptions(steps=1), dtype=BF16)
    fused = run(Fuser(models, plan, Inputs.from_batches(batches, 2)).fuse())
    merges = [candidate for candidate in fused.candidates if len(candidate.models) == 2]
    assert [merge.method for merge in merges] == ["simple", "simple, corrected", "simple, corrected, polished"]
    for merge in merges:
        for tensor in merge.model.state_dict().values():
            if tensor.is_floating_point():
                assert tensor.dtype == F32
                assert torch.equal(tensor, tensor.to(BF16).float())
    states = [merge.model.state_dict()["classifier.weight"] for merge in merges]
    assert not torch.equal(states[1], states[2]), "polishing must do something"


def test_a_narrower_base_model_is_moved_without_rounding() -> None:
    """Its numbers are those of its type; in the twins' basis they are not rounded to it once more."""
    models = {name: bert(seed) for seed, name in enumerate("ab")}
    base = bert(2).to(BF16)
    fuser = Fuser(models, FusionPlan({"weights": recipe("weights")}, {"task_arithmetic": {}}), base=base)
    alignment = run(fuser.match("weights")).alignments[fuser.anchor]
    assert fuser.base is not None
    found = fuser.base.state("weights")
    exact = alignment.apply(copy.deepcopy(base).double().state_dict())
    for name, tensor in found.items():
        if tensor.is_floating_point():
            assert (tensor.double() - exact[name]).abs().max() <= 1e-5 * exact[name].abs().max().clamp(min=1)
    assert any(not torch.equal(t, t.to(BF16).float()) for t in found.values() if t.is_floating_point())
