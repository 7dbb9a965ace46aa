"""`fusionlab advise` says which case models are, and `fuse --match auto` does what it says."""

import json
from pathlib import Path

import pytest
import torch

import fusionlab
from fusionlab import checkpoints
from fusionlab.advice.situations import ENOUGH
from fusionlab.checkpoints.card import is_twin
from fusionlab.data import Digits
from tests.commands.conftest import Command
from tests.commands.fused import rows, value
from tests.commands.small import digit_scores, vit, weights


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two models a little off one base."""
    folder = tmp_path_factory.mktemp("tuned")
    for seed, name in enumerate("ab"):
        model = vit(0)
        torch.manual_seed(seed)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.02 * torch.randn_like(parameter))
        checkpoints.save(model, folder / name)
    return folder


def test_other_seeds(ckpts: Path, command: Command) -> None:
    outcome = command("advise", ckpts / "a", ckpts / "b")
    assert (outcome.code, outcome.err) == (0, "")
    assert "These are models trained apart (other seeds)" in outcome.out
    assert "vit.encoder.layer.*.output.dense.weight" in outcome.out
    assert f"Run: fusionlab fuse --ckpts {ckpts / 'a'} {ckpts / 'b'} --match learned --method simple" in outcome.out
    assert "Without data: fusionlab fuse" in outcome.out
    assert outcome.out.startswith("a and b"), "in the order of the command"


def test_fine_tunes_as_json(tuned: Path, command: Command) -> None:
    """One document, and nothing else on the standard output."""
    found = json.loads(command("advise", tuned / "a", tuned / "b", "--names", "one", "two", "--json").out)
    assert (found["case"], found["match"], found["models"]) == ("one_base", "none", ["one", "two"])
    assert found["lines"] == []
    assert found["pairs"][0]["matrices"]["cosine"] > 0.99


def test_biases_that_are_zero_in_one_model_alone(ckpts: Path, tmp_path: Path, command: Command) -> None:
    """Empty cells, and null as JSON: they are at no relative distance, which 0 would hide."""
    model = vit(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(parameter.squeeze().dim() > 1)
    checkpoints.save(model, tmp_path / "b")
    outcome = command("advise", ckpts / "a", tmp_path / "b")
    cells = outcome.out.partition("vectors (biases, gains)")[2].split("│")[1:7]
    assert [cell.strip() for cell in cells[1:5]] == ["", "", "", ""]
    found = json.loads(command("advise", ckpts / "a", tmp_path / "b", "--json").out)["pairs"][0]
    assert (found["vectors"]["cosine"], found["vectors"]["relative_distance"]) == (None, None)
    assert found["matrices"]["relative_distance"] > 0


def test_numbers_that_are_not_finite(ckpts: Path, tmp_path: Path, command: Command) -> None:
    """The model that has them is named by its path."""
    model = vit(1)
    model.classifier.bias.data[0] = float("nan")
    checkpoints.save(model, tmp_path / "nan")
    outcome = command("advise", ckpts / "a", tmp_path / "nan")
    assert (outcome.code, outcome.out) == (2, "")
    assert f"{tmp_path / 'nan'}: parameter classifier.bias holds 1 value of" in outcome.err


def test_other_formats(ckpts: Path, command: Command) -> None:
    """A Lightning file and the folder of the same model, whose names differ."""
    assert "the same model twice" in command("advise", ckpts / "lightning_a.ckpt", ckpts / "a").out
    assert "models trained apart" in command("advise", ckpts / "timm_a", ckpts / "timm_b").out


def test_a_line_where_data_are_given(ckpts: Path, command: Command) -> None:
    """Half way between the models as they are; the commands have the data."""
    arguments = ("advise", ckpts / "a", ckpts / "b", "--data", "Digits", "--points", "3")
    found = json.loads(command(*arguments, "--json").out)
    (line,) = found["lines"]
    ends = [digit_scores(checkpoints.load(ckpts / name))["loss"] for name in "ab"]
    assert [line["loss"][0], line["loss"][-1]] == pytest.approx(ends, rel=1e-5)
    assert "--data Digits" in found["commands"][0]
    assert f"{line['loss'][1]:.3f} half way" in command(*arguments).out


def test_advice_where_there_is_no_line(ckpts: Path, tmp_path: Path, command: Command) -> None:
    """Of models with other numbers of classes, which need it most; that no line is measured is said, and why."""
    checkpoints.save(vit(0, num_labels=3), tmp_path / "three")
    line = ("advise", ckpts / "a", tmp_path / "three", "--data", "Digits", "--points", "3")
    outcome = command(*line)
    assert outcome.code == 0, outcome.err
    assert "--heads own" in outcome.out
    assert "No line is measured: " in outcome.out
    found = json.loads(command(*line, "--json").out)
    assert found["lines"] == []
    assert found["unmeasured"].startswith("No line is measured: ")
    wrong = command("advise", ckpts / "a", ckpts / "b", "--data", tmp_path / "nothing.csv")
    assert wrong.code == 2


def test_a_look_at_inputs_where_weights_leave_it_open(tuned: Path, tmp_path: Path, command: Command) -> None:
    """Fine-tunes of one base: what their plain mean says of training inputs decides, in `advise` and in `fuse`."""
    line = ("advise", tuned / "a", tuned / "b", "--data", "Digits", "--points", "3")
    found = json.loads(command(*line, "--json").out)
    data = Digits()
    data.prepare_data()
    data.setup("fit")
    pixels = torch.cat([batch["pixel_values"] for batch in data.train_dataloader()])
    models = [checkpoints.load(tuned / name) for name in "ab"]
    with torch.no_grad():
        middle = fusionlab.merge(models)(pixel_values=pixels).logits.argmax(-1)
        spoken = sum(model(pixel_values=pixels).logits.softmax(-1) for model in models).argmax(-1)
    whole = float((middle == spoken).double().mean())
    assert found["agreement"] == pytest.approx(whole, abs=0.06)
    assert found["match"] == ("none" if found["agreement"] >= ENOUGH else "learned")
    told = command(*line).out
    assert f"Of 512 inputs their plain mean classifies {found['agreement']:.0%} as they do together." in told
    outcome = command(
        *(
            "fuse",
            "--ckpts",
            tuned / "a",
            tuned / "b",
            "--data",
            "Digits",
            "--points",
            "0",
            "--output",
            tmp_path / "out",
        )
    )
    assert "inputs their plain mean classifies" in outcome.out


def test_data_out_of_domain_alone_are_refused(ckpts: Path, command: Command) -> None:
    """They were ignored in silence."""
    outcome = command("advise", ckpts / "a", ckpts / "b", "--out_of_domain", "Digits")
    assert (outcome.code, outcome.out) == (2, "")
    assert "out_of_domain is given without data; expected --data" in outcome.err


def test_a_twin_is_known_by_its_card(ckpts: Path, tmp_path: Path, command: Command) -> None:
    """Where weights alone do not tell: most units are nearest to others, but not by chance."""
    arguments = ("match", ckpts / "a", "--anchor", ckpts / "b", "--match", "weights", "--output", tmp_path / "twins")
    assert command(*arguments).code == 0
    twins = [tmp_path / "twins" / name for name in "ab"]
    assert all(is_twin(twin) for twin in twins)
    assert not is_twin(ckpts / "a")
    assert "models in one basis" in command("advise", *twins).out


def test_bad_input(ckpts: Path, tmp_path: Path, command: Command) -> None:
    for given, words in ((["a"], "1 end model"), (["a", "nowhere"], "no such file")):
        outcome = command("advise", *(ckpts / name for name in given))
        assert (outcome.code, outcome.out) == (2, "")
        assert words in outcome.err
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "config.json").write_text("{}")
    (tmp_path / "broken" / "model.safetensors").write_bytes(b"nothing")
    assert command("advise", ckpts / "a", tmp_path / "broken").code == 2


def test_the_default_matches_nothing_of_fine_tunes(tuned: Path, tmp_path: Path, command: Command) -> None:
    """The merge is the plain mean, and the report says why."""
    outcome = command("fuse", "--ckpts", tuned / "a", tuned / "b", "--output", tmp_path / "out")
    assert (outcome.code, outcome.err) == (0, "")
    assert "So nothing was matched (match: auto)." in outcome.out
    assert "So nothing was matched" in (tmp_path / "out" / "report.html").read_text()
    a, b, merged = (weights(folder) for folder in (tuned / "a", tuned / "b", tmp_path / "out" / "merged"))
    for name, tensor in merged.items():
        torch.testing.assert_close(tensor, (a[name] + b[name]) / 2)


@pytest.mark.parametrize(
    ("given", "options", "told"),
    [
        ([], ["learned", "--steps", "2"], "learned on synthetic inputs"),
        (["--polish.steps", "1"], ["weights"], "weights"),
        (["--data", "Digits", "--points", "0"], ["learned", "--steps", "2"], "learned"),
    ],
    ids=["nothing", "polish", "data"],
)
def test_auto_matches_other_seeds(
    ckpts: Path, tmp_path: Path, command: Command, given: list[str], options: list[str], told: str
) -> None:
    """By learning, on synthetic inputs where there are no others; by weights where these serve a polish."""
    models = (ckpts / "a", ckpts / "b")
    outcome = command("fuse", "--ckpts", *models, "--match", "auto", *options[1:], *given, "--output", tmp_path / "out")
    assert (outcome.code, outcome.err) == (0, "")
    assert f"So the models were matched by {told} (match: auto)." in outcome.out
    matching = " ".join(options).replace(" --", ", ")
    assert value(rows(tmp_path / "out"), metric="distance_to_anchor", matching=matching) > 0


@pytest.mark.parametrize("match", [["--match", "none"], []])
def test_options_of_a_matching_are_not_passed_over(
    tuned: Path, tmp_path: Path, command: Command, match: list[str]
) -> None:
    """Where nothing is matched, whoever said so."""
    line = ("--ckpts", tuned / "a", tuned / "b", *match, "--spaces", "ffn", "--output", tmp_path / "out")
    outcome = command("fuse", *line)
    assert (outcome.code, outcome.out) == (2, "")
    assert "--spaces was given, and nothing is matched" in outcome.err
    assert not (tmp_path / "out").exists()


def test_explicit_matching_is_advised_too(ckpts: Path, tmp_path: Path, command: Command) -> None:
    """The advice stands at the top of every report; what was asked for is done."""
    outcome = command("fuse", "--ckpts", ckpts / "a", ckpts / "b", "--match", "paper", "--output", tmp_path / "out")
    assert outcome.code == 0
    report = (tmp_path / "out" / "report.html").read_text()
    assert "These are models trained apart" in report
    assert "match: auto" not in report
