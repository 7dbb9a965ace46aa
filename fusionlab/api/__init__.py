"""The Python calls: modules go in, new modules of the same class come out, inputs are never modified."""

from fusionlab.api.advising import advise
from fusionlab.api.fusing import fuse
from fusionlab.api.growing import grow, shrink
from fusionlab.api.lines import barrier
from fusionlab.api.matching import align, alignments, canonical, match
from fusionlab.api.merging import merge
from fusionlab.api.symmetries import blueprint

__all__ = [
    "advise", "align", "alignments", "barrier", "blueprint", "canonical", "fuse", "grow", "match", "merge", "shrink",
]  # fmt: skip
