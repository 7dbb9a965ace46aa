"""A tokenizer for the sample, and a cache of data sets of its own."""

from pathlib import Path

import datasets
import pytest
from lightning import seed_everything

from tests.tasks.sample import toy_tokenizer


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is written to the user's cache of data sets, and every test starts from one seed."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    seed_everything(0, verbose=False)


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Folder of the toy tokenizer."""
    return toy_tokenizer(tmp_path_factory.mktemp("tokenizer"))
