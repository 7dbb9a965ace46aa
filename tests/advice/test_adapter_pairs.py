"""Changes of adapters in numbers: those of the whole changes, made here, in float64."""

import math
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import fusionlab
from fusionlab import checkpoints
from fusionlab.advice import advice_on, stored_weights
from fusionlab.advice.adapter_pairs import compare_adapters
from fusionlab.advice.choosing import read_weights
from fusionlab.errors import InputError
from tests.checkpoints.test_wrapped import two_adapters
from tests.commands.small import bert


def adapter(place: Path, base: Path, seed: int, size: float = 1.0, **options: object) -> nn.Module:
    """A folder of PEFT's with random factors; what it was made of."""
    torch.manual_seed(seed)
    chosen = {"r": 3, "lora_alpha": 5, "target_modules": ["query", "dense"], **options}
    adapted = get_peft_model(bert(0), LoraConfig(**chosen))  # type: ignore[arg-type]
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "lora_" in name:
                parameter.copy_(math.sqrt(size) * torch.randn_like(parameter))
    adapted.peft_config["default"].base_model_name_or_path = str(base)
    adapted.save_pretrained(place)
    return adapted


def changes(adapted: nn.Module) -> dict[str, Tensor]:
    """Every weight after merging by PEFT, less what it was before."""
    before = bert(0).double().state_dict()
    after = adapted.double().merge_and_unload().state_dict()
    return {name: after[name] - before[name] for name in before if not torch.equal(after[name], before[name])}


@pytest.mark.parametrize("learned", [(False, False), (True, True), (True, False)], ids=["plain", "DoRA", "one DoRA"])
def test_lengths_and_angles_are_those_of_what_peft_merges(tmp_path: Path, learned: tuple[bool, bool]) -> None:
    """For kinds of layers and for all, of other ranks, with rank-stabilised scales and with learned lengths of rows."""
    checkpoints.save(bert(0), tmp_path / "base")
    one = changes(adapter(tmp_path / "one", tmp_path / "base", 1, use_dora=learned[0]))
    other = changes(adapter(tmp_path / "other", tmp_path / "base", 2, 2.0, r=2, use_rslora=True, use_dora=learned[1]))
    pair = compare_adapters(*(stored_weights(str(tmp_path / name), name) for name in ("one", "other")))
    vectors = [torch.cat([found[name].flatten() for name in one]) for found in (one, other)]
    assert pair.lengths == pytest.approx([float(vector.norm()) for vector in vectors], rel=1e-5)
    cosine = float(torch.nn.functional.cosine_similarity(*vectors, dim=0))
    assert pair.whole.cosine == pytest.approx(cosine, abs=1e-6)
    distance = (vectors[0] - vectors[1]).norm() / (vectors[0].norm() * vectors[1].norm()).sqrt()
    assert pair.whole.distance == pytest.approx(float(distance), rel=1e-5)
    query = next(kind for kind in pair.kinds if kind.name.endswith("query"))
    names = [name for name in one if "query" in name]
    assert query.tensors == len(names)
    parts = [torch.cat([found[name].flatten() for name in names]) for found in (one, other)]
    assert query.cosine == pytest.approx(float(torch.nn.functional.cosine_similarity(*parts, dim=0)), abs=1e-6)


def test_what_is_said_of_them(tmp_path: Path) -> None:
    """Lengths, angle, layers that one alone changes, time and memory by the base model."""
    checkpoints.save(bert(0), tmp_path / "base")
    adapter(tmp_path / "one", tmp_path / "base", 1)
    adapter(tmp_path / "long", tmp_path / "base", 2, 9.0, target_modules=["query"])
    found = fusionlab.advise(tmp_path / "one", tmp_path / "long")
    assert found.case == "adapters"
    text = " ".join(found.lines)
    assert "Lengths of what one and long change: " in text
    assert "angle between the changes " in text
    assert "Only one of one and long changes " in text
    assert "times as long as that of one, so their plain sum is mostly long's" in text
    whole = fusionlab.advise(bert(0), bert(1)).cost
    assert found.cost is not None
    assert whole is not None
    assert 0 < found.cost.seconds <= whole.seconds
    assert found.cost.memory >= 2 * sum(tensor.numel() * 4 for tensor in bert(0).parameters())
    assert found.to_dict()["pairs"][0]["lengths_of_changes"] == list(found.pairs[0].lengths or ())
    assert "<table>" in found._repr_html_()


