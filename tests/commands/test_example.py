"""Modules of one's own on the command line: ``--example FILE.py:FUNCTION``, and state dicts as checkpoints."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from fusionlab.symmetry import blueprint
from tests.commands.conftest import Command
from tests.families.harness import length_preserving

# Two hidden layers, a norm between them, a buffer and a parameter with two names.
SOURCE = """
import torch
from torch import nn
from sizes import WIDTH


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.enter, self.inner, self.leave = nn.Linear(6, WIDTH), nn.Linear(WIDTH, 8), nn.Linear(8, 3)
        self.norm = nn.BatchNorm1d(WIDTH)
        self.again = self.leave

    def forward(self, x):
        return self.again(self.inner(torch.nn.functional.gelu(self.norm(self.enter(x)))).relu())


def make_example():
    print("made")
    torch.manual_seed(5)
    return Net(), {"x": torch.randn(4, 6)}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """``net.py``, and state dicts of one model in two bases: ``a.pt`` and ``b/model.safetensors``."""
    (tmp_path / "sizes.py").write_text("WIDTH = 10\n")
    (tmp_path / "net.py").write_text(SOURCE)
    model, twin = net(tmp_path, 0), net(tmp_path, 0)
    found = blueprint(model, {"x": torch.randn(4, 6)})
    twin = length_preserving(found).apply(twin)
    torch.save(model.state_dict(), tmp_path / "a.pt")
    (tmp_path / "b").mkdir()
    save_file({name: x.clone() for name, x in twin.state_dict().items()}, tmp_path / "b" / "model.safetensors")
    return tmp_path


def net(folder: Path, seed: int) -> Any:
    """The module of the file, with random numbers everywhere; an import of the test's own."""
    namespace: dict[str, Any] = {"__name__": "written_by_the_test"}
    exec((folder / "net.py").read_text().replace("from sizes import WIDTH", "WIDTH = 10"), namespace)
    torch.manual_seed(seed)
    model = namespace["Net"]().eval()
    with torch.no_grad():
        for tensor in [*model.parameters(), *(b for b in model.buffers() if b.is_floating_point())]:
            tensor.copy_(torch.rand(tensor.shape) + 0.2)
    return model


def example(folder: Path) -> tuple[str, str]:
    return "--example", f"{folder / 'net.py'}:make_example"


def loaded(folder: Path, path: Path) -> nn.Module:
    """The module with a state dict, as its author would load it."""
    model = net(folder, 1)
    model.load_state_dict(load_file(path))
    return model


X = torch.randn(7, 6, generator=torch.Generator().manual_seed(3))


