"""A bare config name is found in the working folder, in configs/ under it, then among the shipped ones."""

from pathlib import Path

import pytest

from fusionlab.configs import resolve, shipped_folder
from fusionlab.errors import InputError


def test_nearest_config_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each nearer place hides the farther one, with or without the suffix."""
    monkeypatch.chdir(tmp_path)
    assert resolve("vit_digits").resolve() == shipped_folder() / "vit_digits.yaml"
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "vit_digits.yaml").write_text("")
    assert resolve("vit_digits.yaml") == Path("configs/vit_digits.yaml")
    (tmp_path / "vit_digits.yaml").write_text("")
    assert resolve("vit_digits") == Path("vit_digits.yaml")
    assert resolve("configs/vit_digits.yaml") == Path("configs/vit_digits.yaml")
    assert resolve(tmp_path / "vit_digits.yaml") == tmp_path / "vit_digits.yaml"


def test_unknown_name_says_where_it_was_looked_for_and_what_is_close(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sentence names the places and the close matches."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"did you mean vit_digits\.yaml") as caught:
        resolve("vit_digit")
    assert str(tmp_path) in str(caught.value)
    assert str(shipped_folder()) in str(caught.value)
