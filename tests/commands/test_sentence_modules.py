"""Merges of sentence-transformers folders have all modules, with the weights of dense layers merged."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from scipy.stats import spearmanr
from torch import Tensor

from fusionlab.checkpoints.sentence_modules import other_modules
from fusionlab.commands import merge_models
from tests.checkpoints.embedding_models import embedding_model
from tests.commands.conftest import Command

FILE = Path("2_Dense") / "model.safetensors"


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two models, and what both could come from."""
    folder = tmp_path_factory.mktemp("embedding")
    return [embedding_model(folder / name, seed) for seed, name in enumerate(("a", "b", "base"))]


def dense(folder: Path) -> dict[str, Tensor]:
    return load_file(folder / FILE)


def test_all_modules_are_carried_and_their_weights_merged(models: list[Path], tmp_path: Path, command: Command) -> None:
    """The weighted mean, whether the method goes by parameters or looks at layers; pooling as it was."""
    a, b, _ = models
    for method in ("simple", "circuit"):
        output = tmp_path / method
        outcome = command("merge", a, b, "--method", method, "--weights", 1, 3, "--output", output)
        assert (outcome.code, outcome.err) == (0, "")
        assert "modules beside the transformers (2_Dense)" in outcome.out
        for name, tensor in dense(output).items():
            torch.testing.assert_close(tensor, 0.25 * dense(a)[name] + 0.75 * dense(b)[name])
        for name in ("modules.json", "1_Pooling/config.json", "2_Dense/config.json", "3_Normalize/config.json"):
            assert (output / name).read_bytes() == (a / name).read_bytes()


def test_task_vectors_of_modules(models: list[Path], tmp_path: Path, command: Command) -> None:
    """A method with a base model takes the base's own module."""
    a, b, base = models
    line = ["merge", a, b, "--method", "task_arithmetic", "--hyperparameters.lambda_", 0.5, "--output", tmp_path / "m"]
    assert command(*line, "--base", base).code == 0
    for name, tensor in dense(tmp_path / "m").items():
        w = dense(base)[name]
        torch.testing.assert_close(tensor, w + 0.25 * (dense(a)[name] - w + dense(b)[name] - w))


def test_modules_of_two_types_are_merged_in_the_wider_one(models: list[Path], tmp_path: Path, command: Command) -> None:
    """Numbers between the narrow ones are not rounded to them before they are averaged."""
    a = embedding_model(tmp_path / "a", 0)
    narrow = {name: tensor.to(torch.bfloat16) for name, tensor in dense(a).items()}
    save_file(narrow, a / FILE)
    assert command("merge", a, models[1], "--output", tmp_path / "m").code == 0
    for name, tensor in dense(tmp_path / "m").items():
        assert tensor.dtype == torch.float32
        torch.testing.assert_close(tensor, (narrow[name].float() + dense(models[1])[name]) / 2)


def test_pickled_weights(models: list[Path], tmp_path: Path, command: Command) -> None:
    """A first model with a pickled layer: the merge has safetensors alone, in the type that is asked for."""
    a = embedding_model(tmp_path / "a", 0)
    torch.save(dense(a), a / "2_Dense" / "pytorch_model.bin")
    (a / FILE).unlink()
    assert command("merge", a, models[1], "--dtype", "bfloat16", "--output", tmp_path / "m").code == 0
    assert sorted(path.name for path in (tmp_path / "m" / "2_Dense").iterdir()) == ["config.json", "model.safetensors"]
    assert {tensor.dtype for tensor in dense(tmp_path / "m").values()} == {torch.bfloat16}


def test_a_twin_keeps_its_modules(models: list[Path], tmp_path: Path, command: Command) -> None:
    """Matching leaves the embedding as it is, so what reads it stays too."""
    assert command("match", models[0], "--anchor", models[1], "--output", tmp_path / "twin").code == 0
    assert (tmp_path / "twin" / FILE).read_bytes() == (models[0] / FILE).read_bytes()


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        ("pooling", "the module 1_Pooling of b is another than 1_Pooling of a"),
        ("no modules", "b has no modules.json"),
        ("fewer", "b has 2 modules beside its transformer, but a has 3"),
        ("no weights", "the module 2_Dense of b is a Dense without weights"),
        ("infinite", "linear.bias holds NaN or infinite values"),
        ("list", "modules.json holds 3; expected a list of modules"),
        ("outside", "has a module in '../a'; expected the name of a folder"),
    ],
)
def test_models_that_embed_in_other_ways_are_refused(
    models: list[Path], tmp_path: Path, command: Command, damage: str, words: str
) -> None:
    """One sentence, and nothing written."""
    b = embedding_model(tmp_path / "b", 1, pooling="cls" if damage == "pooling" else "mean")
    listed = json.loads((b / "modules.json").read_text())
    if damage == "no modules":
        (b / "modules.json").unlink()
    elif damage == "no weights":
        (b / FILE).unlink()
    elif damage == "infinite":
        save_file(dense(b) | {"linear.bias": torch.full((8,), float("inf"))}, b / FILE)
    elif damage in ("fewer", "list", "outside"):
        changed = {"fewer": listed[:3], "list": [3], "outside": [listed[0], listed[1] | {"path": "../a"}]}[damage]
        (b / "modules.json").write_text(json.dumps(changed))
    outcome = command("merge", models[0], b, "--output", tmp_path / "m")
    assert (outcome.code, words in outcome.err) == (2, True), outcome.err
    assert not (tmp_path / "m").exists()


