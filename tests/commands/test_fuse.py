"""`fusionlab fuse`: the output folder is complete and its numbers are those of the models in it."""

import csv
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch import nn

import fusionlab
from fusionlab import checkpoints
from fusionlab.bfloat16 import emulation_told
from fusionlab.cli import main
from fusionlab.trainers import quiet_trainer
from tests.commands.conftest import Command
from tests.commands.fused import Rows, rows, value
from tests.commands.small import digit_scores, vit, weights


def without_seconds(found: Rows) -> Rows:
    return [{name: given for name, given in row.items() if name != "seconds"} for row in found]


def same(first: nn.Module, second: nn.Module) -> bool:
    left, right = first.state_dict(), second.state_dict()
    return all(torch.equal(left[name], right[name]) for name in left)


@pytest.fixture(scope="module")
def fused(ckpts: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One run on the digits, matched by the paper, with all else at its default."""
    output = tmp_path_factory.mktemp("fuse") / "out"
    paths = [str(ckpts / name) for name in "ab"]
    assert main(["fuse", "--ckpts", *paths, "--match", "paper", "--data", "Digits", "--output", str(output)]) == 0
    return output


def test_folder_is_complete(fused: Path) -> None:
    """Checkpoint, numbers, report, plots and logs are all there, and nothing temporary beside them."""
    assert {path.name for path in fused.iterdir()} == {
        "merged", "results.json", "results.csv", "report.html", "plots", "tensorboard", "fusionlab.yaml",
    }  # fmt: skip
    assert {path.suffix for path in (fused / "plots").iterdir()} == {".png"}
    assert len(list((fused / "plots").iterdir())) >= 3
    assert list((fused / "tensorboard").rglob("events.out.tfevents.*"))
    assert [path.name for path in fused.parent.iterdir()] == ["out"]
    report = (fused / "report.html").read_text()
    assert report.count("<svg ") >= 6
    assert "fusionlab fuse --ckpts" in report


def test_every_model_is_measured_as_it_is(fused: Path, ckpts: Path) -> None:
    """End models, the unmatched and the matched merge: each row equals a direct evaluation of that very model."""
    a, b = checkpoints.load(ckpts / "a"), checkpoints.load(ckpts / "b")
    expected = {
        ("a", "end model", "-"): a,
        ("b", "end model", "-"): b,
        ("a + b", "simple", "none"): fusionlab.merge([a, b]),
        ("a + b", "simple", "paper"): checkpoints.load(fused / "merged"),
    }
    found = rows(fused)
    for (models, method, matching), model in expected.items():
        for metric, score in digit_scores(model).items():
            measured = value(
                found, models=models.split(" + "), method=method, matching=matching, metric=metric, data_set="digits"
            )
            assert measured == pytest.approx(score, rel=1e-5)
    assert len({value(found, method="simple", matching=m, metric="loss") for m in ("none", "paper")}) == 2
    scored = [row for row in found if row["metric"] in ("loss", "accuracy")]
    assert len(scored) == 10, "two end models, their ensemble, two merges"
    assert all(row["domain"] == "in" for row in scored)


def test_the_card_has_the_scores_as_metadata(fused: Path) -> None:
    """Those of the merge that lies beside it, as the hub reads them."""
    head = yaml.safe_load((fused / "merged" / "README.md").read_text().split("---\n")[1])
    ((entry,), (result,)) = (head["model-index"], head["model-index"][0]["results"])
    assert head["pipeline_tag"] == result["task"]["type"] == "image-classification"
    assert entry["name"] == "Merging a and b"
    told = {one["type"]: one["value"] for one in result["metrics"]}
    for metric in ("accuracy", "loss"):
        measured = value(rows(fused), method="simple", matching="paper", metric=metric, data_set="digits")
        assert told[metric] == pytest.approx(measured, abs=1e-6)


def test_merged_checkpoint_is_match_then_merge(fused: Path, ckpts: Path) -> None:
    """What is saved is bit by bit what the Python calls give, with the first model's side files."""
    models = [checkpoints.load(ckpts / name) for name in "ab"]
    assert same(checkpoints.load(fused / "merged"), fusionlab.fuse(models, "paper"))
    assert not same(fusionlab.fuse(models, "paper"), fusionlab.merge(models))
    assert (fused / "merged" / "preprocessor_config.json").exists()


def test_distances_and_barriers(fused: Path, ckpts: Path) -> None:
    """Distances are those between the models and their twins, barriers those of the lines on the same data."""
    a, b = (checkpoints.load(ckpts / name) for name in "ab")
    twin = fusionlab.align([a, b])[1]
    for matching, model in (("none", b), ("paper", twin)):
        parts = [(p - q).double().square().sum() for p, q in zip(a.parameters(), model.parameters(), strict=True)]
        expected = float(torch.stack(parts).sum().sqrt().detach())
        measured = value(rows(fused), metric="distance_to_anchor", matching=matching)
        assert measured == pytest.approx(expected, rel=1e-6)
        barrier = value(rows(fused), metric="barrier", matching=matching)
        losses = []
        for index in range(11):
            point = vit()
            with torch.no_grad():
                for p, start, end in zip(point.parameters(), a.parameters(), model.parameters(), strict=True):
                    p.copy_(start + index / 10 * (end - start))
            losses.append(digit_scores(point)["loss"])
        chord = [losses[0] + index / 10 * (losses[-1] - losses[0]) for index in range(11)]
        heights = [loss - straight for loss, straight in zip(losses, chord, strict=True)]
        assert barrier == pytest.approx(max(heights), rel=1e-4, abs=1e-5)


def test_csv_says_what_json_says(fused: Path) -> None:
    """The same rows in the same order."""
    with (fused / "results.csv").open() as file:
        table = list(csv.DictReader(file))
    found = rows(fused)
    assert [row["models"] for row in table] == [" + ".join(row["models"]) for row in found]
    assert [float(row["value"]) for row in table] == [row["value"] for row in found]
    assert [row["metric"] for row in table] == [row["metric"] for row in found]


def test_same_seed_same_bytes(fused: Path, ckpts: Path, tmp_path: Path, command: Command) -> None:
    """A second run writes the same weights, and the same numbers apart from the time they took."""
    arguments = ("--ckpts", ckpts / "a", ckpts / "b", "--match", "paper", "--data", "Digits")
    assert command("fuse", *arguments, "--output", tmp_path / "out").code == 0
    assert without_seconds(rows(tmp_path / "out")) == without_seconds(rows(fused))
    first, second = (folder / "merged" / "model.safetensors" for folder in (fused, tmp_path / "out"))
    assert first.read_bytes() == second.read_bytes()


def test_without_data_only_distances(ckpts: Path, tmp_path: Path, command: Command) -> None:
    """The merge is written, distances are, scores are not, and the user is told."""
    models = ("--ckpts", ckpts / "a", ckpts / "b")
    outcome = command("fuse", *models, "--match", "weights", "--output", tmp_path / "out")
    assert (outcome.code, outcome.err) == (0, "")
    assert {row["metric"] for row in rows(tmp_path / "out")} == {"distance_to_anchor", "distance_to_anchor_in_gauge"}
    assert "No data was given" in outcome.out
    assert "No data was given" in (tmp_path / "out" / "report.html").read_text()


def test_matching_none(ckpts: Path, tmp_path: Path, command: Command) -> None:
    """Nothing is matched: the saved merge is the plain mean, and the only one measured."""
    arguments = ("--ckpts", ckpts / "a", ckpts / "b", "--match", "none", "--data", "Digits", "--points", "0")
    assert command("fuse", *arguments, "--output", tmp_path / "out").code == 0
    models = [checkpoints.load(ckpts / name) for name in "ab"]
    assert same(checkpoints.load(tmp_path / "out" / "merged"), fusionlab.merge(models))
    assert "looked at" not in (tmp_path / "out" / "report.html").read_text()
    found = rows(tmp_path / "out")
    assert {row["matching"] for row in found} == {"-", "none"}
    assert {row["metric"] for row in found} == {"loss", "accuracy"}


@pytest.mark.parametrize(
    ("names", "anchor", "index"), [(["a", "b", "c"], "1", 1), (["a", "middle", "b"], "nearest", 1)]
)
def test_three_models_and_another_anchor(
    ckpts: Path, tmp_path: Path, command: Command, names: list[str], anchor: str, index: int
) -> None:
    """All are moved into that model's basis, weights count in the order of the models."""
    paths = [ckpts / name for name in names]
    options = ("--match", "paper", "--anchor", anchor, "--weights", "1", "2", "3")
    assert command("fuse", "--ckpts", *paths, *options, "--output", tmp_path / "out").code == 0
    models = [checkpoints.load(path) for path in paths]
    merged = checkpoints.load(tmp_path / "out" / "merged")
    assert same(merged, fusionlab.fuse(models, "paper", anchor=index, weights=[1, 2, 3]))
    assert not same(merged, fusionlab.fuse(models, "paper", anchor=0, weights=[1, 2, 3]))
    assert all(row["models"][0] == names[index] for row in rows(tmp_path / "out"))


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        (["--match", "paper", "--spaces", "ffn"], {"spaces": ["ffn"]}),
        (["--match", "paper", "--spaces", "attention.vo, heads"], {"spaces": ["attention.vo", "heads"]}),
        (["--match", "paper", "--layers", "last:1"], {"layers": [1]}),
        (["--match", "paper", "--rescale", "off"], {"rescale": "off"}),
        (["--match", "paper", "--rescale", "joint"], {"rescale": "joint"}),
        (["--match", "paper", "--gauge", "balanced"], {"gauge": "balanced"}),
        (["--match", "weights", "--sweeps", "1"], {"preset": "weights", "sweeps": 1}),
    ],
)
def test_options_reach_the_engine(
    ckpts: Path, tmp_path: Path, command: Command, arguments: list[str], options: dict[str, Any]
) -> None:
    """The saved merge is that of the same options in Python, and not that of the defaults."""
    paths = [ckpts / "a", ckpts / "b"]
    assert command("fuse", "--ckpts", *paths, "--output", tmp_path / "out", *arguments).code == 0
    models = [checkpoints.load(path) for path in paths]
    preset = options.pop("preset", "paper")
    merged = checkpoints.load(tmp_path / "out" / "merged")
    assert same(merged, fusionlab.fuse(models, preset, options=options))
    assert not same(merged, fusionlab.fuse(models, preset))
    for option in arguments[::2]:
        if option not in ("--match", "--sweeps"):
            assert option.removeprefix("--") in rows(tmp_path / "out")[-1]["matching"]


