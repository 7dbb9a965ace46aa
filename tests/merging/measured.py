"""Statistics of a small model on random inputs."""

from torch import nn

from fusionlab.statistics import Statistics
from fusionlab.symmetry import blueprint
from tests.statistics.passes import passed
from tests.symmetry.models import generator

SAMPLES = 64


def measure(model: nn.Module, *kinds: str, seed: int = 0, batch: int = 60) -> dict[str, Statistics]:
    """Some kinds of statistics from one pass.

    Args:
        model: of a described architecture.
        kinds: which.
        seed: of the inputs; the same for models that are to be compared by activations.
        batch: how many inputs.
    """
    draw, dtype = generator(seed), next(model.parameters()).dtype
    inputs = {i.name: i.random(batch, draw, dtype) for i in blueprint(model).inputs}
    return passed(model, [inputs], *kinds, samples=SAMPLES)
