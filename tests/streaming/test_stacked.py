"""Methods that look at a whole parameter see experts of files in the stack that transformers makes of them."""

from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch import Tensor
from transformers import MixtralConfig, MixtralForCausalLM

from fusionlab.atomic import MANIFEST
from fusionlab.errors import InputError
from fusionlab.evaluation.distance import parameter_distance
from fusionlab.merging import find_method, merge_states, methods
from fusionlab.streaming import (
    Manifest,
    Recipe,
    StoredModel,
    Streamed,
    made_of,
    may_stream,
    open_folder,
    open_model,
    stream_merge,
)
from fusionlab.streaming.stacked import stacks_of
from tests.parts import one_in
from tests.streaming.folders import read

WHOLE = [name for name in methods() if find_method(name).unit == "parameter"]
GIVEN: dict[str, dict[str, Any]] = {"wudi": {"steps": 2}}


def mixture(folder: Path, seed: int, dtype: torch.dtype = torch.float64, near: MixtralForCausalLM | None = None) -> Any:
    """A small mixture of experts of random numbers, or of those of another one and a little more, written in shards."""
    config = MixtralConfig(
        hidden_size=12,
        intermediate_size=10,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        vocab_size=20,
        num_local_experts=3,
        num_experts_per_tok=2,
    )
    torch.manual_seed(seed)
    model = MixtralForCausalLM(config).to(dtype).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            start = 0 if near is None else near.state_dict()[name].double()
            parameter.copy_(start + torch.randn(parameter.shape, dtype=torch.float64) * (1 if near is None else 0.1))
    model.save_pretrained(folder, max_shard_size="5KB")
    return model


def opened(folder: Path) -> StoredModel:
    """A folder as it lies on the disk."""
    found = open_folder(folder.name, folder)
    assert found is not None
    return found


