"""Examples of which an input has several rows, such as the patches of Qwen2-VL's images, in batches of one each."""

from typing import Any

import pytest
import torch
from torch import Tensor

import fusionlab
from fusionlab.errors import InputError
from fusionlab.examples import example_count, take_examples, take_joined, unlike
from fusionlab.learning.distillation import output_of
from fusionlab.statistics import Activations, Fisher, Grams
from fusionlab.statistics.gather import gather
from fusionlab.statistics.layout import fingerprints
from tests.symmetry.infer.cases import multimodal
from tests.symmetry.models import generator, randomize, relative

(QWEN,) = (sample for sample in multimodal.SAMPLES if sample.name == "qwen2_vl")
PATCHES, TOKENS = 16, 9
VISION, HEAD = "model.visual.blocks.0.mlp.fc1.weight", "lm_head.weight"


def two(seed: int) -> dict[str, Tensor]:
    return {name: value for name, value in QWEN.inputs(generator(seed)).items() if name != "labels"}


def alone(seed: int) -> dict[str, Tensor]:
    """The first example of a batch of two, with half of the patches."""
    return {name: value[: len(value) // 2] for name, value in two(seed).items()}


def model(seed: int) -> Any:
    return randomize(QWEN.build(), seed).eval()


def test_rows_of_statistics() -> None:
    """All patches of both images count, once each, and each is what the layer reads."""
    batches, read = [alone(0), alone(1)], []
    found = gather(model(0), batches)["gram"]
    assert isinstance(found, Grams)
    assert found.rows[found.maps[VISION].inputs] == 2 * PATCHES
    assert found.rows[found.maps[HEAD].inputs] == 2 * TOKENS
    watched = model(0)
    handle = watched.get_submodule(VISION.removesuffix(".weight")).register_forward_hook(
        lambda module, args, output: read.append(args[0])
    )
    with torch.no_grad():
        for batch in batches:
            output_of(watched, batch)
    handle.remove()
    rows = torch.cat(read).double()
    torch.testing.assert_close(found.mean(VISION)[:-1, :-1], rows.T @ rows / len(rows), rtol=1e-4, atol=1e-5)


def test_fisher() -> None:
    """Each example is one, whatever its image has: the mean over two is that of what each has alone."""
    one, other, both = (
        gather(model(0), batches, ("fisher",))["fisher"] for batches in ([alone(0)], [alone(1)], [alone(0), alone(1)])
    )
    assert isinstance(one, Fisher)
    assert isinstance(other, Fisher)
    assert isinstance(both, Fisher)
    assert both.diagonal.keys() == one.diagonal.keys() | other.diagonal.keys()
    for name in (VISION, HEAD):
        assert float((one.diagonal[name] - other.diagonal[name]).norm()) > 1e-3 * float(one.diagonal[name].norm())
        torch.testing.assert_close(both.diagonal[name], (one.diagonal[name] + other.diagonal[name]) / 2)


def test_activations() -> None:
    """Rows of both images are drawn, and what a map writes is what it makes of what it reads."""
    of = model(0)
    found = gather(of, [alone(0), alone(1)], ("activations",))["activations"]
    assert isinstance(found, Activations)
    linear = of.get_submodule(VISION.removesuffix(".weight"))
    with torch.no_grad():
        written = linear(found.inputs[VISION].T).T
    assert written.shape[1] == 2 * PATCHES
    torch.testing.assert_close(found.outputs[VISION], written, rtol=1e-4, atol=1e-5)


def test_images_tell_examples_apart() -> None:
    """Two of one text are two."""
    other = alone(0) | {"pixel_values": alone(1)["pixel_values"]}
    assert fingerprints(alone(0)) == fingerprints(alone(0))
    assert fingerprints(alone(0)) != fingerprints(other)


def test_learning() -> None:
    """Steps of several examples have all patches of each; the twin computes the same."""
    models, batches = [model(0), model(1)], [alone(seed) for seed in range(4)]
    options: dict[str, Any] = {"steps": 2, "every": 1, "batch_size": 2, "synthetic": 0, "mixtures": 0}
    found = fusionlab.alignments(models, 0, "learned", data=batches, **options)
    with torch.no_grad():
        twin, end = (output_of(one, two(9)) for one in (found[1].apply(models[1]), models[1]))
    assert relative(twin, end) < 1e-5


def test_several_examples_are_refused() -> None:
    """Nothing tells whose the patches are."""
    sentence = "the data has 32 rows of pixel_values for 2 examples, .*; expected batches of one example each"
    with pytest.raises(InputError, match=sentence):
        gather(model(0), [two(0)])
    with pytest.raises(InputError, match=sentence):
        gather(model(0), [alone(0), two(0)], ("fisher",))
    with pytest.raises(InputError, match=sentence):
        fusionlab.alignments([model(0), model(1)], 0, "learned", data=[two(0)], steps=1)


def test_some_of_joined_batches() -> None:
    """Each example keeps its own rows, in their order; texts say how many examples there are."""
    rows = torch.arange(6).reshape(6, 1)
    batch = {"rows": rows, "input_ids": torch.tensor([[7], [8], [9]])}
    assert example_count(batch) == 3
    assert unlike(batch) == "rows"
    found = take_joined(batch, torch.tensor([2, 0]))
    assert found["rows"].flatten().tolist() == [4, 5, 0, 1]
    assert found["input_ids"].flatten().tolist() == [9, 7]
    assert take_examples(batch, torch.tensor([1]))["rows"] is rows
