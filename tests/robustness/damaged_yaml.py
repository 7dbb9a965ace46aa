"""Damaged configs of commands: YAML that is wrong, that would run code, or that grows when it is read."""

import re
from pathlib import Path
from typing import Any

import yaml

from tests.robustness import raw_bytes
from tests.robustness.cases import OUTPUT, Case, Place, any_json, kind, nested
from tests.robustness.damaged_configs import EVIL

# What the case itself lays out.
PLACED = ("a", "b", "configs", "data")
# Without them, or with large ones, a training rightly takes longer than any case may.
LENGTHS = ("limit_train_batches", "max_epochs")
FIT_WRITES = ("lightning_logs*", "logs*", "checkpoints*", "config.yaml")


def _config(place: Place, name: str | None = None) -> tuple[str, Path]:
    """A command and its config, the checkpoints it names beside it."""
    command = name or place.draw.choice(["fuse", "fuse", "compare", "fit", "test"])
    path = place.copy(f"configs/{'fit' if command == 'test' else command}.yaml", "a", "b")
    return command, path


def _case(command: str, path: Path, must_refuse: bool = False) -> Case:
    output = [] if command in ("fit", "test") else ["--output", OUTPUT]
    may_write = (*FIT_WRITES, *_outputs(path)) if command in ("fit", "test") else ()
    return Case([command, "--config", f"configs/{path.name}", *output], None, must_refuse, may_write)


def _outputs(path: Path) -> list[str]:
    """What a config names as its output, and how that is written: a flipped bit may make another name of it."""
    # A pipe is read by nobody here.
    text = path.read_bytes().decode("utf-8", errors="replace") if path.is_file() else ""
    names = [name for name in re.findall(r"output: *(\w+) *$", text, re.MULTILINE) if name not in PLACED]
    return [pattern for name in names for pattern in (name, f"{name}.*", f".{name}.*", f"..{name}.*")]


@kind
def yaml_damaged(place: Place) -> Case:
    """The bytes of a config damaged."""
    command, path = _config(place)
    raw_bytes.damage(place.draw, path)
    return _case(command, path)


@kind
def yaml_unknown_keys(place: Place) -> Case:
    """Keys that there are not, at any depth."""
    command, path = _config(place)
    content = yaml.safe_load(path.read_text())
    mappings = [found for found, _ in _places(content)]
    owner = place.draw.choice([content, *mappings])
    owner[place.draw.choice(["no_such_key", "", "__class__", "x.y.z", 3, None, "trainer.x", "ckpts "])] = any_json(
        place.draw
    )
    path.write_text(yaml.safe_dump(content))
    return _case(command, path)


@kind
def yaml_values(place: Place) -> Case:
    """Values of another type, or keys that are missing."""
    command, path = _config(place)
    content = yaml.safe_load(path.read_text())
    owner, key = place.draw.choice([(owner, key) for owner, key in _places(content) if key not in LENGTHS])
    if place.draw.random() < 0.2 and key != "trainer":
        owner.pop(key)
    else:
        value = any_json(place.draw)
        # No options of the Trainer are options without lengths.
        owner[key] = None if key == "trainer" and value == {} else value
    path.write_text(yaml.safe_dump(content))
    return _case(command, path)


@kind
def yaml_tags(place: Place) -> Case:
    """Tags of Python, which an unsafe loader would run."""
    command, path = _config(place)
    here = str(place.canary)
    tag = place.draw.choice([
        f"!!python/object/apply:os.mkdir ['{here}']", f"!!python/object/apply:os.system ['mkdir {here}']",
        f"!!python/object/new:os.mkdir ['{here}']", f"!!python/object/apply:subprocess.check_call [[mkdir, '{here}']]",
        f"!!python/object/apply:builtins.exec [\"import os; os.mkdir('{here}')\"]", "!!python/name:os.system",
        "!!python/module:os", f"!!python/object/new:type\n  args: [x, !!python/tuple [], {{}}]\n  state: '{here}'",
        "!!python/object:fusionlab.errors.InputError {}", "!evil x", "!!binary aGVsbG8=", "!!set {a, b}",
    ])  # fmt: skip
    key = {"fuse": "hyperparameters", "compare": "methods"}.get(command, "seed_everything")
    content = yaml.safe_load(path.read_text())
    content.pop(key, None)
    path.write_text(
        "\n".join([yaml.safe_dump(content), f"x_{key}: {tag}" if place.draw.random() < 0.3 else f"{key}: {tag}"]) + "\n"
    )
    return _case(command, path, must_refuse=True)


@kind
def yaml_grows(place: Place) -> Case:
    """Anchors that explode, that hold themselves, or that merge themselves; brackets a hundred thousand deep."""
    command, path = _config(place)
    key = {"fuse": "hyperparameters", "compare": "methods"}.get(command, "model")
    levels = place.draw.choice([9, 12, 30])
    width = place.draw.choice([2, 10])
    lists = ["x0: &x0 [lol, lol]"] + [
        f"x{i}: &x{i} [{', '.join([f'*x{i - 1}'] * width)}]" for i in range(1, levels)
    ]  # fmt: skip
    mappings = ["x0: &x0 {a: lol}"] + [
        f"x{i}: &x{i} {{{', '.join(f'k{j}: *x{i - 1}' for j in range(width))}}}" for i in range(1, levels)
    ]  # fmt: skip
    inner = "\n".join(f"  {line}" for line in place.draw.choice([lists, mappings]))
    text = place.draw.choice([
        f"{key}:\n{inner}\n", f"{key}:\n{inner}\n", f"{key}:\n{inner}\n", f"{key}: &a [*a]\n", f"{key}: &a {{x: *a}}\n",
        f"{key}: &a\n  <<: *a\n  x: 1\n", f"{key}: {nested(3000)}\n", f"{key}: {nested(100_000)}\n",
        f"{key}: {nested(3000, '{a: ', '}')}\n", "- " * 20_000 + "x\n", f"{key}: *nowhere\n",
        f"{key}: {'9' * 100_000}\n", f"{key}: '{'x' * 10_000_000}'\n", f"{key}: 1:{':'.join(['59'] * 3000)}\n",
    ])  # fmt: skip
    content = yaml.safe_load(path.read_text())
    content.pop(key, None)
    kept = "" if text.startswith("-") or place.draw.random() < 0.3 else yaml.safe_dump(content)
    path.write_text(f"{kept}{text}")
    return _case(command, path, must_refuse=True)


