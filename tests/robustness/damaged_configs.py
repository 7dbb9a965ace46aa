"""Damaged descriptions of models: ``config.json`` of transformers and timm, and the files beside it."""

import json
from collections.abc import Iterator
from typing import Any

import torch

from tests.robustness import raw_bytes
from tests.robustness.cases import Case, Place, any_json, edit_json, kind, nested
from tests.robustness.commands import over_checkpoint
from tests.robustness.damaged_pickles import Reduced

SIZES = (
    "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "image_size", "patch_size",
    "num_channels", "vocab_size", "max_position_embeddings", "type_vocab_size", "num_labels", "encoder_stride",
)  # fmt: skip
LARGE = (1000, 20_000, 100_000, 1_000_000, 2**31, 2**40, 2**62, 2**64, 10**30)
EVIL = """import os
os.mkdir({canary!r})
class Evil: pass
"""


def _config(place: Place) -> str:
    """The name of a checkpoint whose config is damaged next."""
    name = place.draw.choice(["a", "timm_a", "bert_a", "bin_a", "sharded_a"])
    place.copy(name)
    return name


@kind
def config_damaged(place: Place) -> Case:
    """The bytes of a config damaged."""
    name = _config(place)
    raw_bytes.damage(place.draw, place.work / name / "config.json")
    return over_checkpoint(place, name)


@kind
def config_other_text(place: Place) -> Case:
    """A config in another encoding, empty, deep, with huge numbers, or with a key twice that differs."""
    name = _config(place)
    path = place.work / name / "config.json"
    text = path.read_text()
    deep = place.draw.choice([1000, 3000, 100_000])
    other: list[tuple[bytes, bool]] = [
        (b"", True), (b"null", True), (b"[]", True), (b'"x"', True), (b"{}", True), (b"\xff\xfe\x00", True),
        (text.encode("utf-16"), True), (b"\xef\xbb\xbf" + text.encode(), False), (text.encode() + b"\xe9", True),
        (text[:-1].encode() + b', "x": "\xe9"}', True), ((text[:-2] + f', "x": {nested(deep)}}}').encode(), False),
        ((text[:-2] + ', "x": ' + nested(deep, '{"a":', "}") .replace(':}', ':1}') + "}").encode(), False),
        ((text[:-2] + ', "x": ' + "9" * 100_000 + "}").encode(), False),
        ((text[:-2] + ', "x": 1e999}').encode(), False),
        ((text[:-2] + ', "hidden_act": "relu", "hidden_act": "gelu"}').encode(), name not in ("timm_a",)),
        (json.dumps(json.loads(text) | {"x": "a" * 10_000_000}).encode(), False),
        (b"// comment\n" + text.encode(), True), (text.replace('"', "'").encode(), True),
    ]  # fmt: skip
    content, must_refuse = place.draw.choice(other)
    path.write_bytes(content)
    return over_checkpoint(place, name, must_refuse)


@kind
def config_values(place: Place) -> Case:
    """A value of another type, or a key that is missing."""
    name = _config(place)

    def change(content: dict[str, Any]) -> None:
        owner, key = place.draw.choice(list(_places(content)))
        if place.draw.random() < 0.2:
            owner.pop(key)
        else:
            owner[key] = any_json(place.draw)

    edit_json(place.work / name / "config.json", change)
    return over_checkpoint(place, name)


@kind
def config_sizes(place: Place) -> Case:
    """Sizes that would take far more memory, or time, than the weights that are there."""
    name = place.draw.choice(["a", "bert_a", "bin_a", "sharded_a"])
    place.copy(name)
    fields = place.draw.sample(SIZES, place.draw.choice([1, 1, 2]))
    edit_json(
        place.work / name / "config.json",
        lambda content: content.update({field: place.draw.choice(LARGE) for field in fields}),
    )
    return over_checkpoint(place, name)


