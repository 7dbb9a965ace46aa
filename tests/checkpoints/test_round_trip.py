"""A checkpoint that is read and written again is the same checkpoint, in the same format."""

import json
import math
import shutil
from pathlib import Path

import pytest
import timm
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    Mamba2Config,
    Mamba2ForCausalLM,
    ViTConfig,
    ViTForImageClassification,
    ViTModel,
)

from fusionlab import checkpoints
from fusionlab.checkpoints import side_files
from fusionlab.errors import InputError
from fusionlab.forward import logits
from tests.checkpoints.small_models import pixels, timm_vit, vit
from tests.checkpoints.test_adapters import CASES, made


def same_logits(first: nn.Module, second: nn.Module) -> bool:
    """Whether all parameters and buffers are equal to the bit, and logits to a hundred roundings.

    What is read from a file lies elsewhere in memory, so that a product may be summed in another order.
    """
    one, other = first.state_dict(), second.state_dict()
    if one.keys() != other.keys() or any(not torch.equal(tensor, other[name]) for name, tensor in one.items()):
        return False
    dtype = next(first.parameters()).dtype
    with torch.no_grad():
        found, expected = (logits(model, {"pixel_values": pixels(dtype)}).double() for model in (first, second))
    return float((found - expected).norm()) <= 100 * torch.finfo(dtype).eps * float(expected.norm())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_transformers_folder_keeps_logits_and_dtype(tmp_path: Path, dtype: torch.dtype) -> None:
    """Written from float32, a half-precision checkpoint is half precision again, and every logit is the same."""
    model: nn.Module = vit()
    checkpoints.save(model.to(dtype), tmp_path / "a")
    checkpoint = checkpoints.read(tmp_path / "a")
    assert checkpoint.format == "transformers"
    assert not checkpoint.model.training
    assert {p.dtype for p in checkpoint.model.parameters()} == {dtype}
    wide = checkpoints.load(tmp_path / "a").float()
    checkpoint.write(wide, tmp_path / "b")
    assert wide.dtype == torch.float32, "the model that is written is not changed"
    again = ViTForImageClassification.from_pretrained(tmp_path / "b", dtype="auto").eval()
    assert again.dtype == dtype
    assert same_logits(checkpoint.model, again)


def test_stored_dtype_wins_over_the_config(tmp_path: Path) -> None:
    """A config that claims float16 does not round weights that are stored in float32."""
    vit().save_pretrained(tmp_path / "a")
    config = tmp_path / "a" / "config.json"
    config.write_text(config.read_text().replace('"float32"', '"float16"'))
    assert same_logits(checkpoints.load(tmp_path / "a"), vit())


@pytest.mark.parametrize("name", ["folder", "file.ckpt"])
def test_infinities_of_a_config_come_back(tmp_path: Path, name: str) -> None:
    """JSON has no sign for the time step limit of Mamba-2, which transformers writes in a way of its own."""
    sizes = {"hidden_size": 16, "num_heads": 4, "head_dim": 8, "state_size": 8, "n_groups": 1, "num_hidden_layers": 1}
    model = Mamba2ForCausalLM(Mamba2Config(vocab_size=30, **sizes)).eval()
    checkpoints.save(model, tmp_path / name)
    if name == "folder":
        model.save_pretrained(tmp_path / "theirs")
        assert checkpoints.load(tmp_path / "theirs").config.time_step_limit[1] == math.inf
    read = checkpoints.load(tmp_path / name)
    assert tuple(read.config.time_step_limit) == (0.0, math.inf)
    assert read.state_dict().keys() == model.state_dict().keys()


def test_sharded_folder_stays_sharded(tmp_path: Path) -> None:
    """Shards are read as one model and written as shards."""
    vit().save_pretrained(tmp_path / "a", max_shard_size="8KB")
    checkpoint = checkpoints.read(tmp_path / "a")
    checkpoint.write(checkpoint.model, tmp_path / "b")
    for folder in ("a", "b"):
        assert len(list((tmp_path / folder).glob("model-*.safetensors"))) > 1
    assert same_logits(checkpoints.load(tmp_path / "b"), vit())


def test_pickled_weights_are_read_without_unpickling_objects(tmp_path: Path) -> None:
    """pytorch_model.bin is read as plain tensors and comes back as safetensors."""
    vit().save_pretrained(tmp_path / "a")
    (tmp_path / "a" / "model.safetensors").unlink()
    torch.save(vit().state_dict(), tmp_path / "a" / "pytorch_model.bin")
    checkpoint = checkpoints.read(tmp_path / "a")
    assert same_logits(checkpoint.model, vit())
    checkpoint.write(checkpoint.model, tmp_path / "b")
    assert {file.name for file in (tmp_path / "b").iterdir()} == {"config.json", "model.safetensors"}


