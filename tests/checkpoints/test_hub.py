"""Models that are not where they are said to be: the sentence names what lies beside, or what to set."""

from pathlib import Path

import huggingface_hub
import pytest

from fusionlab import checkpoints
from fusionlab.checkpoints.hub import locate
from fusionlab.errors import InputError
from tests.checkpoints.embedding_models import embedding_model
from tests.checkpoints.hub_stand_in import asked
from tests.commands.small import vit

# Addresses of files, as the library makes them.
_TEMPLATE = "/{repo_id}/resolve/{revision}/{filename}"


def test_a_name_that_is_nearly_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("models/reviews").mkdir(parents=True)
    for name in ("models/reviws", "./models/reviws", str(tmp_path / "models" / "reviws")):
        with pytest.raises(InputError, match=r"did you mean .*models/reviews\?"):
            locate(name)


def test_without_a_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """The setting is named that keeps the hub away."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(InputError, match="HF_HUB_OFFLINE is set, so nothing is downloaded: unset it, or give a folder"):
        locate("nobody/such-a-model")
    monkeypatch.delenv("HF_HUB_OFFLINE")
    # The library has read it already, so nothing is asked for over the network.
    with pytest.raises(InputError, match=r"check the network .* or give a folder that holds the model"):
        locate("nobody/such-a-model")


def test_an_embedding_model_comes_with_its_layers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights of modules in folders of their own are downloaded, those of other formats in folders are not."""
    made = embedding_model(tmp_path / "made", 0)
    files = {str(path.relative_to(made)): path.read_bytes() for path in made.rglob("*") if path.is_file()}
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    for hub in asked(monkeypatch):
        monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", hub.address)
        monkeypatch.setattr(huggingface_hub.constants, "HUGGINGFACE_CO_URL_TEMPLATE", hub.address + _TEMPLATE)
        hub.files["me/embeds"] = files | {"onnx/model.safetensors": b"of another format"}
        found = locate("me/embeds")
    assert {str(path.relative_to(found)) for path in found.rglob("*") if path.is_file()} == files.keys()
    assert (found / "2_Dense" / "model.safetensors").read_bytes() == files["2_Dense/model.safetensors"]


def test_all_files_of_tokenizers_come_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of Marian, BERTweet, Qwen and others; not weights of another format, nor data."""
    checkpoints.save(vit(), tmp_path / "made")
    files = {path.name: path.read_bytes() for path in (tmp_path / "made").iterdir()}
    tokens = dict.fromkeys(("source.spm", "target.spm", "bpe.codes", "qwen.tiktoken", "merges.txt", "vocab.json"), b"x")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    for hub in asked(monkeypatch):
        monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", hub.address)
        monkeypatch.setattr(huggingface_hub.constants, "HUGGINGFACE_CO_URL_TEMPLATE", hub.address + _TEMPLATE)
        hub.files["me/translates"] = files | tokens | {"rust_model.ot": b"x", "rows.csv": b"x"}
        found = locate("me/translates")
    assert {path.name for path in found.iterdir()} == {*files, *tokens}


def test_checkpoints_inside_a_folder(tmp_path: Path) -> None:
    """A folder that is none names those in it."""
    with pytest.raises(InputError, match=r"has no config.json.*; expected a folder that save_pretrained wrote"):
        checkpoints.read(tmp_path)
    checkpoints.save(vit(), tmp_path / "merged")
    with pytest.raises(InputError, match=r"has no config.json.*; did you mean .*merged in it\?"):
        checkpoints.read(tmp_path)
    run = tmp_path / "run" / "version_0" / "checkpoints"
    run.mkdir(parents=True)
    (run / "epoch=1.ckpt").touch()
    with pytest.raises(InputError, match=r"did you mean .*epoch=1.ckpt in it\?"):
        checkpoints.read(tmp_path / "run")


def test_a_state_dict_alone(tmp_path: Path) -> None:
    (tmp_path / "a.pth").touch()
    with pytest.raises(InputError, match=r"a state dict does not say of which model it is.*--example FILE.py:FUNCTION"):
        checkpoints.read(tmp_path / "a.pth")