@kind
def config_odd_sizes(place: Place) -> Case:
    """Sizes of zero, below it, that do not divide, or that are no numbers."""
    name = place.draw.choice(["a", "bert_a", "bin_a"])
    place.copy(name)
    odd = [0, -1, 3, 1, 17, 0.5, 16.0, "16", None, True, [16], -(2**63), float("nan"), float("inf")]
    field = place.draw.choice(SIZES)
    edit_json(place.work / name / "config.json", lambda content: content.update({field: place.draw.choice(odd)}))
    return over_checkpoint(place, name)


@kind
def lightning_sizes(place: Place) -> Case:
    """The same in the description that a Lightning file carries."""
    file = place.copy("lightning_a.ckpt")
    content = torch.load(file, weights_only=True)
    config = content["fusionlab"]["config"]
    for field in place.draw.sample(SIZES, 2):
        config[field] = place.draw.choice([*LARGE, 0, -1])
    torch.save(content, file)
    return over_checkpoint(place, "lightning_a.ckpt")


@kind
def timm_arguments(place: Place) -> Case:
    """Arguments of timm's models that are huge, odd, or would read files."""
    place.copy("timm_a")
    draw = place.draw
    pickle = place.work / "evil.pth"
    torch.save({"x": Reduced(exec, EVIL.format(canary=str(place.canary)))}, pickle)
    arguments: list[dict[str, Any]] = [
        {"embed_dim": draw.choice(LARGE)}, {"depth": draw.choice(LARGE)}, {"img_size": draw.choice(LARGE)},
        {"num_heads": draw.choice([0, -1, 3, 2**62])}, {"checkpoint_path": str(pickle)}, {"pretrained": True},
        {"pretrained": True, "pretrained_cfg": {"file": str(pickle)}}, {"mlp_ratio": draw.choice([0, -1, 1e9, "x"])},
        {"norm_layer": "os.system"}, {"act_layer": "os.mkdir"}, {"features_only": True}, {"in_chans": LARGE[-1]},
        {"no_such_argument": 1}, {"num_classes": draw.choice([*LARGE, -1, None, "x"])}, {"weight_init": "evil"},
        {"cache_dir": "/dev/full"}, {"patch_size": draw.choice([0, -1, 1, 10**6])}, {"scriptable": "x"},
    ]  # fmt: skip
    chosen = draw.choice(arguments)
    edit_json(
        place.work / "timm_a" / "config.json",
        lambda content: (
            content.update(model_args=content.get("model_args", {}) | chosen)
            if draw.random() < 0.8
            else content.update(chosen)
        ),
    )
    return over_checkpoint(place, "timm_a")


@kind
def timm_description(place: Place) -> Case:
    """What timm would download, load or run, were it asked to."""
    place.copy("timm_a")
    evil = {"url": "https://example.org/x.pth", "hf_hub_id": "example/x", "custom_load": True, "file": "/etc/passwd"}
    changes: list[dict[str, Any]] = [
        {"architecture": place.draw.choice(["hf-hub:example/x", "local-dir:/etc", "os.system", "", None, 3, ["x"]])},
        {"pretrained_cfg": evil}, {"pretrained_cfg": any_json(place.draw)}, {"model_args": any_json(place.draw)},
        {"pretrained_cfg": {"input_size": any_json(place.draw)}}, {"global_pool": "evil"},
        {"num_classes": any_json(place.draw)}, {"label_names": any_json(place.draw)}, {"num_features": 10**12},
    ]  # fmt: skip
    edit_json(place.work / "timm_a" / "config.json", lambda content: content.update(place.draw.choice(changes)))
    return over_checkpoint(place, "timm_a")


