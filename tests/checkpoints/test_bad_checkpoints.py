"""Bad input is one sentence that names the file, the parameter and what was expected; no code is ever run."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import ViTModel

from fusionlab import checkpoints
from fusionlab.checkpoints.files import damaged
from fusionlab.errors import InputError
from fusionlab.symmetry import SymmetryError, blueprint
from tests.checkpoints.small_models import timm_vit, vit

State = dict[str, Tensor]


def refusal(path: Path | str) -> str:
    with pytest.raises(InputError) as caught:
        checkpoints.read(path)
    sentence = str(caught.value)
    assert "\n" not in sentence
    return sentence


def edited(folder: Path, edit: Callable[[State], object], library: str = "transformers") -> Path:
    checkpoints.save(vit() if library == "transformers" else timm_vit(), folder)
    state = load_file(folder / "model.safetensors")
    edit(state)
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


class RunsCode:
    """A pickle of this makes a folder when it is loaded."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self.folder),)


def test_nothing_there(tmp_path: Path) -> None:
    """A missing path, and a hub id that cannot be reached."""
    assert "no such file or folder" in refusal(tmp_path / "missing")
    assert "no-such/model-here" in refusal("no-such/model-here")


def test_folder_without_config_or_weights(tmp_path: Path) -> None:
    """The file that is missing is named."""
    assert "config.json" in refusal(tmp_path)
    vit().config.save_pretrained(tmp_path)
    assert "model.safetensors" in refusal(tmp_path)
    (tmp_path / "config.json").write_text("{")
    assert "not a readable JSON" in refusal(tmp_path)