def test_two_modules_of_ones_own_are_matched_merged_and_loaded_again(
    folder: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a model and its twin in another basis the plain merge is another model, and with matching it is the model."""
    monkeypatch.setattr("sys.dont_write_bytecode", False)
    expected = net(folder, 0)(X)
    ckpts = (folder / "a.pt", folder / "b")
    assert command("merge", *ckpts, *example(folder), "--output", folder / "plain.safetensors").code == 0
    plain = loaded(folder, folder / "plain.safetensors")
    mean = {n: (torch.load(folder / "a.pt")[n] + t) / 2 for n, t in load_file(folder / "b/model.safetensors").items()}
    torch.testing.assert_close(plain.inner.weight.detach(), mean["inner.weight"])
    assert (plain(X) - expected).abs().max() > 1e-2 * expected.abs().max()

    fused = command("fuse", "--ckpts", *ckpts, *example(folder), "--match", "weights", "--output", folder / "fused")
    assert fused.code == 0, fused.err
    assert (folder / "fused" / "report.html").is_file()
    merged = loaded(folder, folder / "fused" / "merged" / "model.safetensors")
    assert (merged(X) - expected).abs().max() < 1e-4 * expected.abs().max()
    assert "library_name: torch" in (folder / "fused" / "merged" / "README.md").read_text()
    assert not list(folder.rglob("__pycache__"))

    # In a gauge of both the anchor moves too, so that there are two; without, one twin in the anchor's own basis.
    options = ("--anchor", ckpts[0], *example(folder), "--match", "weights")
    assert command("match", ckpts[1], *options, "--output", folder / "twins").code == 0
    twin, anchor = (loaded(folder, folder / "twins" / name) for name in ("b/model.safetensors", "a.safetensors"))
    for model in (twin, anchor):
        assert (model(X) - expected).abs().max() < 1e-4 * expected.abs().max()
    torch.testing.assert_close(twin.inner.weight, anchor.inner.weight, rtol=1e-4, atol=1e-4)
    for output, written in (("twin", "twin/model.safetensors"), ("twin.safetensors", "twin.safetensors")):
        assert command("match", ckpts[1], *options, "--gauge", "none", "--output", folder / output).code == 0
        twin = loaded(folder, folder / written)
        torch.testing.assert_close(twin.inner.weight, net(folder, 0).inner.weight, rtol=1e-4, atol=1e-4)
    assert (folder / "twin.alignment.safetensors").is_file()
    # What was written is read again, in its own type.
    again = command(
        "merge", ckpts[0], folder / "twin", *example(folder), "--output", folder / "2", "--dtype", "bfloat16"
    )
    assert again.code == 0, again.err
    kinds = {tensor.dtype for tensor in load_file(folder / "2" / "model.safetensors").values()}
    assert kinds == {torch.bfloat16, torch.int64}


def test_inspect_tells_the_groups_of_ones_own_module(folder: Path, command: Command) -> None:
    """What the file prints is not among the JSON."""
    outcome = command("inspect", folder / "b", *example(folder), "--json")
    assert outcome.code == 0, outcome.err
    told = json.loads(outcome.out)
    assert {space["group"] for space in told["spaces"]} >= {"S(10)", "S(8)"}
    assert "made" in outcome.err


def test_barrier_draws_the_line_between_ones_own_modules(tmp_path: Path, command: Command) -> None:
    (tmp_path / "net.py").write_text(
        "import torch\nfrom torch import nn\n\n\ndef make():\n"
        "    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 12), nn.ReLU(), nn.Linear(12, 10))\n"
        "    return model, {'input': torch.randn(3, 1, 8, 8)}\n"
    )
    for seed, name in enumerate("ab"):
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Flatten(), nn.Linear(64, 12), nn.ReLU(), nn.Linear(12, 10))
        torch.save(model.state_dict(), tmp_path / f"{name}.pt")
    chosen = ("--example", f"{tmp_path / 'net.py'}:make", "--data", "Digits", "--match", "weights", "--points", "3")
    outcome = command("barrier", tmp_path / "a.pt", tmp_path / "b.pt", *chosen, "--output", tmp_path / "out")
    assert outcome.code == 0, outcome.err
    assert "barrier" in outcome.out


@pytest.mark.parametrize(
    ("source", "name", "told"),
    [
        (None, "make", "which is no Python file; expected one, as module.py:make_example"),
        ("x = 1", "make", "has no function make; expected one that returns (model, example_inputs)"),
        ("make = 1", "make", "has no function make"),
        ("1 / 0", "make", "(ZeroDivisionError: division by zero); expected a function without arguments"),
        ("import nothing_of_this_name", "make", "(ModuleNotFoundError: No module named 'nothing_of_this_name')"),
        ("raise SystemExit(3)", "make", "(SystemExit: 3)"),
        ("def make(size): return 1", "make", "(TypeError: make() missing 1 required positional argument: 'size')"),
        ("def make(: pass", "make", "(SyntaxError: "),
        ("def make(): return 3", "make", "returned a int; expected (model, example_inputs)"),
        ("def make(): return 3, {}", "make", "returned (int, dict); expected"),
        ("from torch import nn\ndef make(): return nn.ReLU(), {}", "make", "returned a dict as example inputs;"),
        ("from torch import nn\ndef make(): return nn.ReLU(), {'x': 3}", "make", "returned a int as the input 'x';"),
        (
            "import torch\ndef make(): return torch.nn.ReLU(), {'x': torch.ones(1, 3)}",
            "make",
            "input 'x' of shape (1, 3); expected a batch of at least two",
        ),
        (
            "import torch\ndef make(): return torch.nn.Linear(2, 2), {'y': torch.ones(2, 2)}",
            "make",
            "got an unexpected keyword argument 'y'",
        ),
        ("", "no-name", "expected a Python file and a function in it, as module.py:make_example"),
    ],
)
def test_an_example_that_is_none_is_one_sentence(
    tmp_path: Path, command: Command, source: str | None, name: str, told: str
) -> None:
    if source is not None:
        (tmp_path / "own.py").write_text(source)
    torch.save({"x": torch.ones(2)}, tmp_path / "a.pt")
    outcome = command("inspect", tmp_path / "a.pt", "--example", f"{tmp_path / 'own.py'}:{name}")
    assert outcome.code == 2
    assert told in outcome.err
    assert len(outcome.err.strip().splitlines()) == 1
    assert outcome.out == ""


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lambda s: s.pop("enter.bias"), "lacks the parameter enter.bias, which Net needs"),
        (lambda s: s.update(other=torch.ones(2)), "has the parameter other, which Net does not know"),
        (lambda s: s.update({"enter.bias": torch.ones(11)}), "has shape (11,), but Net as described by its example"),
        (lambda s: s.update({"enter.bias": torch.ones(10).long()}), "enter.bias holds int64, where Net has float32"),
        (lambda s: s.update({"enter.bias": torch.full((10,), torch.nan)}), "enter.bias holds 10 values of 10 that are"),
        (lambda s: s.update({"again.bias": torch.ones(3)}), "again.bias and leave.bias hold different numbers"),
        (lambda s: s.update({"enter.bias": random.Random(0)}), "is refused: it holds something other than tensors"),
    ],
)
def test_a_state_dict_that_does_not_fit_is_one_sentence(folder: Path, command: Command, damage: Any, told: str) -> None:
    state = torch.load(folder / "a.pt")
    damage(state)
    torch.save(state, folder / "bad.pt")
    merging = ("merge", folder / "bad.pt", folder / "b", *example(folder), "--output", folder / "out")
    outcome = command(*merging)
    assert outcome.code == 2
    assert told in outcome.err
    assert "bad.pt" in outcome.err
    assert not (folder / "out").exists()


@pytest.mark.parametrize(
    ("ckpt", "told"),
    [
        ("nothing.pt", "there is no such file or folder; expected a state dict"),
        ("net.py", "is no state dict; expected a file that ends in .safetensors, .pt, .pth, .bin"),
        ("empty", "holds 0 files of weights; expected model.safetensors, or one state dict"),
    ],
)
def test_what_is_no_state_dict_is_one_sentence(folder: Path, command: Command, ckpt: str, told: str) -> None:
    (folder / "empty").mkdir()
    outcome = command("inspect", folder / ckpt, *example(folder))
    assert outcome.code == 2
    assert told in outcome.err


def test_names_that_a_format_left_out_are_those_of_their_tied_parameter(folder: Path, command: Command) -> None:
    """safetensors' own save_model keeps one name of several."""
    state = torch.load(folder / "a.pt")
    for name in ("again.weight", "again.bias"):
        del state[name]
    torch.save(state, folder / "short.pt")
    out = folder / "out.safetensors"
    assert command("merge", folder / "short.pt", folder / "a.pt", *example(folder), "--output", out).code == 0
    assert (loaded(folder, out)(X) - net(folder, 0)(X)).abs().max() < 1e-5


def test_no_config_and_no_checkpoint_can_name_code(folder: Path, command: Command, tmp_path: Path) -> None:
    """The file is run where the user types its name, and nowhere else; a config beside typed options does not win."""
    canary = tmp_path / "canary"
    (folder / "evil.py").write_text(f"open({str(canary)!r}, 'w')\n\n\ndef make():\n    return None\n")
    evil = f"{folder / 'evil.py'}:make"
    (folder / "config.yaml").write_text(f"example: {evil}\n")
    for more in ((), example(folder)):
        for line in ((*more, "--config", folder / "config.yaml"), ("--config", folder / "config.yaml", *more)):
            outcome = command("inspect", folder / "a.pt", *line)
            # Typed after the config, the typed one counts.
            if line[-1] == folder / "config.yaml" or not more:
                assert outcome.code == 2
                assert "a config names the example" in outcome.err
                assert "expected it on the command line, as --example FILE.py:FUNCTION" in outcome.err
            else:
                assert outcome.code == 0, outcome.err
            assert not canary.exists()
    (folder / "b" / "config.json").write_text(json.dumps({"example": evil, "auto_map": {"AutoModel": evil}}))
    (folder / "b" / "make_example.py").write_text((folder / "evil.py").read_text())
    assert command("inspect", folder / "b", *example(folder)).code == 0
    assert command("inspect", folder / "b").code == 2
    assert not canary.exists()
    # The canary is made by the file itself, where it is asked for.
    assert command("inspect", folder / "a.pt", "--example", evil).code == 2
    assert canary.exists()
