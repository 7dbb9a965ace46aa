"""Damaged pickled weights: ``pytorch_model.bin`` and Lightning files, some of which would run code."""

import io
import os
import pickle
import struct
import subprocess
import tarfile
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from tests.robustness import raw_bytes
from tests.robustness.cases import Case, Place, any_json, kind
from tests.robustness.commands import over_checkpoint


class Reduced:
    """A pickle of this calls a function when it is read."""

    def __init__(self, function: Callable[..., Any], *arguments: Any, state: Any = None) -> None:
        self.function, self.arguments, self.state = function, arguments, state

    def __reduce__(self) -> tuple[Any, ...]:
        return (self.function, self.arguments) if self.state is None else (self.function, self.arguments, self.state)


def _pickled(place: Place) -> tuple[str, Path]:
    """A checkpoint of pickled weights, and one of its files."""
    name = place.draw.choice(["bin_a", "lightning_a.ckpt", "binsharded_a"])
    path = place.copy(name)
    return name, path if path.is_file() else place.draw.choice(sorted(path.glob("*.bin")))


@kind
def pickle_damaged(place: Place) -> Case:
    """Cut, flipped, overwritten, stretched, replaced."""
    name, file = _pickled(place)
    raw_bytes.damage(place.draw, file)
    return over_checkpoint(place, name)


@kind
def pickle_flipped(place: Place) -> Case:
    """Bits of the numbers turned over: only the checksums tell."""
    name, file = _pickled(place)
    with zipfile.ZipFile(file) as opened:
        entry = place.draw.choice([one for one in opened.infolist() if "/data/" in one.filename])
        start = file.read_bytes().index(opened.read(entry), entry.header_offset)
    file.write_bytes(raw_bytes.flipped(place.draw, file.read_bytes(), start, start + entry.file_size))
    return over_checkpoint(place, name, must_refuse=True)


@kind
def runs_code(place: Place) -> Case:
    """Pickles, of the new and the old kind, that would make a folder when they are read."""
    name, file = _pickled(place)
    here = str(place.canary)
    text = f"import os; os.mkdir({here!r})"
    evil = place.draw.choice([
        Reduced(os.mkdir, here), Reduced(os.system, f"mkdir {here}"), Reduced(exec, text),
        Reduced(eval, f"exec({text!r})"),
        Reduced(subprocess.check_call, ["mkdir", here]), Reduced(__import__, "os"),
        Reduced(getattr, Reduced(__import__, "os"), "mkdir"),
        Reduced(torch.load, here), Reduced(OrderedDict, state={"x": Reduced(os.mkdir, here)}),
        Reduced(pickle.loads, pickle.dumps(Reduced(os.mkdir, here))), Reduced(torch.hub.load, here, "x"),
    ])  # fmt: skip
    content = {"state_dict": {"model.x": evil}} if file.suffix == ".ckpt" else {"x": evil}
    way = place.draw.randrange(4)
    if way == 0:
        torch.save(content, file, _use_new_zipfile_serialization=False)
    elif way == 1:
        file.write_bytes(pickle.dumps(content, protocol=place.draw.choice([0, 2, 4])))
    elif way == 2:
        with tarfile.open(file, "w") as tar:
            for member in ("pickle", "storages", "tensors"):
                data = pickle.dumps(evil)
                entry = tarfile.TarInfo(member)
                entry.size = len(data)
                tar.addfile(entry, io.BytesIO(data))
    else:
        torch.save(content, file)
    return over_checkpoint(place, name, must_refuse=True)


@kind
def tensors_that_reach_out(place: Place) -> Case:
    """Tensors whose sizes, strides and offsets lead beyond their storage, and storages larger than their bytes."""
    name, file = _pickled(place)
    draw = place.draw
    numbers, offset, size, stride = draw.choice([
        (4, 0, (10**6,), (1,)), (4, 10**9, (4,), (1,)), (4, -4, (4,), (1,)), (10**12, 0, (10**12,), (1,)),
        (4, 0, (2**40, 2**40), (0, 0)), (4, 0, (4,), (-1,)), (4, 0, (2**62,), (0,)), (-1, 0, (1,), (1,)),
        (2**63, 0, (1,), (1,)), (4, 0, (4.0,), (1,)), (4, 0, (-1,), (1,)), (4, 0, "4", (1,)),
    ])  # fmt: skip

    class Storages(pickle.Pickler):
        def persistent_id(self, found: Any) -> Any:
            return ("storage", torch.FloatStorage, "0", "cpu", numbers) if found == "the storage" else None

    tensor = Reduced(torch._utils._rebuild_tensor_v2, "the storage", offset, size, stride, False, OrderedDict())
    content = {"state_dict": {"model.x": tensor}} if file.suffix == ".ckpt" else {"x": tensor}
    pickled = io.BytesIO()
    Storages(pickled, protocol=2).dump(content)
    with zipfile.ZipFile(file, "w") as made:
        for member, data in (("data.pkl", pickled.getvalue()), ("byteorder", b"little"), ("data/0", bytes(16)),
                             ("version", b"3\n")):  # fmt: skip
            made.writestr(zipfile.ZipInfo(f"archive/{member}"), data)
    return over_checkpoint(place, name, must_refuse=True)


