"""Commands over checkpoints of every class: what they write can be read again, what they refuse is told as is known."""

import itertools
from pathlib import Path
from typing import Any

import datasets
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForQuestionAnswering,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

from fusionlab import checkpoints
from fusionlab.cli import main
from fusionlab.merging import find_method
from fusionlab.merging.registry import methods
from tests.parts import EVERY
from tests.symmetry.infer.cases import audio, decoders, encoders, experts, multimodal, seq2seq, state_space, vision
from tests.symmetry.infer.cases.sample import Sample
from tests.symmetry.models import generator

# What is known not to work.
FAULTS = {
    "longformer": "layers with windows of several lengths take no text of a length that is a multiple of one alone",
}


def known(name: str, faults: dict[str, str]) -> Any:
    """Marks of a test that is known to fail."""
    return pytest.mark.xfail(reason=faults[name], strict=True) if name in faults else ()


KINDS = (experts, decoders, encoders, vision, seq2seq, audio, multimodal, state_space)
SAMPLES = [pytest.param(one, marks=known(one.name, FAULTS)) for kind in KINDS for one in kind.SAMPLES] if EVERY else []
# Of synthetic inputs.
FEW = ("--probes", "synthetic", "--samples", "8")
INFORMED = ("regmean", "fisher", "regmean_pp", "adamerging")
# Of one kind of end models, or of data with labels; their own tests have them.
ELSEWHERE = ("soup", "knots")
# Sentences of classes that a command is not for.
REFUSALS = (
    "predicts no labels",  # adamerging, fisher
    "has no layers in a list",  # regmean_pp
    "for which an adapter has no place",
    "the data does not fit the model",  # patches of all images in one row
    "strides should be multiple of 16 bytes",  # experts of widths that a fused kernel does not take
    "Tensor must have a stride",
    "lies in groups of channels",  # grow and shrink
    "the model cannot be traced",
    "and other parameters unread",
    "could be guessed from its config",
    "Sequence length should be multiple of",  # layers with windows of several lengths
    "runs several times for one input",  # regmean_pp
    "nothing that gradients can move",  # learned
    "should be exactly three separator tokens",  # Longformer's of its own tokenizer
)


# By the kind of data, heads for them and a line of a file.
HEADS = {
    "texts.csv": (AutoModelForSequenceClassification, "text,label\n" + "a red cat,0\nthe dog sat,1\n" * 12),
    "words.conll": (AutoModelForTokenClassification, "a O\nred B-X\ncat O\n\nthe O\ndog B-X\n\n" * 12),
    "questions.csv": (
        AutoModelForQuestionAnswering,
        "question,context,answer\n" + "the cat,a red cat sat,red cat\nthe dog,the dog sat,sat\n" * 12,
    ),
    "masked.txt": (AutoModelForMaskedLM, "a red cat sat\nthe dog sat\n" * 30),
    "pairs.csv": (AutoModelForSeq2SeqLM, "text,target\n" + "a red cat sat,red cat\nthe dog sat,dog\n" * 12),
    "similar.csv": (AutoModel, "first,second,score\n" + "a red cat,the cat,0.9\na dog sat,a cat,0.2\n" * 12),
    "running.txt": (AutoModelForCausalLM, "a red cat sat\nthe dog sat\n" * 30),
}
# Models that take texts of one length alone.
FIXED = ("nystromformer", "perceiver")
# In make test one with two sides, whose texts are pairs.
READERS = [
    pytest.param(one, file, id=name)
    for kind in (experts, decoders, encoders, seq2seq, state_space)
    for one in kind.SAMPLES
    for file in HEADS
    for name in (f"{one.name} {file}",)
    if (EVERY and one.name not in FIXED) or name == "t5 pairs.csv"
]
WORDS = ("[PAD]", "[BOS]", "[EOS]", "[MASK]", "[UNK]", *["a", "red", "cat", "the", "dog", "sat"])


def ways(a: str, b: str, base: str) -> dict[str, list[str]]:
    """By what they write, commands without the output."""
    found = {
        "weights": ["match", b, "--anchor", a, "--match", "weights"],
        "paper": ["match", b, "--anchor", a, "--base", base],
        "activations": ["match", b, "--anchor", a, "--match", "activations", *FEW],
        "learned": ["match", b, "--anchor", a, "--match", "learned", *FEW, "--steps", "2", "--synthetic", "0"],
        "half": ["merge", a, b, "--dtype", "bfloat16", "--max-shard-size", "100KB"],
        "adapter": ["extract", a, "--base", base, "--rank", "2"],
        "other_adapter": ["merge", a, b, "--base", base, "--method", "ties", "--as", "lora", "--rank", "2"],
        "of_adapter": ["merge", "adapter", b, "--base", base],
        "knots": ["merge", "adapter", "other_adapter", "--base", base, "--method", "knots"],
        "grown": ["grow", a, "--like", base],
        "shrunk": ["shrink", a, "--like", base],
        "fused": ["fuse", "--ckpts", a, b, "--match", "weights"],
    }
    for method in sorted(set(methods()) - set(ELSEWHERE)):
        needs_base = "base" in find_method(method).requires()
        found[method] = ["merge", a, b, "--method", method, *(["--base", base] if needs_base else [])]
        found[method] += FEW if method in INFORMED else ()
    return found


