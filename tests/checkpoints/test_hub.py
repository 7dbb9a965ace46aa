"""Models that are not where they are said to be: the sentence names what lies beside, or what to set."""

from pathlib import Path

import pytest

from fusionlab import checkpoints
from fusionlab.checkpoints.hub import locate
from fusionlab.errors import InputError
from tests.commands.small import vit


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