@kind
def yaml_other_text(place: Place) -> Case:
    """Another encoding, several documents, nothing at all, a key twice, tabs."""
    command, path = _config(place)
    text = path.read_text()
    other = [
        b"", b"# nothing\n", b"null\n", b"[]\n", b"3\n", b"\xff\xfe", text.encode() + b"\xe9: 1\n",
        text.encode("utf-16"),
        text.encode() + b"---\n" + text.encode(), text.encode() + b"\x00", b"\t" + text.encode(), b"%YAML 9.9\n---\n",
        text.encode() + text.encode(), b"\xef\xbb\xbf" + text.encode(), b"--- |\n" + text.encode(), b"x\n", b"? ? ?\n",
        text.encode().replace(b"\n", b"\r"), b"config: configs/" + path.name.encode() + b"\n",
    ]  # fmt: skip
    path.write_bytes(place.draw.choice(other))
    return _case(command, path)


@kind
def yaml_classes(place: Place) -> Case:
    """Class paths that lead to functions, to classes of another kind, or to a file in the working folder."""
    command, path = _config(place, place.draw.choice(["compare", "fit", "test"]))
    (place.work / "evil.py").write_text(EVIL.format(canary=str(place.canary)))
    content = yaml.safe_load(path.read_text())
    owner = place.draw.choice([owner for owner, key in _places(content) if key == "class_path"])
    here = str(place.canary)
    owner.update(place.draw.choice([
        {"class_path": "evil.Evil"}, {"class_path": "os.mkdir", "init_args": {"path": here}},
        {"class_path": "os.system", "init_args": {"command": f"mkdir {here}"}}, {"class_path": "builtins.exec"},
        {"class_path": "subprocess.Popen", "init_args": {"args": ["mkdir", here]}}, {"class_path": "pathlib.Path"},
        {"class_path": "fusionlab.data"}, {"class_path": "fusionlab.data.Digits.setup"}, {"class_path": "."},
        {"class_path": ""}, {"class_path": None}, {"class_path": 3}, {"class_path": "../evil.Evil"},
        {"class_path": "./evil.py"}, {"class_path": "x" * 10_000}, {"class_path": "no.such.Class"},
        {"class_path": "torch.nn.Linear", "init_args": {"in_features": 10**6, "out_features": 10**6}},
        {"init_args": any_json(place.draw)}, {"dict_kwargs": {"x": 1}}, {"class_path": "types.FunctionType"},
    ]))  # fmt: skip
    path.write_text(yaml.safe_dump(content))
    return _case(command, path)


@kind
def yaml_no_file(place: Place) -> Case:
    """A config that is a device, a pipe, a folder, or not there."""
    command, path = _config(place)
    raw_bytes.unreadable(place.draw, path)
    return _case(command, path, must_refuse=True)


@kind
def options(place: Place) -> Case:
    """Odd values on the command line."""
    place.copy("a", "b")
    one = place.draw.choice
    merge, fuse, gather = ["merge", "a", "b"], ["fuse", "--ckpts", "a", "b"], ["gather", "a", "--data", "Digits"]
    odd_paths = ["", "\0", "x" * 5000, "~no-such-user/x", "a/config.json", "a/../a", "/dev/null", "/", "b\n"]
    line = one([
        [*merge, "--method", "slerp", "--hyperparameters", one(["{t: nan}", "{t: x}", "{t: .inf}", "t"])],
        [*merge, "--weights", one(["nan", "inf", "-1", "1e400", "x", "[]"]), one(["1", "nan"])],
        [*merge, "--seed", one(["-1", "99999999999999999999", "x", "1.5", "nan"])],
        [*merge, "--method", one(["\0", "x" * 5000, "../x", "[", "{}", "simple,", "simple,simple"])],
        [*merge, "--hyperparameters", one([nested(3000), "{" * 3000, "!!python/name:os.system", "null"])],
        ["merge", "a", one(odd_paths)], ["match", "a", "--anchor", one(odd_paths)],
        ["match", "a", "--anchor", "b", "--layers", one(["0", "-1", "x:y"])],
        [*fuse, "--match", one(["paper", "x", "[1]", ""]), "--sweeps", one(["1e9", "-3"])],
        [*fuse, "--anchor", one(["-1", "2", "x", "1e30", ""])], [*gather, "--samples", one(["0", "-1", "1e99", "x"])],
        [*gather, "--kinds", one(["", "x", "gram,gram", ",", "gram,../x"])],
    ])  # fmt: skip
    return Case([*line, "--output", one([OUTPUT, OUTPUT, OUTPUT, "a", "."])])


def _places(content: Any) -> list[tuple[dict[Any, Any], Any]]:
    """Every key of every mapping inside, lists included."""
    found: list[tuple[dict[Any, Any], Any]] = []
    if isinstance(content, dict):
        for key, value in content.items():
            found += [(content, key), *_places(value)]
    elif isinstance(content, list):
        for value in content:
            found += _places(value)
    return found
