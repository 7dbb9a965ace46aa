"""Names of models: what tells their paths apart, without what trainers write into every path."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from fusionlab.checkpoints.names import short_names
from fusionlab.errors import InputError

FILE = "checkpoints/epoch=0-step=94.ckpt"


@pytest.mark.parametrize(
    ("paths", "expected"),
    [
        (["models/a", "models/b"], ["a", "b"]),
        (["one/model", "two/model"], ["one", "two"]),
        (["me/bert", "you/bert"], ["me/bert", "you/bert"]),
        ([f"logs/imdb/version_0/{FILE}", f"logs/yelp/version_0/{FILE}"], ["imdb", "yelp"]),
        ([f"logs/imdb/version_0/{FILE}", f"logs/imdb/version_1/{FILE}"], ["version_0", "version_1"]),
        ([f"logs/imdb/version_0/{FILE}", "models/b"], ["imdb", "b"]),
        (
            ["x/version_0/checkpoints/epoch=0.ckpt", "x/version_0/checkpoints/epoch=1.ckpt"],
            ["epoch=0", "epoch=1"],
        ),
        ([f"logs/vit/version_0/{FILE}", f"logs2/vit/version_0/{FILE}"], ["vit", "logs2/vit"]),
        (["run1/checkpoint-500", "run2/checkpoint-500"], ["run1", "run2"]),
        (["a/last.ckpt", "b/best.ckpt"], ["a", "b"]),
        (["fused_ab/merged", "fused_cd/merged.ckpt"], ["fused_ab", "fused_cd"]),
    ],
)
def test_what_tells_paths_apart(
    paths: Sequence[str], expected: Sequence[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For paths that exist and for hub ids alike."""
    monkeypatch.chdir(tmp_path)
    assert short_names(paths) == expected
    for path in paths:
        Path(path).mkdir(parents=True)
    assert short_names(paths) == expected


def test_names_that_are_given() -> None:
    assert short_names(["x/a", "x/b"], ["reviews", "tweets"]) == ["reviews", "tweets"]


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        (["one"], "names has 1 names for 2 models"),
        (["one", "one"], "names has 'one' twice"),
        (["one", "../two"], "names has '../two'"),
        (["one", " "], "expected names without slashes"),
    ],
)
def test_names_that_cannot_be(names: Sequence[str], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        short_names(["x/a", "x/b"], names)


def test_the_same_twice(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="named twice"):
        short_names([str(tmp_path), f"{tmp_path}/."])