@kind
def remote_code(place: Place) -> Case:
    """Markers that make other tools run a checkpoint's own code, kernels of the hub, or load adapters."""
    name = place.draw.choice(["a", "bert_a", "bin_a"])
    folder = place.copy(name)
    for module in ("modeling_evil", "configuration_evil", "tokenization_evil", "__init__", "evil"):
        (folder / f"{module}.py").write_text(EVIL.format(canary=str(place.canary)))
    (place.work / "evil.py").write_text(EVIL.format(canary=str(place.canary)))
    mapped = {
        "AutoConfig": "configuration_evil.Evil", "AutoModel": "modeling_evil.Evil",
        "AutoModelForImageClassification": "modeling_evil.Evil",
        "AutoModelForSequenceClassification": "example/x--evil.Evil",
    }  # fmt: skip
    changes: list[dict[str, Any]] = [
        {"auto_map": mapped}, {"auto_map": mapped, "trust_remote_code": True}, {"trust_remote_code": True},
        {"auto_map": mapped, "model_type": "evil"}, {"architectures": ["modeling_evil.Evil"]},
        {"architectures": ["Evil"], "auto_map": mapped}, {"_attn_implementation": "example/kernel"},
        {"attn_implementation": "example/kernel"}, {"_attn_implementation": "flash_attention_2"},
        {"quantization_config": {"quant_method": place.draw.choice(["bitsandbytes", "gptq", "evil", None])}},
        {"_name_or_path": "example/x", "base_model_name_or_path": "example/x"}, {"use_kernels": True},
        {"torch_dtype": place.draw.choice(["float99", "torch.save", "float8_e4m3fn", 7])}, {"dtype": "__class__"},
        {"dtype": {"": "float16"}}, {"tie_word_embeddings": True, "base_model_tp_plan": {"*": "evil"}},
        {"problem_type": "evil"}, {"custom_pipelines": {"x": {"impl": "evil.Evil"}}}, {"is_decoder": True},
        {"add_cross_attention": True}, {"pruned_heads": {"0": [0]}}, {"chunk_size_feed_forward": -1},
        {"gradient_checkpointing": True}, {"hidden_act": place.draw.choice(["evil", "os.mkdir", ["gelu", {}], None])},
    ]  # fmt: skip
    edit_json(folder / "config.json", lambda content: content.update(place.draw.choice(changes)))
    if place.draw.random() < 0.3:
        adapter = {"base_model_name_or_path": "example/x", "peft_type": "LORA", "auto_mapping": mapped}
        (folder / "adapter_config.json").write_text(json.dumps(adapter))
    return over_checkpoint(place, name)


@kind
def other_type(place: Place) -> Case:
    """A config that says it is of another type of model."""
    name = place.draw.choice(["a", "bert_a", "bin_a"])
    folder = place.copy(name)
    types = ["bert", "t5", "gpt2", "clip", "whisper", "swin", "llama", "evil", "../x", "", "os", "encoder-decoder"]
    change = {"model_type": place.draw.choice(types)}
    if place.draw.random() < 0.5:
        odd = [
            [],
            None,
            ["BertModel"],
            ["ViTModel"],
            ["PreTrainedModel"],
            ["Trainer"],
            [1],
            "ViT",
            [None],
            ["__class__"],
        ]
        change = {"architectures": place.draw.choice(odd)}
    edit_json(folder / "config.json", lambda content: content.update(change))
    return over_checkpoint(place, name)


@kind
def side_files(place: Place) -> Case:
    """Damaged files that are only copied, and links among them that lead to devices or outside."""
    folder = place.copy("a")
    names = ["generation_config.json", "preprocessor_config.json", "modules.json", "README.md", "vocab.txt"]
    secret = place.folder / "outside" / "secret.txt"
    secret.write_text("secret")
    for name in place.draw.sample(names, 2):
        path = folder / name
        way = place.draw.randrange(4)
        if way == 0:
            raw_bytes.unreadable(place.draw, path)
        elif way == 1:
            path.write_bytes(raw_bytes.replaced(place.draw, b"{}"))
        elif way == 2:
            path.write_text(json.dumps(any_json(place.draw)))
        else:
            path.write_text(json.dumps([{"path": "../../outside"}, {"path": "/etc"}, {"path": 3}]))
    return over_checkpoint(place, "a")


def _places(content: Any) -> Iterator[tuple[Any, Any]]:
    """Every key of every mapping inside."""
    if isinstance(content, dict):
        for key, value in content.items():
            yield content, key
            yield from _places(value)