def folders(sample: Sample) -> list[PreTrainedModel]:
    """A base model and two fine-tunes of it, as transformers writes them."""
    found = []
    for seed, name in enumerate(("base", "a", "b")):
        torch.manual_seed(0)
        model = sample.build().float().eval()
        draw = generator(seed)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.02 * seed**0.5 * torch.randn(parameter.shape, generator=draw))
        model.save_pretrained(name)
        found.append(model)
    return found


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_what_is_written_is_read_and_what_is_refused_is_told(
    sample: Sample, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (model, *_) = folders(sample)
    for line in (["inspect", "a"], ["check", "a", "b", "--base", "base", "--values"], ["advise", "a", "b"]):
        assert_done_or_refused(main(line), line, capsys)
    for output, line in ways("a", "b", "base").items():
        if any(word.endswith("adapter") and not Path(word).exists() for word in line):
            continue  # of a class that there is none of
        if not assert_done_or_refused(main([*line, "--output", output]), line, capsys):
            assert not Path(output).exists(), line
            continue
        for folder in itertools.chain([Path(output)], Path(output).rglob("*")):
            if (folder / "config.json").is_file() or (folder / "adapter_config.json").is_file():
                read = checkpoints.load(folder)
                assert type(read) is type(model), line
                assert all(bool(x.isfinite().all()) for x in read.state_dict().values()), line


def assert_done_or_refused(code: int, line: list[str], capsys: pytest.CaptureFixture[str]) -> bool:
    """Whether a command was done; what refused it is in one of the sentences that are known."""
    told = capsys.readouterr().err
    assert code in (0, 2), f"{' '.join(line)}: {told}"
    assert code == 0 or any(words in told.splitlines()[-1] for words in REFUSALS), f"{' '.join(line)}: {told}"
    return code == 0


def tokenizer() -> PreTrainedTokenizerFast:
    """Few words, between a beginning and an end."""
    made = Tokenizer(models.WordLevel({word: place for place, word in enumerate(WORDS)}, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    ends = [(word, WORDS.index(word)) for word in ("[BOS]", "[EOS]")]
    made.post_processor = processors.TemplateProcessing(single="[BOS] $A [EOS]", special_tokens=ends)
    names = {"pad_token": "[PAD]", "bos_token": "[BOS]", "eos_token": "[EOS]", "mask_token": "[MASK]"}
    return PreTrainedTokenizerFast(tokenizer_object=made, unk_token="[UNK]", **names)


def headed(sample: Sample, file: str) -> PreTrainedModel:
    """A model of a sample's config under the head that data are for."""
    config, auto = sample.build().config, HEADS[file][0]
    if type(config) not in auto._model_mapping or (file in ("masked.txt", "similar.csv") and config.is_encoder_decoder):
        pytest.skip("has no such head")
    if not file.endswith(".txt"):
        config.id2label = {0: "O", 1: "B-X"}
        config.label2id = {"O": 0, "B-X": 1}
    for part in (config, config.get_text_config()):
        part.pad_token_id, part.eos_token_id = 0, WORDS.index("[EOS]")
    if config.is_encoder_decoder:
        config.decoder_start_token_id = 0
    config._attn_implementation = "eager"
    config.architectures = config.architectures or []
    return auto.from_config(config).float().eval()


@pytest.mark.parametrize(("sample", "file"), READERS)
def test_data_of_the_user_are_read_for_every_head(
    sample: Sample, file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """For learning and activations, for methods that look at data, and for measuring."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    Path(file).write_text(HEADS[file][1])
    for seed, name in enumerate("ab"):
        torch.manual_seed(seed)
        headed(sample, file).save_pretrained(name)
        tokenizer().save_pretrained(name)
    fuse = ["fuse", "--ckpts", "a", "b", "--data", file, "--points", "0", "--output"]
    learned = ["--match", "learned", "--steps", "2", "--batch_size", "4", "--synthetic", "0", "--method", "fisher"]
    for line in (
        [*fuse, "learned", *learned],
        [*fuse, "activations", "--match", "activations", "--method", "regmean", "--polish", "2"],
        ["merge", "a", "b", "--method", "regmean_pp", "--probes", file, "--output", "informed"],
        ["barrier", "a", "b", "--data", file, "--points", "3", "--match", "none"],
        ["advise", "a", "b", "--data", file],
    ):
        assert_done_or_refused(main(line), line, capsys)
