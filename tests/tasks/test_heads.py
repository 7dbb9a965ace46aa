"""A head stays with its task: the same head is kept, any other is replaced, the body is always kept."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import GPT2Config, GPT2LMHeadModel

from fusionlab import checkpoints
from fusionlab.data import TextClassification
from fusionlab.data.tokenizers import byte_tokenizer
from fusionlab.errors import InputError
from fusionlab.tasks import (
    CausalLanguageModelling,
    ImageClassification,
    MaskedLanguageModelling,
    SequenceClassification,
    TokenClassification,
)
from tests.tasks.sample import bert, fitted, jsonl

SIZES = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}

NAMES = ["a", "b", "c"]


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    """A sequence classifier of three named labels."""
    checkpoints.save(SequenceClassification(bert(), NAMES).model.eval(), tmp_path / "stored")
    return tmp_path / "stored"


def head(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor for name, tensor in model.state_dict().items() if name.startswith("classifier")}


def same_head(model: nn.Module, stored: Path) -> bool:
    other = head(checkpoints.load(stored))
    found = head(model)
    return all(found[name].shape == tensor.shape and torch.equal(found[name], tensor) for name, tensor in other.items())


def same_body(model: nn.Module, stored: Path) -> bool:
    body = {n: t for n, t in model.state_dict().items() if n.startswith("bert.") and ".pooler." not in n}
    other = checkpoints.load(stored).state_dict()
    return bool(body) and all(torch.equal(other[name], tensor) for name, tensor in body.items())


@pytest.mark.parametrize("labels", [NAMES, None])
def test_the_same_head_is_kept(stored: Path, labels: list[str] | None, capsys: pytest.CaptureFixture[str]) -> None:
    """The same names, or none to compare with."""
    model = SequenceClassification(str(stored), labels, num_classes=3).model
    assert same_head(model, stored)
    assert "replaced" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("task", "labels", "arguments"),
    [
        (SequenceClassification, ["x", "y", "z"], {}),
        (SequenceClassification, ["c", "b", "a"], {}),
        (SequenceClassification, NAMES, {"task": "multilabel"}),
        (SequenceClassification, ["a", "b"], {}),
        (TokenClassification, NAMES, {}),
    ],
)
def test_a_head_of_another_task_never_leaks(
    stored: Path, task: Any, labels: list[str], arguments: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """Other labels, the same in another order, another problem, another kind of head with the very same shapes."""
    model = task(str(stored), labels, **arguments).model
    assert not same_head(model, stored)
    assert same_body(model, stored)
    assert "replaced by a fresh one" in capsys.readouterr().err
    assert list(model.config.id2label.values()) == labels


@pytest.mark.parametrize("beside", [True, False], ids=["tokenizer", "no tokenizer"])
def test_decoders_classify_by_the_last_token_that_is_no_padding(tmp_path: Path, beside: bool) -> None:
    """A config that names no padding gets the tokenizer's, by which data are padded; else the end of a text."""
    sizes = {"n_embd": 8, "n_layer": 1, "n_head": 2, "n_positions": 12}
    tokenizer = byte_tokenizer()
    config = GPT2Config(vocab_size=len(tokenizer), **sizes, bos_token_id=None, eos_token_id=7, pad_token_id=None)
    checkpoints.save(GPT2LMHeadModel(config).eval(), tmp_path / "decoder")
    if beside:
        tokenizer.save_pretrained(tmp_path / "decoder")
    model = SequenceClassification(str(tmp_path / "decoder"), NAMES).model.eval()
    assert model.config.pad_token_id == (tokenizer.pad_token_id if beside else 7)