def test_a_fresh_adapter_has_no_angle_to_another(tmp_path: Path) -> None:
    """Its change is zero; nor have two adapters without a layer in common."""
    checkpoints.save(bert(0), tmp_path / "base")
    for seed, (name, size, layer) in enumerate((("one", 1.0, "query"), ("fresh", 0.0, "query"), ("far", 1.0, "value"))):
        adapter(tmp_path / name, tmp_path / "base", seed, size, target_modules=[layer])
    one, fresh, far = (stored_weights(str(tmp_path / name), name) for name in ("one", "fresh", "far"))
    whole = compare_adapters(one, fresh).whole
    assert (whole.cosine, whole.distance, whole.equal) == (None, None, 0)
    assert compare_adapters(one, far).whole.angle is None
    assert "angle between" not in " ".join(advice_on([one, far]).lines)


def test_a_base_model_that_is_not_here(tmp_path: Path) -> None:
    """What they change is told, time and memory are not."""
    for seed, name in enumerate(("one", "two")):
        adapter(tmp_path / name, tmp_path / "elsewhere", seed)
    found = fusionlab.advise(tmp_path / "one", tmp_path / "two")
    assert (found.case, found.cost) == ("adapters", None)
    assert found.exceptions[0].startswith("Lengths of what one and two change")


@pytest.mark.parametrize("kind", ["DoRA", "experts"])
def test_what_the_base_model_tells(tmp_path: Path, kind: str) -> None:
    """Lengths of rows count in, or are said not to; which experts change too. Other lengths are another adapter."""
    if kind == "DoRA":
        checkpoints.save(bert(0), tmp_path / "base")
        for name in ("one", "two"):
            adapter(tmp_path / name, tmp_path / "base", 1, use_dora=True)
        file = tmp_path / "two" / "adapter_model.safetensors"
        halved = {key: tensor / 2 if "magnitude" in key else tensor for key, tensor in load_file(file).items()}
        save_file(halved, file)
        places = [tmp_path / name for name in ("one", "two")]
    else:
        base, first, _ = two_adapters(tmp_path, "mixtral")
        before = checkpoints.load(base).state_dict()
        places = [tmp_path / name / "adapter" for name in ("one", "two")]
    found = fusionlab.advise(*places)
    assert (found.case, found.pairs[0].untold) == ("adapters", [])
    if kind == "experts":
        length = sum(float((x - before[key]).double().norm() ** 2) for key, x in first.state_dict().items()) ** 0.5
        assert found.pairs[0].lengths is not None
        assert found.pairs[0].lengths[0] == pytest.approx(length, rel=1e-5)
        assert any(name.name.endswith("experts.gate_up_proj.*") for name in found.pairs[0].kinds)
    (tmp_path / "base" if kind == "DoRA" else base).rename(tmp_path / "elsewhere")
    told = " ".join(fusionlab.advise(*places).exceptions)
    assert "Not counted in: " in told
    assert ("(DoRA)" if kind == "DoRA" else "experts in a stack") in told


def test_one_adapter_twice(tmp_path: Path) -> None:
    checkpoints.save(bert(0), tmp_path / "base")
    for name in ("one", "two"):
        adapter(tmp_path / name, tmp_path / "base", 1)
    assert fusionlab.advise(tmp_path / "one", tmp_path / "two").case == "same"


def test_other_shapes_are_one_sentence(tmp_path: Path) -> None:
    for seed, name in enumerate(("one", "two")):
        adapter(tmp_path / name, tmp_path / "base", seed)
    file = tmp_path / "two" / "adapter_model.safetensors"
    state = load_file(file)
    name = next(name for name in state if "query.lora_A" in name)
    save_file(state | {name: state[name][:, :-1].contiguous()}, file)
    with pytest.raises(InputError, match=r"one changes .*query as a weight of shape .* two as one of"):
        fusionlab.advise(tmp_path / "one", tmp_path / "two")


def test_adapters_that_were_read_as_models(tmp_path: Path) -> None:
    """A report tells what they change too."""
    checkpoints.save(bert(0), tmp_path / "base")
    for seed, name in enumerate(("one", "two")):
        adapter(tmp_path / name, tmp_path / "base", seed)
    stored = {name: checkpoints.read(tmp_path / name) for name in ("one", "two")}
    weights = read_weights({name: one.model for name, one in stored.items()}, stored)
    assert all(one.base == str(tmp_path / "base") and one.layers for one in weights)
    assert "Lengths of what one and two change" in advice_on(weights).note