def state_of(folder: Path) -> dict[str, Tensor]:
    """The parameters that plain transformers reads of a folder."""
    return MixtralForCausalLM.from_pretrained(folder, dtype="auto").state_dict()


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A base model and two near it, in float64, with experts in single tensors in the files."""
    root = tmp_path_factory.mktemp("mixtures")
    base = mixture(root / "base", 0)
    for seed, name in enumerate("ab", 1):
        mixture(root / name, seed, near=base)
    assert any("experts.0.w1" in name for name in read(root / "a"))
    return root


@pytest.mark.parametrize("method", one_in(2, WHOLE))
def test_equals_the_merge_of_the_stacks(tmp_path: Path, folders: Path, method: str) -> None:
    """Numbers and distances are those of a merge of the class's own parameters; files have the first model's names."""
    chosen, given = find_method(method), GIVEN.get(method, {})
    stored = [opened(folders / name) for name in "ab"]
    of_base = opened(folders / "base") if "base" in chosen.requires(**given) else None
    assert may_stream(stored, of_base, chosen)
    out = tmp_path / "out"
    out.mkdir()
    done: list[int] = []
    streamed = stream_merge(stored, of_base, Recipe(chosen, given, [0.3, 0.7], seed=3), out, advance=done.append)
    states = [state_of(folders / name) for name in "ab"]
    base = None if of_base is None else state_of(folders / "base")
    expected = merge_states(states, method, [0.3, 0.7], base=base, seed=3, **given)
    (out / "config.json").write_bytes((folders / "a" / "config.json").read_bytes())
    found = state_of(out)
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert found[name].dtype == tensor.dtype
        torch.testing.assert_close(found[name], tensor, rtol=1e-9, atol=1e-9, msg=name)
    assert read(out).keys() == read(folders / "a").keys()
    for distance, state in zip(streamed.distances, states, strict=True):
        assert distance == pytest.approx(parameter_distance(state, found), rel=1e-6)
    assert sum(done) == sum(tensor.numel() * tensor.itemsize for tensor in read(out).values())


def test_a_stack_is_merged_as_one_parameter(tmp_path: Path, folders: Path) -> None:
    """The angle of slerp is that of all experts together, which no merge of single experts has."""
    out = tmp_path / "out"
    out.mkdir()
    stored = [opened(folders / name) for name in "ab"]
    given = {"t": {"*experts.gate_up_proj": 1.0, "*": 0.0}}
    stream_merge(stored, None, Recipe(find_method("slerp"), given, [0.5, 0.5]), out)
    first, second, found = read(folders / "a"), read(folders / "b"), read(out)
    for name, tensor in found.items():
        expected = second if name.endswith(("w1.weight", "w3.weight")) else first
        torch.testing.assert_close(tensor, expected[name], rtol=1e-9, atol=1e-9, msg=name)
    odd = Recipe(find_method("slerp"), {"t": {"*experts.0.w1*": 1.0}}, [0.5, 0.5])
    with pytest.raises(InputError, match="which matches no parameter"):
        stream_merge(stored, None, odd, tmp_path / "odd")


def test_goes_on_with_complete_files(tmp_path: Path, folders: Path) -> None:
    """Experts that lie in several files, of which some are complete: the bytes and distances of one go."""
    stored = {name: opened(folders / name) for name in "ab"}

    def merged(folder: Path, after: int | None = None) -> tuple[Streamed, int]:
        folder.mkdir(exist_ok=True)
        (folder / MANIFEST).touch()
        manifest, told = Manifest(folder, made_of({}, stored)), 0

        def advance(size: int) -> None:
            nonlocal told
            told += size
            if after is not None and told >= after:
                raise KeyboardInterrupt

        recipe = Recipe(find_method("slerp"), {}, [0.5, 0.5])
        streamed = stream_merge([*stored.values()], None, recipe, folder, None, advance, manifest)
        return streamed, len(manifest.finished)

    expected, _ = merged(tmp_path / "whole")
    files = sorted(file.name for file in (tmp_path / "whole").glob("*.safetensors"))
    size = sum((tmp_path / "whole" / file).stat().st_size for file in files)
    for part in (0.4, 0.8):
        with pytest.raises(KeyboardInterrupt):
            merged(tmp_path / "parts", round(part * size))
    again, finished = merged(tmp_path / "parts")
    assert again == expected
    assert 0 < finished < len(files)
    for file in files:
        assert (tmp_path / "parts" / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()


def test_numbers_that_are_not_finite(tmp_path: Path, folders: Path) -> None:
    """One sentence that names the model and the parameter."""
    broken = mixture(tmp_path / "broken", 4)
    with torch.no_grad():
        broken.model.layers[1].mlp.experts.down_proj[2, 0, 0] = torch.nan
    broken.save_pretrained(tmp_path / "nan")
    stored = [opened(folders / "a"), opened(tmp_path / "nan")]
    (tmp_path / "out").mkdir()
    with pytest.raises(InputError, match=r"nan: .*layers\.1\..*experts\.down_proj holds 1 value of 360"):
        stream_merge(stored, None, Recipe(find_method("karcher"), {}, [0.5, 0.5]), tmp_path / "out")


def test_types(tmp_path: Path, folders: Path) -> None:
    """A merge is written in the widest type, or in the one that is asked for."""
    mixture(tmp_path / "half", 5, torch.bfloat16)
    mixture(tmp_path / "single", 6, torch.float32)
    stored = [opened(tmp_path / "half"), opened(tmp_path / "single")]
    for place, (dtype, written) in enumerate([(None, torch.float32), (torch.bfloat16, torch.bfloat16)]):
        out = tmp_path / str(place)
        out.mkdir()
        stream_merge(stored, None, Recipe(find_method("slerp"), {}, [0.5, 0.5], dtype=dtype), out)
        assert {tensor.dtype for tensor in read(out).values()} == {written}


def test_models_of_one_tensor_for_each_parameter_have_no_stacks(tmp_path: Path, folders: Path) -> None:
    """A class that nobody knows, and what is known to come back as it was."""
    found = stacks_of(opened(folders / "a"))
    assert found is not None
    assert {name for name, group in found.groups.items() if group.conversion is not None} == {
        f"model.layers.{layer}.mlp.experts.{part}" for layer in range(2) for part in ("gate_up_proj", "down_proj")
    }
    odd = opened(folders / "a")
    assert stacks_of(StoredModel("x", odd.location, "transformers", {"model_type": "nobody"}, odd.tensors)) is not None


def test_adapters_beside_stacks(tmp_path: Path, folders: Path) -> None:
    """Adapters on the attention of a mixture are merged as the models that PEFT merges them into."""
    stored, states = [], []
    for seed, name in enumerate("xy"):
        torch.manual_seed(seed)
        chosen = LoraConfig(r=2, lora_alpha=3, target_modules=["q_proj"], init_lora_weights=False)
        base = MixtralForCausalLM.from_pretrained(folders / "base", dtype=torch.float64)
        adapted = get_peft_model(base, chosen)
        adapted.peft_config["default"].base_model_name_or_path = str(folders / "base")
        adapted.save_pretrained(str(tmp_path / name))
        states.append(adapted.merge_and_unload().state_dict())
        found = open_model(str(tmp_path / name))
        assert found is not None
        stored.append(found)
    (tmp_path / "out").mkdir()
    stream_merge(stored, None, Recipe(find_method("slerp"), {}, [0.3, 0.7]), tmp_path / "out")
    (tmp_path / "out" / "config.json").write_bytes((folders / "base" / "config.json").read_bytes())
    merged = state_of(tmp_path / "out")
    for name, tensor in merge_states(states, "slerp", [0.3, 0.7]).items():
        torch.testing.assert_close(merged[name], tensor, rtol=1e-6, atol=1e-6, msg=name)
