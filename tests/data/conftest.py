"""A toy tokenizer, and a cache of data sets that is nobody's."""

from pathlib import Path

import datasets
import pytest

from tests.tasks.sample import toy_tokenizer


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is written to the user's cache of data sets."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Folder of the toy tokenizer, which cuts words of more than five letters into letters."""
    return toy_tokenizer(tmp_path_factory.mktemp("tokenizer"))
