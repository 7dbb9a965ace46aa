"""Options of the refinement of alignments by gradient descent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from fusionlab.errors import InputError
from fusionlab.learning.mixtures import ENOUGH
from fusionlab.learning.supplement import SYNTHETIC
from fusionlab.matching.options import refuse_numbers
from fusionlab.matching.starts.registry import find_start

Target = Literal["outputs", "labels"]
RefineOptimizer = Literal["muon", "adamw"]


@dataclass(frozen=True)
class RefineOptions:
    """Options of the refinement of alignments.

    Attributes:
        steps: of the optimizer, at least 1; each on inputs and a point between the models that are drawn anew.
        optimizer: ``muon``, which turns all planes of a rotation at one pace, or ``adamw``.
        learning_rate: the first and largest, above 0, about radians a step for rotations; it falls to zero along a
            cosine. None is 0.01 of Muon or 0.04 of AdamW for two models, and half of that for more, whose loss is
            rougher.
        batch_size: inputs in one step, all sources together, at least 1. None is 128, or fewer whose outputs are 2,048
            together, as texts with one for each token have.
        target: ``outputs``, what the end models return, or ``labels``.
        concentration: of the Dirichlet distribution that points between the models are drawn from, above 0: large for
            points near the middle. None is 10 for two models and 3 for more.
        edges: of more than two models, the share of steps, from 0 to 1, whose points lie between two of them alone, so
            that pairs can be merged too. In such a step all models are coupled at random.
        every: steps between two attempts to assign hidden units and heads again, by weights, which are kept where the
            loss falls; 0 for never.
        starts: of the matching by weights (``annealed``, ``known``, ``activations``, ``gradients``, ``as-is``), which
            are tried beside its own: from each a descent of 150 steps at most, of which the one that comes to the
            lowest loss goes on. Where a stream can only be permuted, as in tied models, much hangs on the start.
        draws: of inputs, at least 1, that a start from ``activations`` or ``gradients`` looks at: each gives another
            start, and all are tried as `starts` are.
        general: whether invertible spaces (inside heads) and rotary planes may be stretched, not only rotated; half
            way between two models it leaves a lower loss.
        unseen: whether what is new in a model that was grown on the way, and changes nothing, is learned too.
        mixtures: fewer inputs than this are filled up with mixtures of two of them (mixup), where they are images or
            other real numbers and the target is what the end models return; 0 for none.
        synthetic: so many synthetic inputs are added to very few that all models share, fewer the more there are, and
            none to 1,000: images, or texts where the models write any. 0 for none. None are added to synthetic ones.
        seed: of the draws.
    """

    steps: int = 600
    optimizer: RefineOptimizer = "muon"
    learning_rate: float | None = None
    batch_size: int | None = None
    target: Target = "outputs"
    concentration: float | None = None
    edges: float = 0.9
    every: int = 25
    starts: tuple[str, ...] = ()
    draws: int = 1
    general: bool = True
    unseen: bool = True
    mixtures: int = ENOUGH
    synthetic: int = SYNTHETIC
    seed: int = 0

    def __post_init__(self) -> None:
        counts = {"steps": 1, "batch_size": 1, "every": 0, "draws": 1, "mixtures": 0, "synthetic": 0, "seed": 0}
        refuse_numbers(self, ("learning_rate", "concentration", "edges"), tuple(counts))
        for name, least in counts.items():
            value = getattr(self, name)
            if value is not None and value < least:
                raise InputError(f"{name} is {value}; expected at least {least}")
        for name in ("learning_rate", "concentration"):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise InputError(f"{name} is {value}; expected a finite number above 0")
        if not 0 <= self.edges <= 1:
            raise InputError(f"edges is {self.edges}; expected a share from 0 to 1")
        if isinstance(self.starts, str):  # as the command line and YAML may have several
            object.__setattr__(self, "starts", tuple(one.strip() for one in self.starts.split(",")))
        for one in self.starts:
            find_start(one)
        for name, known in (("target", Target), ("optimizer", RefineOptimizer)):
            if getattr(self, name) not in get_args(known):
                raise InputError(f"{name} is {getattr(self, name)!r}; expected one of {', '.join(get_args(known))}")