@pytest.mark.parametrize("pickled", [True, False])
def test_settings_of_generation_that_nothing_uses_come_along(tmp_path: Path, pickled: bool) -> None:
    """As published models have them: a temperature, and no sampling. transformers writes no new ones of that kind."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2, "num_key_value_heads": 2}
    model = LlamaForCausalLM(LlamaConfig(num_hidden_layers=1, vocab_size=30, max_position_embeddings=16, **sizes))
    checkpoints.save(model, tmp_path / "a")
    (tmp_path / "a" / "generation_config.json").write_text('{"do_sample": false, "temperature": 0.9}')
    if pickled:
        torch.save(model.state_dict(), tmp_path / "a" / "pytorch_model.bin")
        (tmp_path / "a" / "model.safetensors").unlink()
    found = checkpoints.read(tmp_path / "a")
    found.write(found.model, tmp_path / "b")
    assert json.loads((tmp_path / "b" / "generation_config.json").read_text())["temperature"] == 0.9


@pytest.mark.parametrize("kind", ["safetensors", "pickled", "lightning"])
def test_constants_of_older_transformers_are_passed_over(tmp_path: Path, kind: str) -> None:
    """Masks of attention that GPT-2 had as buffers, and the number beside them; any other buffer is refused."""
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(n_embd=16, n_layer=2, n_head=4, vocab_size=30, n_positions=16)).eval()
    checkpoints.save(model, place := tmp_path / "a")
    state = load_file(place / "model.safetensors")
    for layer in range(2):
        state[f"transformer.h.{layer}.attn.bias"] = torch.ones(1, 1, 16, 16, dtype=torch.uint8).tril()
        state[f"transformer.h.{layer}.attn.masked_bias"] = torch.tensor(-1e4)
    (place / "model.safetensors").unlink()

    def read() -> nn.Module:
        if kind == "safetensors":
            save_file(state, place / "model.safetensors", metadata={"format": "pt"})
        elif kind == "pickled":
            torch.save(state, place / "pytorch_model.bin")
        else:
            torch.save({"state_dict": {f"net.{k}": v for k, v in state.items()}}, place / "x.ckpt")
        return checkpoints.load(place / "x.ckpt" if kind == "lightning" else place)

    torch.testing.assert_close(read().state_dict(), model.state_dict(), rtol=0, atol=0)
    state["transformer.h.0.attn.masked_weight"] = torch.tensor(-1e4)
    with pytest.raises(InputError, match="masked_weight, which GPT2LMHeadModel does not know"):
        read()


def test_writing_leaves_a_model_as_it_is(tmp_path: Path) -> None:
    """An encoder has no settings of generation, before and after."""
    model = vit()
    before = set(vars(model))
    checkpoints.save(model, tmp_path / "a")
    assert set(vars(model)) == before
    assert "generation_config" not in before


def test_model_without_architectures_is_the_bare_encoder(tmp_path: Path) -> None:
    """Where the config names no class, AutoModel's is taken."""
    ViTModel(vit().config).save_pretrained(tmp_path / "a")
    config = ViTConfig.from_pretrained(tmp_path / "a")
    config.architectures = None
    config.save_pretrained(tmp_path / "a")
    assert isinstance(checkpoints.load(tmp_path / "a"), ViTModel)


def test_side_files_are_kept_and_weights_and_claims_are_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the model is used with comes along; not other weight files, big files, nor what is said of it alone."""
    monkeypatch.setattr(side_files, "SIDE_FILE_BYTES", 1000)
    vit().save_pretrained(tmp_path / "a")
    for name in ("preprocessor_config.json", "tokenizer.json", "vocab.txt", "chat_template.jinja", "spiece.model"):
        (tmp_path / "a" / name).write_text("{}")
    for name in (
        "README.md", "LICENSE", "LICENSE.txt", "NOTICE", "USE_POLICY.md", "training_args.bin", "training_args.json",
        "trainer_state.json", "all_results.json", "eval_results.json", "modeling_own.py", "picture.png",
        ".gitattributes", "optimizer.pt", "rng_state.pth", "mergekit_config.yml",
    ):  # fmt: skip
        (tmp_path / "a" / name).write_bytes(b"x")
    (tmp_path / "a" / "large.txt").write_bytes(bytes(1001))
    (tmp_path / "a" / "just.txt").write_bytes(bytes(1000))
    (tmp_path / "a" / "runs").mkdir()
    checkpoint = checkpoints.read(tmp_path / "a")
    checkpoint.write(checkpoint.model, tmp_path / "b")
    assert {file.name for file in (tmp_path / "b").iterdir()} == {
        "config.json", "model.safetensors", "preprocessor_config.json", "tokenizer.json", "vocab.txt",
        "chat_template.jinja", "spiece.model", "just.txt",
    }  # fmt: skip


@pytest.mark.parametrize("architecture", ["vit_tiny_patch16_224", "deit_tiny_distilled_patch16_224"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_timm_folder_is_timms_own_format(tmp_path: Path, architecture: str, dtype: torch.dtype) -> None:
    """timm itself loads what is written, with the same logits, also for a model with two heads."""
    model = timm_vit(architecture).to(dtype)
    checkpoints.save(model, tmp_path / "a")
    checkpoint = checkpoints.read(tmp_path / "a")
    assert checkpoint.format == "timm"
    checkpoint.write(checkpoint.model, tmp_path / "b")
    again = timm.create_model(f"local-dir:{tmp_path / 'b'}", pretrained=True).to(dtype).eval()
    assert {p.dtype for p in checkpoint.model.parameters()} == {dtype}
    assert same_logits(model, checkpoint.model)
    assert same_logits(model, again)


@pytest.mark.parametrize("make", [vit, timm_vit])
def test_lightning_file_that_describes_its_model(tmp_path: Path, make) -> None:  # type: ignore[no-untyped-def]
    """A task's file is read by itself; written again, the state dict is new and the other entries are kept."""
    model = make()
    state = {f"model.{name}": tensor for name, tensor in model.state_dict().items()} | {"loss.weight": torch.ones(3)}
    entries = {"epoch": 7, "optimizer_states": [{}], "hyper_parameters": {"lr": 0.1}}
    archive = {"state_dict": state, "fusionlab": checkpoints.describe(model), **entries}
    torch.save(archive, tmp_path / "a.ckpt")
    checkpoint = checkpoints.read(tmp_path / "a.ckpt")
    assert checkpoint.format == "lightning"
    assert same_logits(checkpoint.model, model)
    with torch.no_grad():
        next(checkpoint.model.parameters()).add_(1)
    checkpoint.write(checkpoint.model, tmp_path / "b.ckpt")
    written = torch.load(tmp_path / "b.ckpt", weights_only=True)
    assert written["state_dict"].keys() == state.keys()
    assert written["epoch"] == 7
    assert "optimizer_states" not in written
    assert same_logits(checkpoints.load(tmp_path / "b.ckpt"), checkpoint.model)