@kind
def archive_members(place: Place) -> Case:
    """Members twice, elsewhere, missing, or of a size that they have not."""
    name, file = _pickled(place)
    draw = place.draw
    with zipfile.ZipFile(file) as opened:
        members = [(one.filename, opened.read(one)) for one in opened.infolist()]
    what = draw.randrange(5)
    if what == 4:
        content = bytearray(file.read_bytes())
        at = content.rindex(b"PK\x01\x02") if draw.random() < 0.5 else content.index(b"PK\x01\x02")
        huge = draw.choice([2**31, 2**32 - 2, 0, 1])
        content[at + 20 : at + 28] = struct.pack("<II", huge, huge)
        file.write_bytes(content)
        return over_checkpoint(place, name, must_refuse=True)
    stored = zipfile.ZIP_STORED
    if what == 0:
        members.append(draw.choice(members))
    elif what == 1:
        at = draw.randrange(len(members))
        members[at] = (draw.choice(["../../../x", "/etc/x", "", "x" * 60_000]), members[at][1])
    elif what == 2:
        members.pop(next(i for i, (path, _) in enumerate(members) if "/data/" in path))
    else:
        # Zeros that shrink a thousandfold: 3 GiB when they are taken out.
        members = [(path, data if "/data/" not in path else bytes(2**20)) for path, data in members]
        stored = zipfile.ZIP_DEFLATED
    with zipfile.ZipFile(file, "w", stored) as made:
        for path, data in members:
            entry = zipfile.ZipInfo(path)  # of a fixed date
            entry.compress_type = stored
            made.writestr(entry, data)
    return over_checkpoint(place, name, must_refuse=what != 0)


@kind
def no_state_dict(place: Place) -> Case:
    """Something else than a mapping of dense floating-point tensors by name."""
    name, file = _pickled(place)
    sound = torch.load(file, weights_only=True)
    state = sound["state_dict"] if file.suffix == ".ckpt" else sound
    key = place.draw.choice(sorted(state))
    tensor = state[key]
    deep: Any = []
    for _ in range(100):
        deep = [deep]
    wrong: list[Any] = [
        None, 1, "x", [], deep, {}, tensor.to(torch.int64), tensor.bool(), tensor.to(torch.complex64),
        tensor.double() * torch.nan,
        tensor.to_sparse(), tensor.to("meta"), torch.empty(0), tensor[None], torch.nn.Parameter(tensor.half()[..., :1]),
        tensor.flatten()[0], tensor.expand(3, *tensor.shape),
    ]  # fmt: skip
    value = place.draw.choice(wrong)
    what = place.draw.randrange(4)
    if what == 0:
        state[key] = value
    elif what == 1:
        state = place.draw.choice([{1: tensor}, {None: tensor}, {(): tensor}, {}, {"": tensor}, {key: tensor}])
    elif what == 2:
        state = value
    else:
        state["no.such.tensor" if place.draw.random() < 0.5 else 7] = tensor
    must_refuse = not (what == 3 and file.suffix == ".ckpt")  # a Lightning module may hold more than its model
    torch.save(dict(sound, state_dict=state) if file.suffix == ".ckpt" else state, file)
    return over_checkpoint(place, name, must_refuse)


@kind
def lightning_description(place: Place) -> Case:
    """A Lightning file that describes its model wrongly, or as something that is no model."""
    file = place.copy("lightning_a.ckpt")
    content = torch.load(file, weights_only=True)
    described = content["fusionlab"]
    draw = place.draw
    what = draw.randrange(4)
    if what == 0:
        content["fusionlab"] = any_json(draw)
    elif what == 1:
        odd = [
            "__import__",
            "os.system",
            "BertForSequenceClassification",
            "AutoModel",
            "",
            "PreTrainedModel",
            "ViTModel",
        ]
        described["class"] = draw.choice(odd)
    elif what == 2:
        described[draw.choice(["library", "class", "config"])] = any_json(draw)
    else:
        field = draw.choice(sorted(described["config"]))
        described["config"][field] = any_json(draw)
    torch.save(content, file)
    return Case(over_checkpoint(place, "lightning_a.ckpt").argv)