def test_a_file_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not called damaged."""
    file = tmp_path / "model.safetensors"
    monkeypatch.setattr(Path, "open", Mock(side_effect=PermissionError(13, "Permission denied")))
    sentence = str(damaged(file, OSError("No such file or directory")))
    assert sentence == f"{file} cannot be read (Permission denied); expected a file with permission to read it"


@pytest.mark.parametrize("library", ["transformers", "timm"])
@pytest.mark.parametrize("keep", [4, 200, 0.5])
def test_truncated_safetensors(tmp_path: Path, library: str, keep: float) -> None:
    """Cut in the length, the header or the data: the file is named."""
    file = edited(tmp_path / "a", lambda state: None, library) / "model.safetensors"
    content = file.read_bytes()
    file.write_bytes(content[: int(keep if keep > 1 else keep * len(content))])
    assert "model.safetensors is truncated or corrupt" in refusal(tmp_path / "a")


def test_missing_shard(tmp_path: Path) -> None:
    """The shard that the index names is named."""
    vit().save_pretrained(tmp_path, max_shard_size="8KB")
    shard = sorted(tmp_path.glob("model-*.safetensors"))[0]
    shard.unlink()
    assert shard.name in refusal(tmp_path)


@pytest.mark.parametrize("kind", ["safetensors", "bin"])
def test_a_tensor_in_two_shards(tmp_path: Path, kind: str) -> None:
    """Which of them is meant nobody knows: both files and the tensor are named."""
    vit().config.save_pretrained(tmp_path)
    state, name = vit().state_dict(), "classifier.bias"
    names = [f"{'model' if kind == 'safetensors' else 'pytorch_model'}-{part}.{kind}" for part in ("first", "second")]
    for file, part in zip(names, (state, {name: state[name] + 1}), strict=True):
        (save_file if kind == "safetensors" else torch.save)(part, tmp_path / file)
    index = {"weight_map": dict.fromkeys(state, names[0]) | {"other": names[1]}}
    stem = "model" if kind == "safetensors" else "pytorch_model"
    (tmp_path / f"{stem}.{kind}.index.json").write_text(json.dumps(index))
    sentence = refusal(tmp_path)
    assert f"{names[1]} holds the parameter {name}, which {names[0]} holds too" in sentence


def test_index_cannot_lead_out_of_its_folder(tmp_path: Path) -> None:
    """A shard is a file of the folder and nothing else."""
    folder = tmp_path / "a"
    vit().save_pretrained(folder)
    (folder / "model.safetensors").rename(tmp_path / "outside.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"x": "../outside.safetensors"}}))
    assert "outside.safetensors" in refusal(folder)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "evil.ckpt"])
def test_pickle_that_would_run_code_is_refused_and_does_not_run(tmp_path: Path, name: str) -> None:
    """The folder that the pickle would make is not made."""
    vit().config.save_pretrained(tmp_path)
    torch.save({"state_dict": {"a": RunsCode(tmp_path / "made")}}, tmp_path / name)
    assert "refused" in refusal(tmp_path / name if name.endswith(".ckpt") else tmp_path)
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("library", ["transformers", "timm"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_nan_and_infinity(tmp_path: Path, library: str, value: float) -> None:
    """The first parameter with a value that is not finite is named."""
    name = "classifier.weight" if library == "transformers" else "head.weight"
    sentence = refusal(edited(tmp_path / "a", lambda state: state[name].view(-1)[3].fill_(value), library))
    assert name in sentence
    assert "1 value of 48" in sentence


@pytest.mark.parametrize("library", ["transformers", "timm"])
def test_missing_extra_and_misshapen_parameters(tmp_path: Path, library: str) -> None:
    """None is ever left at random or dropped without a word."""
    name = "classifier.bias" if library == "transformers" else "head.bias"
    assert f"lacks the parameter {name}" in refusal(edited(tmp_path / "a", lambda s: s.pop(name), library))
    extra = refusal(edited(tmp_path / "b", lambda s: s.update({"foo.weight": torch.zeros(2)}), library))
    assert "has the parameter foo.weight" in extra
    shape = refusal(edited(tmp_path / "c", lambda s: s.update({name: torch.zeros(7)}), library))
    assert name in shape
    assert "(7,)" in shape
    assert "(3,)" in shape


@pytest.mark.parametrize(
    ("field", "value"), [("architectures", ["NoSuchModel"]), ("architectures", ["AutoConfig"]), ("model_type", "nope")]
)
def test_unknown_class(tmp_path: Path, field: str, value: object) -> None:
    """What the config names is said, and that it is unknown."""
    vit().save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, field: value}))
    assert str(value[0] if isinstance(value, list) else value) in refusal(tmp_path)


def test_unknown_timm_architecture(tmp_path: Path) -> None:
    """The architecture is named."""
    (edited(tmp_path / "a", lambda state: None, "timm") / "config.json").write_text('{"architecture": "nope"}')
    assert "'nope'" in refusal(tmp_path / "a")


def test_lightning_file_without_description(tmp_path: Path) -> None:
    """What could be put beside the file is said."""
    torch.save({"state_dict": vit().state_dict()}, tmp_path / "a.ckpt")
    assert "config.json" in refusal(tmp_path / "a.ckpt")
    torch.save({"weights": 1}, tmp_path / "b.ckpt")
    assert "state_dict" in refusal(tmp_path / "b.ckpt")
    (tmp_path / "c.ckpt").write_bytes(b"not a checkpoint")
    assert "c.ckpt" in refusal(tmp_path / "c.ckpt")


def test_a_lightning_file_whose_class_nobody_names(tmp_path: Path) -> None:
    """A head beside the model says that it is not the bare one; outside of both may stand what does."""
    model = vit()
    config = model.config.to_dict() | {"architectures": None}
    bare = {f"net.vit.{name}": tensor for name, tensor in ViTModel(model.config).state_dict().items()}
    head = {f"net.{name}": tensor for name, tensor in model.state_dict().items() if name.startswith("classifier")}
    (tmp_path / "config.json").write_text(json.dumps(config))
    torch.save({"state_dict": bare | head}, tmp_path / "a.ckpt")
    assert "names no architectures, and net.classifier.weight beside net.vit" in refusal(tmp_path / "a.ckpt")
    torch.save({"state_dict": bare | {"loss.weight": torch.ones(2)}}, tmp_path / "b.ckpt")
    found = checkpoints.read(tmp_path / "b.ckpt")
    assert (type(found.model), found.outside) == (ViTModel, ("loss.weight",))
    (tmp_path / "config.json").write_text(json.dumps(config | {"architectures": ["ViTModel"]}))
    assert checkpoints.read(tmp_path / "a.ckpt").outside == tuple(head)


@pytest.mark.parametrize("make", [vit, timm_vit])
def test_integers_in_a_lightning_file(tmp_path: Path, make: Callable[[], nn.Module]) -> None:
    """In place of a parameter they are refused by its name."""
    model = make()
    name, last = next(reversed(model.state_dict().items()))
    state = {**model.state_dict(), name: torch.ones(last.shape, dtype=torch.int8)}
    torch.save({"state_dict": state, "fusionlab": checkpoints.describe(model)}, tmp_path / "a.ckpt")
    assert f"parameter {name} holds integers" in refusal(tmp_path / "a.ckpt")


def test_a_lightning_file_whose_config_is_no_plain_data(tmp_path: Path) -> None:
    """A pickle holds more than JSON does."""
    model = timm_vit()
    described = checkpoints.describe(model)
    described["config"]["model_args"]["patch_size"] = torch.ones(1)
    torch.save({"state_dict": model.state_dict(), "fusionlab": described}, tmp_path / "a.ckpt")
    assert "its config holds more than plain values" in refusal(tmp_path / "a.ckpt")


@pytest.mark.parametrize("mean", ["xyz", {}, ["a", "b"]])
def test_a_config_that_timm_reads_and_cannot_write(tmp_path: Path, mean: object) -> None:
    """Told when it is read, not after all work."""
    folder = edited(tmp_path / "a", lambda state: None, "timm")
    config = json.loads((folder / "config.json").read_text())
    config["pretrained_cfg"]["mean"] = mean
    (folder / "config.json").write_text(json.dumps(config))
    assert "timm cannot write its config again" in refusal(folder)


def test_fewer_heads_than_none(tmp_path: Path) -> None:
    """timm builds such a model; nothing can be matched or told about it."""
    folder = edited(tmp_path / "a", lambda state: None, "timm")
    config = json.loads((folder / "config.json").read_text())
    config["model_args"]["num_heads"] = -1
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(SymmetryError, match="would have -1 coordinates; expected a model with at least 1"):
        blueprint(checkpoints.read(folder).model)


@pytest.mark.parametrize("content", ['{"watermarking_config": 3}', '{"compile_config": 3}', "[]"])
def test_settings_of_generation_beside_pickled_weights(tmp_path: Path, content: str) -> None:
    """The file is named, whatever its values are."""
    state = load_file(edited(tmp_path / "a", lambda state: None) / "model.safetensors")
    torch.save(state, tmp_path / "a" / "pytorch_model.bin")
    (tmp_path / "a" / "model.safetensors").unlink()
    (tmp_path / "a" / "generation_config.json").write_text(content)
    assert "generation_config.json" in refusal(tmp_path / "a")


def test_devices_among_side_files_are_not_read(tmp_path: Path) -> None:
    """A module folder of sentence-transformers comes along, but no link in it to what never ends or leads elsewhere."""
    folder = edited(tmp_path / "a", lambda state: None)
    (folder / "modules.json").write_text('[{"path": "1_Pooling"}, {"path": 3}]')
    module = folder / "1_Pooling"
    module.mkdir()
    (module / "config.json").write_text("{}")
    (module / "null").symlink_to("/dev/null")
    (module / "again").symlink_to(".")
    os.mkfifo(module / "pipe")
    found = checkpoints.read(folder)
    found.write(found.model, tmp_path / "b")
    assert [path.name for path in (tmp_path / "b" / "1_Pooling").iterdir()] == ["config.json"]


def test_existing_output_is_refused(tmp_path: Path) -> None:
    """Without overwrite what is there stays as it is; with overwrite it is replaced."""
    vit().save_pretrained(tmp_path / "a")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("x")
    checkpoint = checkpoints.read(tmp_path / "a")
    with pytest.raises(InputError, match="exists already"):
        checkpoint.write(checkpoint.model, tmp_path / "out")
    assert (tmp_path / "out" / "mine.txt").exists()
    checkpoint.write(checkpoint.model, tmp_path / "out", overwrite=True)
    assert {file.name for file in (tmp_path / "out").iterdir()} == {"config.json", "model.safetensors"}


def test_interrupted_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped half way, neither an output nor a temporary folder is left, and an old output survives."""
    vit().save_pretrained(tmp_path / "a")
    checkpoint = checkpoints.read(tmp_path / "a")

    def interrupted(model: object, output: Path, **keywords: object) -> None:
        (Path(output) / "model.safetensors").write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(type(checkpoint.model), "save_pretrained", interrupted)
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "mine.txt").write_text("x")
    for name, overwrite in (("new", False), ("old", True)):
        with pytest.raises(KeyboardInterrupt):
            checkpoint.write(checkpoint.model, tmp_path / name, overwrite=overwrite)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "old"]
    assert (tmp_path / "old" / "mine.txt").exists()
