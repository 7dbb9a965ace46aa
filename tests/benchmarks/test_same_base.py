"""The benchmarks of fine-tunes of one base, with models that nobody trained: choice, cells and page."""

import io
import itertools
import json
from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from torch import nn
from transformers import BertConfig, BertModel, ViTConfig, ViTForImageClassification

from tests.benchmarks.examples import word_tokenizer
from tests.parts import long

WORDS = ["a", "good", "bad", "film", "man", "went", "to", "london", "and", "paris"]


@pytest.fixture
def minilm(tmp_path: Path) -> str:
    """A BERT of one layer with a tokenizer of words."""
    folder = word_tokenizer(tmp_path / "minilm", WORDS)
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    BertModel(BertConfig(vocab_size=14, intermediate_size=8, **sizes)).save_pretrained(folder)
    return folder


@pytest.fixture
def texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A set of each kind."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "texts"
    for name in ("glue", "emotion/research_only", "ner/open"):
        (folder / name).mkdir(parents=True)
    rows = [
        {"sentence": f"a {word} film", "label": int(word == "good"), "split": split}
        for split in ("train", "validation")
        for word in ("good", "bad") * 4
    ]
    pd.DataFrame(rows).to_parquet(folder / "glue" / "sst2.parquet")
    felt = [{"text": f"{word} man", "labels": [feeling]} for word, feeling in (("good", "joy"), ("bad", "anger")) * 8]
    pd.DataFrame([{**row, "split": None} for row in felt]).to_parquet(folder / "emotion/research_only/isear.parquet")
    (folder / "emotion/label_sets.json").write_text(json.dumps({"isear": ["anger", "joy"]}))
    sentence = {"tokens": ["man", "went", "to", "london"], "ner_tags": ["O", "O", "O", "B-LOC"]}
    named = [{**sentence, "split": split} for split in ("train", "validation", "test") for _ in range(4)]
    pd.DataFrame(named).to_parquet(folder / "ner/open/uner_english_ewt.parquet")
    return folder


@pytest.fixture
def family(benchmark: Any, monkeypatch: pytest.MonkeyPatch, texts: Path, minilm: str, tmp_path: Path) -> Any:
    """Makes the families of text of some seeds, trained for one step on the first tasks."""
    made = benchmark("same_base_text_models")
    for name, value in {"EPOCHS": 1, "VALIDATED": 2, "TESTED": 6, "LOOKED_AT": 3, "TASKS": made.TASKS[:3]}.items():
        monkeypatch.setattr(made, name, value)
    options = {**made.TASKS[0].options, "val_size": 2}
    monkeypatch.setattr(made, "TASKS", (replace(made.TASKS[0], options=options), *made.TASKS[1:]))
    return lambda seed: made.TextFamily(seed, tmp_path / "models", texts, minilm)


