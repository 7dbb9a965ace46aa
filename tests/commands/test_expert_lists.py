"""Experts that are modules of a list are matched and merged from files, and come back under their own names."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import fusionlab
from fusionlab.matching.weights import squared_distance
from fusionlab.symmetry import Alignment
from tests.commands.conftest import Command
from tests.symmetry.infer import expert_lists as nets

FILE = """
from tests.symmetry.infer import expert_lists as nets


def make_example():
    return nets.Net(nets.Chosen(nets.Gated), normed=True), nets.example()
"""


def model(seed: int) -> nets.Net:
    torch.manual_seed(seed)
    return nets.Net(nets.Chosen(nets.Gated), normed=True).eval()


@pytest.fixture
def example(tmp_path: Path) -> str:
    (tmp_path / "net.py").write_text(FILE)
    return f"{tmp_path / 'net.py'}:make_example"


def test_two_seeds_in_python() -> None:
    first, second = model(1), model(2)
    found = fusionlab.blueprint(first, nets.example())
    twin = fusionlab.match(second, first, preset="weights").apply(second)
    x = torch.randn(50, 5)
    torch.testing.assert_close(twin(x), second(x), rtol=1e-4, atol=1e-5)
    before, after = (squared_distance(m.state_dict(), first.state_dict()) for m in (second, twin))
    assert after < before
    merged = fusionlab.fuse([first, second], preset="weights")
    assert type(merged) is nets.Net
    assert list(merged.state_dict()) == list(first.state_dict())
    hidden = Alignment.random(found, torch.Generator().manual_seed(3)).elements
    orders = {name: e for name, e in hidden.items() if not e.is_floating_point()}
    planted = Alignment(found, orders).apply(first)
    back = fusionlab.match(planted, first, preset="weights").apply(planted)
    assert squared_distance(back.state_dict(), first.state_dict()) < 1e-10


def test_two_seeds_on_the_command_line(command: Command, tmp_path: Path, example: str) -> None:
    """A merge has the names that the class has, and a twin that was planted is found again file by file."""
    first = model(1)
    found = fusionlab.blueprint(first, nets.example())
    hidden = Alignment.random(found, torch.Generator().manual_seed(3)).elements
    orders = {name: e for name, e in hidden.items() if not e.is_floating_point()}
    states = {"1": first, "2": model(2), "planted": Alignment(found, orders).apply(first)}
    for name, one in states.items():
        torch.save(one.state_dict(), tmp_path / f"{name}.pt")
    given = ("--example", example, "--match", "weights")
    ckpts = (tmp_path / "1.pt", tmp_path / "2.pt")
    fused = command("fuse", "--ckpts", *ckpts, *given, "--output", tmp_path / "out")
    assert fused.code == 0, fused.err
    merged = load_file(tmp_path / "out" / "merged" / "model.safetensors")
    assert merged.keys() == first.state_dict().keys()
    first.load_state_dict(merged)
    ckpts = (tmp_path / "1.pt", tmp_path / "planted.pt")
    fused = command("fuse", "--ckpts", *ckpts, *given, "--output", tmp_path / "again")
    assert fused.code == 0, fused.err
    found_again = model(2)
    found_again.load_state_dict(load_file(tmp_path / "again" / "merged" / "model.safetensors"))
    x = torch.randn(50, 5)
    torch.testing.assert_close(found_again(x), model(1)(x), rtol=1e-4, atol=1e-5)