def test_other_modules_are_refused_before_merging(
    models: list[Path], tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where whole models are merged."""
    monkeypatch.setattr(merge_models, "run_stages", lambda *_: pytest.fail("was merged"))
    b = embedding_model(tmp_path / "b", 1, pooling="cls")
    outcome = command("merge", models[0], b, "--method", "pcb", "--base", models[2], "--output", tmp_path / "m")
    assert (outcome.code, "the module 1_Pooling of b is another" in outcome.err) == (2, True)


def test_weights_that_all_lack_are_missed(tmp_path: Path, command: Command) -> None:
    """Two folders without the weights of their dense layers are no models that have none."""
    places = [embedding_model(tmp_path / name, seed) for seed, name in enumerate("ab")]
    for place in places:
        (place / FILE).unlink()
    outcome = command("merge", *places, "--output", tmp_path / "m")
    assert (outcome.code, "the module 2_Dense of a is a Dense without weights" in outcome.err) == (2, True)


def test_sentence_transformers_loads_the_merge(models: list[Path], tmp_path: Path, command: Command) -> None:
    """The merge of a model with itself embeds as the model does; another merge embeds too."""
    library = pytest.importorskip("sentence_transformers")
    texts = ["a b c", "d e f g", "z"]
    shutil.copytree(models[0], tmp_path / "again")
    for name, other in (("same", tmp_path / "again"), ("other", models[1])):
        assert command("merge", models[0], other, "--output", tmp_path / name).code == 0
    own, same, other = (
        library.SentenceTransformer(str(path), device="cpu").encode(texts)
        for path in (models[0], tmp_path / "same", tmp_path / "other")
    )
    assert own.shape == (3, 8)
    np.testing.assert_allclose(same, own, rtol=0, atol=1e-6)
    assert np.abs(other - own).max() > 1e-3


def test_two_embedding_models_are_measured_before_and_after(
    models: list[Path], tmp_path: Path, command: Command
) -> None:
    """`fuse` tells the correlation of each model, which is that of its embeddings by sentence-transformers, and of the
    merge; what it writes has all modules."""
    draw = torch.Generator().manual_seed(0)
    plain = [embedding_model(tmp_path / name, seed, dense=False) for seed, name in enumerate("ab")]
    letters = [[chr(97 + int(i)) for i in torch.randint(0, 26, (4,), generator=draw)] for _ in range(60)]
    texts = [" ".join(words) for words in letters]
    labels = torch.rand(30, generator=draw).tolist()
    rows = [f"{a},{b},{n}" for a, b, n in zip(texts[::2], texts[1::2], labels, strict=True)]
    (tmp_path / "pairs.csv").write_text("\n".join(["sentence1,sentence2,score", *rows]))
    data = ["--data", "EmbeddingSimilarity", "--data.path", tmp_path / "pairs.csv", "--data.tokenizer", plain[0]]
    data += ["--data.train_split", "null", "--data.test_split", "train"]
    outcome = command("fuse", "--ckpts", *plain, *data, "--points", 0, "--json", "--output", tmp_path / "fused")
    assert (outcome.code, outcome.err) == (0, ""), outcome.err
    rows = json.loads(outcome.out)["rows"]
    found = {(row["method"], *row["models"]): row["value"] for row in rows if row["metric"] == "spearman"}
    assert len(found) >= 3
    assert (tmp_path / "fused" / "merged" / "2_Normalize" / "config.json").is_file()
    own = ["--data", tmp_path / "pairs.csv", "--out_of_domain", tmp_path / "pairs.csv"]
    outcome = command(
        "fuse", "--ckpts", *plain, *own, "--match", "none", "--points", 0, "--json", "--output", tmp_path / "guessed"
    )
    assert "how alike they are from `score` (up to 1)" in outcome.err
    guessed = [row for row in json.loads(outcome.out)["rows"] if row["metric"] == "spearman"]
    for key in (("end model", "a"), ("end model", "b")):
        # All of the file is measured on out of domain.
        assert any((r["method"], *r["models"]) == key and r["value"] == pytest.approx(found[key]) for r in guessed)
    library = pytest.importorskip("sentence_transformers")
    for name, path in zip("ab", plain, strict=True):
        embedded = library.SentenceTransformer(str(path), device="cpu").encode(texts)
        cosines = np.sum(embedded[::2] * embedded[1::2], axis=1)
        assert found["end model", name] == pytest.approx(spearmanr(cosines, labels).statistic, abs=1e-3)


def test_modules_that_differ_are_named(models: list[Path], tmp_path: Path) -> None:
    """By weights, kind or config, or as the other has none; not by how weights are stored."""
    a, b, _ = models
    pickled = embedding_model(tmp_path / "pickled", 0)
    torch.save(dense(a), pickled / "2_Dense" / "pytorch_model.bin")
    (pickled / FILE).unlink()
    assert other_modules(a, a) == other_modules(a, pickled) == []
    assert other_modules(a, b) == ["2_Dense"]
    plain = embedding_model(tmp_path / "plain", 0, pooling="cls", dense=False)
    assert other_modules(a, plain) == ["1_Pooling", "2_Dense", "3_Normalize"]
    shutil.rmtree(plain / "1_Pooling")
    (plain / "modules.json").unlink()
    assert other_modules(plain, a) == []