def test_fine_tunes_of_text_have_one_body_and_own_heads(family: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fine-tune under its own body is itself, bodies fit each other, and nothing is trained again."""
    found = family(1)
    bodies = [found.body(model) for model in (found.base, *found.tuned)]
    assert all(body.keys() == bodies[0].keys() for body in bodies)
    assert not [name for name in bodies[0] if "pooler" in name or "classifier" in name]
    assert [model.config.num_labels for model in found.tuned] == [2, 7, 7]
    for place, model in enumerate(found.tuned):
        own = found.score(model, place, "test")
        assert 0 <= own <= 1
        assert found.score(found.under(found.body(model), place), place, "test") == pytest.approx(own)
        moved = found.under(bodies[0], place)
        assert torch.equal(moved.state_dict()["classifier.weight"], model.state_dict()["classifier.weight"])
        assert torch.equal(found.body(moved)["bert.encoder.layer.0.output.dense.weight"],
                           bodies[0]["bert.encoder.layer.0.output.dense.weight"])  # fmt: skip
    again = family(1)
    monkeypatch.setattr("lightning.pytorch.Trainer.fit", lambda *_, **__: pytest.fail("trained again"))
    for one, other in zip(found.tuned, again.tuned, strict=True):
        assert all(torch.equal(tensor, other.state_dict()[name]) for name, tensor in one.state_dict().items())


@long
def test_adapters_are_changes_of_low_rank(benchmark: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In every matrix of the layers, and nowhere else in the body; heads are those of a fine-tune of the whole body."""
    made = benchmark("same_base_models")
    monkeypatch.setattr(made, "RANK", 2)
    monkeypatch.setattr(made, "TASKS", made.TASKS[:2])
    monkeypatch.setattr(made, "pretrained", lambda model, *_: model.eval())
    found, whole = made.AdapterFamily(1, tmp_path / "adapters"), made.DigitsFamily(1, tmp_path / "whole")
    body = found.body(found.base)
    for model, other in zip(found.tuned, whole.tuned, strict=True):
        changes = {name: tensor - body[name] for name, tensor in found.body(model).items()}
        moved = {name for name, change in changes.items() if change.abs().max() > 0}
        assert moved == {name for name, change in changes.items() if ".layers." in name and change.ndim == 2}
        assert all(torch.linalg.matrix_rank(changes[name], rtol=1e-4) <= 2 for name in moved)
        heads = [one.state_dict()["classifier.weight"] for one in (model, other)]
        # Descended twice, so alike but for rounding.
        torch.testing.assert_close(*heads, rtol=0, atol=1e-4)


def test_inputs_of_text_are_training_texts_without_labels(family: Any) -> None:
    """As many as methods look at, or as many as are asked for, drawn by the seed."""
    found = family(1)
    for place in range(3):
        looked = found.inputs(place)
        assert sum(len(batch["input_ids"]) for batch in looked) == 3
        assert not any("labels" in batch for batch in [*looked, *found.inputs(place, 2)])
        assert sum(len(batch["input_ids"]) for batch in found.inputs(place, 2)) == 2


@pytest.fixture
def digits(benchmark: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """The setting of digits with models that nobody trained, few methods and few seeds; and the arguments."""
    command, settings = benchmark("same_base"), benchmark("same_base_settings")

    def moved(model: nn.Module, *_: Any) -> nn.Module:
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.1 * torch.randn(parameter.shape))
        return model.eval()

    @torch.no_grad()
    def sure(model: nn.Module, images: tuple[torch.Tensor, torch.Tensor]) -> float:
        """The mean probability of the label, which is never 0."""
        return float(model(pixel_values=images[0]).logits.softmax(-1)[range(len(images[1])), images[1]].mean())

    whole = benchmark("same_base_models").splits()
    few_images = {name: (pixels[:20], labels[:20]) for name, (pixels, labels) in whole.items()}
    monkeypatch.setattr(benchmark("same_base_models"), "splits", lambda: few_images)
    monkeypatch.setattr(benchmark("same_base_models"), "descended", moved)
    monkeypatch.setattr(benchmark("same_base_models"), "accuracy", sure)
    grids: dict[str, list[dict[str, Any]]] = {"simple": [], "task_arithmetic": [{"lambda_": 2.0}], "regmean": []}
    monkeypatch.setattr(command, "GRIDS", grids)
    data: dict[str, Any] = {"simple": None, "tsv_m": [{}], f"task_arithmetic{settings.SEARCHED}": [{"trials": 2}]}
    few = {"counts": (2, 8), "tuning": (11,), "test": (1, 2), "with_data": data, "steps": (1, 2)}
    few |= {"inputs": (3,), "tried_on": 4}
    return replace(settings.SETTINGS["digits"], **few), Namespace(models=tmp_path / "models", results=tmp_path)


@long
def test_each_cell_is_measured_once(
    digits: Any, benchmark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every setting on tuning models, the defaults and what is best there on the test models; then nothing again."""
    command, data = benchmark("same_base"), benchmark("same_base_data")
    setting, args = digits
    cells = command.Cells(tmp_path / "same_base.json")
    command.measure(setting, cells, args)
    best = cells.found["chosen"]
    for count in setting.counts:
        tried = {
            name: cells.found[command.cell_name("validation", 11, count, "task_arithmetic", given)]["scores"]
            for name, given in (("plain", {}), ("twice", {"lambda_": 2.0}))
        }
        own = cells.found["validation 11 ends"]["own"][:count]
        kept = {name: sum(s / o for s, o in zip(scores, own, strict=True)) for name, scores in tried.items()}
        wanted = {"lambda_": 2.0} if kept["twice"] > kept["plain"] else {}
        assert best[f"{count} task_arithmetic"] == wanted
        for seed in setting.test:
            assert len(cells.found[command.cell_name("test", seed, count, "regmean", {})]["scores"]) == count
    more = command.Cells(tmp_path / "same_base_data.json")
    data.measure(setting, more, args)
    assert len(more.found[command.cell_name("test", 1, 8, "task_arithmetic, searched", {"trials": 2})]["trials"]) == 2
    monkeypatch.setattr(command.Measuring, "models", property(lambda _: pytest.fail("models were read again")))
    command.measure(setting, command.Cells(tmp_path / "same_base.json"), args)
    data.measure(setting, command.Cells(tmp_path / "same_base_data.json"), args)
    command.write_page(setting, tmp_path)
    assert (tmp_path / "same_base.png").read_bytes().startswith(b"\x89PNG")
    page = (tmp_path / "same_base.md").read_text()
    assert page.count("\n| `task_arithmetic` |") == 3
    assert "\n| 3 |" in page
    tried = page[page.index("Steps and rate were chosen") :]
    assert [row.split(" | ")[0] for row in tried.splitlines()[5:]] == ["| 0", "| 1", "| 2"]
    assert "over the seeds 1, 2." in page
    assert "trained again" not in page
    assert "Not measured" not in page
    more.keep("test 1 ends", {**more.found["test 1 ends"], "own": [0.5] * 8})
    command.write_page(setting, tmp_path)
    assert "trained again for it" in (tmp_path / "same_base.md").read_text()
    cells.drop(command.cell_name("test", 2, 8, "regmean", {}))
    command.write_page(setting, tmp_path)
    page = (tmp_path / "same_base.md").read_text()
    assert "Not measured so far: `regmean`." in page
    assert "\n| `regmean` |" not in page.partition("## With data")[0]


@long
def test_cells_of_other_models_are_dropped(digits: Any, benchmark: Any, tmp_path: Path) -> None:
    """Where a seed's models are not those that were measured, its cells are measured with the present ones."""
    command = benchmark("same_base")
    setting, args = digits
    setting = replace(setting, test=(1,), counts=(8,))
    cells = command.Cells(tmp_path / "same_base.json")
    command.measure(setting, cells, args)
    name = command.cell_name("test", 1, 8, "simple", {})
    right, kept = cells.found[name], command.cell_name("validation", 11, 8, "simple", {})
    missing = command.cell_name("test", 1, 8, "regmean", {})
    cells.keep("test 1 ends", {"own": [0.5] * 8, "base": [0.5] * 8})
    cells.keep(name, {"scores": [0.25] * 8, "seconds": 0.0})
    cells.keep(kept, {"scores": [0.125] * 8, "seconds": 0.0})
    del cells.found[missing]
    command.measure(setting, cells, args)
    assert cells.found[name]["scores"] == right["scores"]
    assert missing in cells.found
    assert cells.found[kept]["scores"] == [0.125] * 8


@pytest.fixture
def photos(benchmark: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """A family of photos by seed, with few photos of noise and a base model that nobody trained."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    made, drawn = benchmark("same_base_photo_models"), np.random.default_rng(0)
    for name, value in {"SEEN": 2, "OTHERS": 20, "TRAINED": 6, "VALIDATED": 4, "TESTED": 3, "EPOCHS": 1}.items():
        monkeypatch.setattr(made, name, value)
    folder = tmp_path / "photos"
    folder.mkdir()
    for split, count in (("train", 20), ("test", 5)):
        shown = [Image.fromarray(drawn.integers(0, 255, (32, 32, 3), dtype=np.uint8)) for _ in range(count)]
        rows = {"image": [png(image) for image in shown], "label": [place % 10 for place in range(count)]}
        pd.DataFrame(rows).to_parquet(folder / f"{split}-00000-of-00001.parquet")
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "num_labels": 10}
    config = ViTConfig(image_size=32, patch_size=16, intermediate_size=8, **sizes)
    ViTForImageClassification(config).save_pretrained(tmp_path / "base")
    return lambda seed: made.PhotoFamily(seed, tmp_path / "models", folder, tmp_path / "base")


def png(image: Image.Image) -> bytes:
    file = io.BytesIO()
    image.save(file, "PNG")
    return file.getvalue()


@long
def test_fine_tunes_on_photos_have_images_and_heads_of_their_own(photos: Any) -> None:
    """Those of a seed are kept; photos of the tasks are the same ones, changed, and none is in two splits."""
    found, again, other = photos(1), photos(1), photos(2)
    turned, digits, coloured = (found.images(place, "tuned")[0] for place in (0, 1, 2))
    assert [len(found.images(place, "tuned")[0]) for place in (0, 2)] == [6, 6]
    assert digits.shape[1:] == turned.shape[1:] == (3, 32, 32)
    torch.testing.assert_close(turned.rot90(-1, (2, 3)), -coloured[:, [1, 2, 0]])
    assert not torch.equal(turned, other.images(0, "tuned")[0])
    shown = torch.cat([found.images(2, split)[0].flatten(1) for split in ("tuned", "validation", "test")])
    assert len(shown.unique(dim=0)) == len(shown) == 6 + 4 + 3
    assert found.images(5, "test")[1].tolist() == [0, 0, 1]
    heads = [model.state_dict()["classifier.weight"] for model in found.tuned]
    assert not any(torch.equal(one, two) for one, two in itertools.combinations(heads, 2))
    assert all(0 <= found.score(model, place, "test") <= 1 for place, model in enumerate(found.tuned))
    for one, two in zip(found.tuned, again.tuned, strict=True):
        assert all(torch.equal(tensor, two.state_dict()[name]) for name, tensor in one.state_dict().items())
