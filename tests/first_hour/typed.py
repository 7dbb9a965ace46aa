"""What a type checker sees of the public names: read by ``mypy`` and never run.

`tests.first_hour` has ``mypy --strict`` read it beside the installed wheel, whose ``py.typed`` says that it is typed.
"""

from pathlib import Path
from typing import assert_type

from torch import nn
from transformers import BertForSequenceClassification

import fusionlab
from fusionlab.advice import Advice
from fusionlab.evaluation.curves import Curve
from fusionlab.matching.recipe import Recipe


def public_names(a: BertForSequenceClassification, b: BertForSequenceClassification, path: Path) -> None:
    """Every call with modules and with paths: a class that goes in comes out."""
    data = [dict(a.dummy_inputs)]
    assert_type(fusionlab.load(path), nn.Module)
    fusionlab.save(a, path, like="model", overwrite=True)

    found = fusionlab.match(a, path, preset="weights")
    assert_type(found, fusionlab.Alignment)
    assert_type(found.apply(a), BertForSequenceClassification)
    assert_type(found.inverse(), fusionlab.Alignment)
    assert_type(fusionlab.alignments([a, "model"], preset="weights"), list[fusionlab.Alignment])
    assert_type(fusionlab.align([a, b]), list[BertForSequenceClassification])
    assert_type(fusionlab.align([path, path]), list[nn.Module])
    assert_type(fusionlab.canonical(a), BertForSequenceClassification)
    assert_type(fusionlab.canonical(path), nn.Module)

    assert_type(fusionlab.merge([a, b], "fisher", data=data), BertForSequenceClassification)
    assert_type(fusionlab.merge(["model_a", "model_b"]), nn.Module)
    assert_type(fusionlab.fuse([a, b], data=data), BertForSequenceClassification)
    assert_type(fusionlab.fuse([path, path]), nn.Module)
    assert_type(fusionlab.grow(a, b), BertForSequenceClassification)
    assert_type(fusionlab.shrink("large", "small"), nn.Module)

    assert_type(fusionlab.barrier(a, b, data), Curve)
    assert_type(fusionlab.barrier(a, b, data).barrier, float)
    assert_type(fusionlab.advise(a, path), Advice)
    assert_type(fusionlab.advise(a, path).sentence, str)
    assert_type(fusionlab.blueprint(a), fusionlab.Blueprint)
    assert_type(fusionlab.recipe("learned", steps=10), Recipe)
    assert_type(fusionlab.FusionModule([a, b]).kept.model, nn.Module)
    assert_type(fusionlab.__version__, str)
    fusionlab.no_such_name  # type: ignore[attr-defined]  # noqa: B018
