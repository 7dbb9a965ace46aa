"""The part of each test example in a cell's scores, kept beside the cell, so that cells can be compared in pairs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from fusionlab.atomic import atomic_file
from fusionlab.errors import InputError
from fusionlab.evaluation.comparison import Measured
from fusionlab.evaluation.contributions import Answers, Contributions
from fusionlab.evaluation.formulas import FROM_PAIRS, FROM_SUMS

_ABOUT = "about"


def write_examples(path: Path, measured: Sequence[Measured], fingerprint: str) -> None:
    """Write the answers of one model on all its test sets, whole or not at all.

    Args:
        path: of the file, replaced if it is there.
        measured: one for each test set.
        fingerprint: of the settings that they follow from.
    """
    arrays: dict[str, np.ndarray] = {}
    sets = []
    for place, one in enumerate(measured):
        metrics = []
        for number, (metric, found) in enumerate(one.answers.contributions.items()):
            name, values = f"{place}.{number}", found.values
            if isinstance(values, csr_array):
                arrays |= {f"{name}.{part}": getattr(values, part) for part in ("data", "indices", "indptr")}
            else:
                arrays[name] = values
            metrics.append({"metric": metric, "formula": found.formula, "shape": list(values.shape)})
        answers = {"chance": one.answers.chance, "is_constant": one.answers.is_constant, "metrics": metrics}
        key = {"models": one.models, "method": one.method, "matching": one.matching, "seed": one.seed}
        sets.append({"key": key, "data_set": one.data_set, "domain": one.domain, **answers})
    about = json.dumps({"fingerprint": fingerprint, "sets": sets})
    with atomic_file(path, overwrite=True) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, **{_ABOUT: np.frombuffer(about.encode(), np.uint8)}, **arrays)  # type: ignore[arg-type]


def read_examples(path: Path, fingerprint: str) -> list[Measured]:
    """The examples that `write_examples` wrote; none where there is no such file, or it follows from other settings.

    Raises:
        InputError: a file that is something else.
    """
    if not path.is_file():
        return []
    try:
        with np.load(path, allow_pickle=False) as arrays:
            about = json.loads(arrays[_ABOUT].tobytes())
            if about["fingerprint"] != fingerprint:
                return []
            return [_measured(place, given, arrays) for place, given in enumerate(about["sets"])]
    except Exception as error:
        # A damaged archive fails in the exceptions of zipfile, zlib, numpy and scipy.
        raise InputError(f"{path} holds no test examples; expected a file that compare wrote, or none") from error


def _measured(place: int, given: dict[str, Any], arrays: Any) -> Measured:
    contributions = {}
    for number, metric in enumerate(given["metrics"]):
        name = f"{place}.{number}"
        values = arrays[name] if name in arrays else _sparse(name, metric["shape"], arrays)
        if list(values.shape) != metric["shape"]:
            raise ValueError(f"{name} is {values.shape}; expected {metric['shape']}")
        if values.dtype.kind not in "biuf" or metric["formula"] not in {*FROM_SUMS, *FROM_PAIRS}:
            raise ValueError(f"{name} is {values.dtype} for {metric['formula']}; expected numbers for a known formula")
        contributions[metric["metric"]] = Contributions(metric["formula"], values)
    key = given["key"] | {"models": tuple(given["key"]["models"])}
    answers = Answers(contributions, given["chance"], given["is_constant"])
    return Measured(**key, data_set=given["data_set"], domain=given["domain"], answers=answers)


def _sparse(name: str, shape: list[int], arrays: Any) -> csr_array:
    parts = tuple(arrays[f"{name}.{part}"] for part in ("data", "indices", "indptr"))
    found = csr_array(parts, shape=(shape[0], shape[1]))
    # Indices that lead outside would be followed.
    found.check_format(full_check=True)
    return found