def test_yaml_with_lists_of_data(
    ckpts: Path, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A config found by its bare name sets everything; two data sets and one out of domain are told apart."""

    def digits(*classes: int) -> dict[str, Any]:
        return {"class_path": "Digits", "init_args": {"classes": list(classes), "batch_size": 50}}

    config = {
        "ckpts": [str(ckpts / "a"), str(ckpts / "b")],
        "output": "out",
        "spaces": ["attention", "ffn"],
        "match": "paper",
        "layers": 0,
        "points": 0,
        "data": [digits(0, 1, 2), digits(3, 4)],
        "out_of_domain": digits(7),
    }
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text(yaml.safe_dump(config) + "rescale: off\n")
    outcome = command("fuse", "--config", "mine")
    assert (outcome.code, outcome.err) == (0, "")
    merged = checkpoints.load("out/merged")
    models = [checkpoints.load(path) for path in config["ckpts"]]
    assert same(merged, fusionlab.fuse(models, "paper", options={"layers": 0, "rescale": "off"}))
    found = [row for row in rows(Path("out")) if row["method"] == "simple" and row["matching"] != "none"]
    sets = {"digits": ((0, 1, 2), "in"), "digits 2": ((3, 4), "in"), "digits 3": ((7,), "out")}
    assert {row["data_set"] for row in found} == set(sets)
    for name, (classes, domain) in sets.items():
        for metric, score in digit_scores(merged, classes).items():
            assert value(found, data_set=name, domain=domain, metric=metric) == pytest.approx(score, rel=1e-5)


def test_command_line_wins_over_the_config(ckpts: Path, tmp_path: Path, command: Command) -> None:
    """An option after --config replaces the one in the file."""
    (tmp_path / "c.yaml").write_text(yaml.safe_dump({"ckpts": [str(ckpts / "a"), str(ckpts / "b")], "match": "paper"}))
    arguments = ("--config", tmp_path / "c.yaml", "--match", "none", "--output", tmp_path / "out")
    assert command("fuse", *arguments).code == 0
    models = [checkpoints.load(ckpts / name) for name in "ab"]
    assert same(checkpoints.load(tmp_path / "out" / "merged"), fusionlab.merge(models))


@pytest.mark.parametrize(("kind", "precision"), [("half", "32-true"), ("timm", "64-true"), ("lightning", "bf16-mixed")])
def test_other_kinds_of_checkpoint(ckpts: Path, tmp_path: Path, command: Command, kind: str, precision: str) -> None:
    """bfloat16, timm and Lightning checkpoints are measured too, and the merge is of their kind and dtype."""
    suffix = ".ckpt" if kind == "lightning" else ""
    paths = [ckpts / f"{kind}_{name}{suffix}" for name in "ab"]
    options = ("--match", "paper", "--data", "Digits", "--points", "0", "--precision", precision)
    outcome = command("fuse", "--ckpts", *paths, *options, "--output", tmp_path / "out")
    told = emulation_told(quiet_trainer(devices=1, precision=precision))
    assert (outcome.code, outcome.err) == (0, "" if told is None else f"{told}.\n")
    first, merged = checkpoints.read(paths[0]), checkpoints.read(tmp_path / "out" / f"merged{suffix}")
    assert (merged.format, merged.dtypes) == (first.format, first.dtypes)
    measured = value(rows(tmp_path / "out"), method="simple", matching="paper", metric="loss")
    assert measured == pytest.approx(digit_scores(merged.model)["loss"], rel=1e-5 if precision == "32-true" else 0.02)


def test_text_models_without_data(ckpts: Path, tmp_path: Path, command: Command) -> None:
    """BERT models are matched in every space and merged."""
    paths = [ckpts / "bert_a", ckpts / "bert_b"]
    assert command("fuse", "--ckpts", *paths, "--match", "weights", "--output", tmp_path / "out").code == 0
    models = [checkpoints.load(path) for path in paths]
    assert same(checkpoints.load(tmp_path / "out" / "merged"), fusionlab.fuse(models, "weights"))
    assert weights(tmp_path / "out" / "merged").keys() == weights(paths[0]).keys()


@pytest.mark.parametrize(
    ("option", "word"), [(["--correct"], "corrected"), (["--polish", "3"], "polished")], ids=["correct", "polish"]
)
def test_what_follows_the_merge(ckpts: Path, tmp_path: Path, command: Command, option: list[str], word: str) -> None:
    """Unmatched and matched are both corrected (polished), measured beside the plain ones; the matched one is kept."""
    arguments = (
        "--ckpts",
        ckpts / "a",
        ckpts / "b",
        "--match",
        "paper",
        "--data",
        "Digits",
        "--samples",
        "100",
        "--points",
        "0",
        *option,
    )
    outcome = command("fuse", *arguments, "--output", tmp_path / "out")
    assert (outcome.code, outcome.err) == (0, "")
    assert "Matching and merging looked at 100 " in outcome.out
    assert ("synthetic inputs beside so few" in outcome.out) == (word == "polished")
    merged = checkpoints.load(tmp_path / "out" / "merged")
    assert not same(merged, fusionlab.fuse([checkpoints.load(ckpts / name) for name in "ab"], "paper"))
    found = rows(tmp_path / "out")
    loss = {(row["method"], row["matching"]): row["value"] for row in found if row["metric"] == "loss"}
    merges = {key for key in loss if key[1] != "-"}
    assert merges == {(method, m) for method in ("simple", f"simple, {word}") for m in ("none", "paper")}
    assert len(set(loss.values())) == len(loss)
    assert loss[f"simple, {word}", "paper"] == pytest.approx(digit_scores(merged)["loss"], rel=1e-5)