def test_a_lightning_file_names_the_class_of_its_model(tmp_path: Path) -> None:
    """Whatever class the configuration names, and where that has no head or another one."""
    model = vit()
    described = checkpoints.describe(model)
    for named in (None, ["ViTModel"], ["ViTForMaskedImageModeling"]):
        config = {**described["config"], "architectures": named}
        torch.save(
            {"state_dict": model.state_dict(), "fusionlab": {**described, "config": config}}, tmp_path / "a.ckpt"
        )
        found = checkpoints.load(tmp_path / "a.ckpt")
        assert type(found) is type(model)
        assert same_logits(found, model)


def test_foreign_lightning_file_with_a_config_beside_it(tmp_path: Path) -> None:
    """Any prefix is found, and names of older transformers versions are translated on the way in."""
    vit().save_pretrained(tmp_path)
    on_disk = load_file(tmp_path / "model.safetensors")
    (tmp_path / "model.safetensors").unlink()
    torch.save({"state_dict": {f"net.encoder.{k}": v for k, v in on_disk.items()}}, tmp_path / "x.ckpt")
    assert same_logits(checkpoints.load(tmp_path / "x.ckpt"), vit())


def test_save_like_takes_the_side_files(tmp_path: Path) -> None:
    """`like` gives the format and the side files, not the weights."""
    vit().save_pretrained(tmp_path / "a")
    (tmp_path / "a" / "preprocessor_config.json").write_text("{}")
    changed = vit(num_labels=5)
    checkpoints.save(changed, tmp_path / "b", like=tmp_path / "a")
    assert (tmp_path / "b" / "preprocessor_config.json").exists()
    assert same_logits(checkpoints.load(tmp_path / "b"), changed)


def test_a_model_is_saved_like_an_adapter(tmp_path: Path) -> None:
    """As a whole model, as its base model is stored, with the adapter's own tokenizer."""
    made(tmp_path, *CASES["plain"])
    (tmp_path / "adapter" / "tokenizer.json").write_text("{}")
    (tmp_path / "base" / "preprocessor_config.json").write_text("{}")
    model = checkpoints.load(tmp_path / "adapter")
    checkpoints.save(model, tmp_path / "saved", like=tmp_path / "adapter")
    torch.testing.assert_close(checkpoints.load(tmp_path / "saved").state_dict(), model.state_dict(), rtol=0, atol=0)
    written = {path.name for path in (tmp_path / "saved").iterdir()}
    assert written >= {"config.json", "model.safetensors", "tokenizer.json", "preprocessor_config.json"}
    assert "adapter_config.json" not in written


def test_a_written_folder_needs_nothing_of_its_source(tmp_path: Path) -> None:
    """The output loads after the source is gone."""
    vit().save_pretrained(tmp_path / "a")
    checkpoint = checkpoints.read(tmp_path / "a")
    checkpoint.write(checkpoint.model, tmp_path / "b")
    shutil.rmtree(tmp_path / "a")
    assert same_logits(checkpoints.load(tmp_path / "b"), vit())


def test_writing_another_class_is_refused(tmp_path: Path) -> None:
    """A checkpoint's config describes one class only."""
    vit().save_pretrained(tmp_path / "a")
    with pytest.raises(TypeError, match="ViTForImageClassification"):
        checkpoints.read(tmp_path / "a").write(timm_vit(), tmp_path / "b")