@pytest.mark.parametrize("model_type", ["gpt2", "llama", "opt"])
def test_fresh_decoders_pad_as_the_data_do(tmp_path: Path, model_type: str) -> None:
    """So that what is said of a text does not depend on those beside it."""
    names = ["n_embd", "n_layer", "n_head"] if model_type == "gpt2" else list(SIZES)
    sizes: dict[str, Any] = {**dict(zip(names, SIZES.values(), strict=True)), "vocab_size": 300}
    rows = [{"text": text, "label": label} for label, text in enumerate(("bad", "as good as it gets"))]
    data = TextClassification(
        jsonl(tmp_path / "x.jsonl", rows), "bytes", train_split="train", test_split="train", labels=["no", "yes"]
    )
    task = SequenceClassification({"model_type": model_type, **sizes}, ["no", "yes"])
    fitted(task, data, tmp_path, steps=1)
    (batch,) = data.test_dataloader()
    alone = {name: value[:1, :3] for name, value in batch.items() if name != "labels"}
    together = {name: value for name, value in batch.items() if name != "labels"}
    with torch.no_grad():
        torch.testing.assert_close(task.eval()(together)[:1], task(alone), rtol=1e-4, atol=1e-5)


def test_language_models_keep_the_head_of_the_vocabulary(tmp_path: Path) -> None:
    """Nothing is new when a masked language model is trained on."""
    first = MaskedLanguageModelling(bert()).model.eval()
    checkpoints.save(first, tmp_path / "a")
    second = MaskedLanguageModelling(str(tmp_path / "a")).model
    assert all(torch.equal(second.state_dict()[name], tensor) for name, tensor in first.state_dict().items())


def test_a_body_from_masked_language_modelling_gets_a_head(tmp_path: Path) -> None:
    """Fine-tuning starts from the trained body."""
    checkpoints.save(MaskedLanguageModelling(bert()).model.eval(), tmp_path / "a")
    assert same_body(SequenceClassification(str(tmp_path / "a"), NAMES).model, tmp_path / "a")


def test_image_heads_follow_the_names_too(tmp_path: Path) -> None:
    """Three classes of other names get a fresh head."""
    vit = {"library": "transformers", "model_type": "vit", "image_size": 8, "patch_size": 4, "num_channels": 1,
           "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}  # fmt: skip
    checkpoints.save(ImageClassification(vit, 3, labels=NAMES).model.eval(), tmp_path / "a")
    assert same_head(ImageClassification(str(tmp_path / "a"), 3).model, tmp_path / "a")
    assert not same_head(ImageClassification(str(tmp_path / "a"), 3, labels=["x", "y", "z"]).model, tmp_path / "a")


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: SequenceClassification(bert()), "neither labels nor num_classes"),
        (lambda: SequenceClassification(bert(), NAMES, num_classes=2), "labels has 3 names"),
        (lambda: SequenceClassification(bert(), NAMES, task="nope"), "task is 'nope'"),  # type: ignore[arg-type]
        (lambda: SequenceClassification(bert(), NAMES, class_weights=[1.0]), "class_weights"),
        (lambda: SequenceClassification(bert(), NAMES, task="multilabel", label_smoothing=0.1), "label_smoothing"),
        (lambda: SequenceClassification(bert(), NAMES, learning_rate=0), "learning_rate is 0"),
        (lambda: SequenceClassification(bert(hiden_size=3), NAMES), "hiden_size"),
        (lambda: SequenceClassification({"model_type": "vit"}, NAMES), "cannot build vit"),
        (lambda: SequenceClassification("checkpoints/gone", NAMES), "; a fresh model needs none: model: {model_type"),
        (lambda: TokenClassification({"library": "timm"}, NAMES), "library is 'timm'"),
        (lambda: CausalLanguageModelling({"model_type": "vit"}), "cannot build vit"),
        (lambda: TokenClassification(bert(), ["O", "X"]), ""),
    ],
)
def test_mistakes_are_one_sentence(build: Any, message: str) -> None:
    """The argument is named. (Tags that are no IOB2 are fine: they are scored by accuracy.)"""
    if not message:
        assert build().scores().main == "accuracy"
        return
    with pytest.raises(InputError, match=message) as caught:
        build()
    assert "\n" not in str(caught.value)
