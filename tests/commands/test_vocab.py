"""Models of different vocabularies get one, and compute what they did on the tokens that they knew."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, processors, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from fusionlab import checkpoints
from tests.commands.conftest import Command
from tests.robustness.sound import SPECIAL
from tests.robustness.sound import tokenizer as word_pieces

FIRST = ["the", "model", "##s", "merge", "one", "two", "is", "un"]
SIZES: dict[str, Any] = {
    "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24,
}  # fmt: skip
SECOND = ["two", "weight", "is", "##s", "head", "one", "the", "##ing"]


def byte_pairs(texts: list[str], added: list[str]) -> PreTrainedTokenizerFast:
    """Pairs of bytes, learned from texts, and added tokens."""
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    core.train_from_iterator(
        texts, trainers.BpeTrainer(vocab_size=280, initial_alphabet=alphabet, special_tokens=["<e>"])
    )
    core.add_special_tokens([AddedToken(token, normalized=False) for token in added])
    return PreTrainedTokenizerFast(tokenizer_object=core, eos_token="<e>", pad_token="<e>")


def pieces(words: list[str]) -> PreTrainedTokenizerFast:
    """A Unigram model."""
    scored = [("<unk>", 0.0), ("<e>", 0.0), *((word, -float(i)) for i, word in enumerate(words)), ("▁", -9.0)]
    core = Tokenizer(models.Unigram(scored, unk_id=0))
    core.pre_tokenizer = pre_tokenizers.Metaspace()
    return PreTrainedTokenizerFast(tokenizer_object=core, eos_token="<e>", pad_token="<e>", unk_token="<unk>")


def bert(seed: int, tokenizer: PreTrainedTokenizerFast, rows: int | None = None) -> transformers.BertForMaskedLM:
    torch.manual_seed(seed)
    config = transformers.BertConfig(**SIZES, vocab_size=rows or len(tokenizer), pad_token_id=tokenizer.pad_token_id)
    return transformers.BertForMaskedLM(config).eval()


def llama(seed: int, tokenizer: PreTrainedTokenizerFast) -> transformers.LlamaForCausalLM:
    torch.manual_seed(seed)
    end = tokenizer.convert_tokens_to_ids("<e>")
    config = transformers.LlamaConfig(**SIZES, vocab_size=len(tokenizer), eos_token_id=end, bos_token_id=end)
    return transformers.LlamaForCausalLM(config).eval()


def saved(folder: Path, model: transformers.PreTrainedModel, tokenizer: PreTrainedTokenizerFast) -> Path:
    checkpoints.save(model, folder)
    tokenizer.save_pretrained(folder)
    (folder / "vocab.txt").write_text("what an older tokenizer would read\n")
    return folder


def assert_the_same_function(before: Path, after: Path, text: str, cls: Any) -> None:
    """A text becomes the same tokens, and their logits over the tokens that both know are the same."""
    old, new = AutoTokenizer.from_pretrained(before), AutoTokenizer.from_pretrained(after)
    ids, again = old(text)["input_ids"], new(text)["input_ids"]
    assert new.convert_ids_to_tokens(again) == old.convert_ids_to_tokens(ids)
    shared = [token for token in old.get_vocab() if token in new.get_vocab()]
    with torch.no_grad():
        one, other = (
            cls.from_pretrained(folder)(torch.tensor([numbers])).logits[..., tokenizer.convert_tokens_to_ids(shared)]
            for folder, numbers, tokenizer in ((before, ids, old), (after, again, new))
        )
    torch.testing.assert_close(other, one, rtol=1e-5, atol=1e-6)


@pytest.fixture
def berts(tmp_path: Path) -> list[Path]:
    """Two BERTs, the second with rows that stand for no token."""
    one, other = word_pieces(FIRST), word_pieces(SECOND)
    return [saved(tmp_path / "a", bert(0, one), one), saved(tmp_path / "b", bert(1, other, 17), other)]


def test_union(berts: list[Path], tmp_path: Path, command: Command) -> None:
    """Every token of both, the first model's numbers unchanged; then the two can be merged, which says so before."""
    for line in (("merge", *berts), ("match", berts[0], "--anchor", berts[1])):
        refused = command(*line, "--output", tmp_path / "no")
        assert refused.code == 2
        assert "fusionlab vocab gives models of different vocabularies one" in refused.err
    outcome = command("vocab", *berts, "--output", tmp_path / "out")
    assert (outcome.code, outcome.err) == (0, "")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out" / "a")
    vocabulary = tokenizer.get_vocab()
    assert vocabulary.keys() == {*SPECIAL, *FIRST, *SECOND}
    assert all(vocabulary[word] == number for number, word in enumerate([*SPECIAL, *FIRST]))
    for name, text in (("a", "the models is one"), ("b", "the heads is weighting two")):
        assert_the_same_function(tmp_path / name, tmp_path / "out" / name, text, transformers.BertForMaskedLM)
    assert tokenizer.tokenize("unweightings") == ["un", "[UNK]"] or tokenizer.tokenize("weightings") == [
        "weight", "##ing", "##s",
    ]  # fmt: skip
    assert not (tmp_path / "out" / "a" / "vocab.txt").exists()
    merged = command("merge", tmp_path / "out" / "a", tmp_path / "out" / "b", "--output", tmp_path / "merged")
    assert (merged.code, merged.err) == (0, "")
    assert AutoTokenizer.from_pretrained(tmp_path / "merged").get_vocab() == vocabulary
    matched = command(
        "match", tmp_path / "out" / "a", "--anchor", tmp_path / "out" / "b", "--output", tmp_path / "twin"
    )
    assert matched.code == 0


def test_each_parameter_keeps_its_type(tmp_path: Path, command: Command) -> None:
    """Norms in float32 beside matrices in bfloat16 are not rounded as tables get other rows."""
    folders, models = [], []
    for seed, words in enumerate((FIRST, SECOND)):
        tokenizer = word_pieces(words)
        model = bert(seed, tokenizer).bfloat16()
        for name, parameter in model.named_parameters():
            if "LayerNorm" in name:
                parameter.data = 1 + torch.randn(parameter.shape) / 9
        folders.append(saved(tmp_path / f"{seed}", model, tokenizer))
        models.append(model)
    outcome = command("vocab", *folders, "--output", tmp_path / "out")
    assert outcome.code == 0, outcome.err
    for folder, model in zip(folders, models, strict=True):
        found = checkpoints.load(tmp_path / "out" / folder.name).state_dict()
        for name, tensor in model.state_dict().items():
            assert found[name].dtype == tensor.dtype, name
            assert "LayerNorm" not in name or torch.equal(found[name], tensor), name


def test_a_row_that_a_model_lacks_is_the_others_mean(berts: list[Path], tmp_path: Path, command: Command) -> None:
    """Of three models, the two that have a token give it to the third; every bias over tokens has as many entries."""
    other = word_pieces(SECOND)
    berts.append(saved(tmp_path / "c", bert(2, other), other))
    assert command("vocab", *berts, "--output", tmp_path / "out").code == 0
    table = "bert.embeddings.word_embeddings.weight"
    states = [checkpoints.load(tmp_path / "out" / name).state_dict() for name in "abc"]
    number = AutoTokenizer.from_pretrained(tmp_path / "out" / "a").get_vocab()["weight"]
    expected = (states[1][table][number] + states[2][table][number]) / 2
    torch.testing.assert_close(states[0][table][number], expected)
    assert {state["cls.predictions.bias"].shape[0] for state in states} == {len({*SPECIAL, *FIRST, *SECOND})}


@pytest.mark.parametrize(("keep", "expected"), [("first", [*SPECIAL, *FIRST]), ("intersection", None)])
def test_fewer_tokens(
    berts: list[Path], tmp_path: Path, command: Command, keep: str, expected: list[str] | None
) -> None:
    """The first model's vocabulary, or what both have, in the first one's order."""
    both = [word for word in (*SPECIAL, *FIRST) if word in (*SPECIAL, *SECOND)]
    told = json.loads(command("vocab", *berts, "--keep", keep, "--output", tmp_path / "out", "--json").out)
    vocabulary = AutoTokenizer.from_pretrained(tmp_path / "out" / "b").get_vocab()
    assert told["tokens"] == len(vocabulary)
    assert [one["model"] for one in told["models"]] == ["a", "b"]
    assert sorted(vocabulary, key=lambda word: vocabulary[word]) == (expected or both)
    assert_the_same_function(tmp_path / "b", tmp_path / "out" / "b", "the one is two", transformers.BertForMaskedLM)


def test_the_bases_tokens(berts: list[Path], tmp_path: Path, command: Command) -> None:
    """The base's vocabulary, padded rows included; it is written too."""
    line = ("vocab", berts[0], "--base", berts[1], "--keep", "base", "--output", tmp_path / "out")
    assert command(*line).code == 0
    written = {name: checkpoints.load(tmp_path / "out" / name) for name in "ab"}
    assert {model.config.vocab_size for model in written.values()} == {17}
    for name, tensor in checkpoints.load(berts[1]).state_dict().items():
        torch.testing.assert_close(written["b"].state_dict()[name], tensor)


def test_added_tokens_of_a_fine_tune(tmp_path: Path, command: Command) -> None:
    """Two Llamas on one tokenizer, each with tokens of its own: numbers in configs follow the tokens."""
    texts = ["one model is merged", "two models are matched"]
    one, other = byte_pairs(texts, ["<user>", "<tool>"]), byte_pairs(texts, ["<think>", "<user>"])
    places = [saved(tmp_path / "a", llama(0, one), one), saved(tmp_path / "b", llama(1, other), other)]
    second = checkpoints.load(places[1])
    second.config.eos_token_id = second.generation_config.eos_token_id = other.convert_tokens_to_ids("<think>")
    second.save_pretrained(places[1])
    assert command("vocab", *places, "--output", tmp_path / "out").code == 0
    for name, text in (("a", "one<tool> model<user> is"), ("b", "two<think> merged<user>")):
        assert_the_same_function(tmp_path / name, tmp_path / "out" / name, text, transformers.LlamaForCausalLM)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out" / "b")
    think = tokenizer.convert_tokens_to_ids("<think>")
    assert think == len(one)
    written = checkpoints.load(tmp_path / "out" / "b")
    assert written.config.eos_token_id == written.generation_config.eos_token_id == think


@pytest.mark.parametrize("keep", ["union", "first", "intersection"])
def test_added_tokens_beside_other_pieces(tmp_path: Path, command: Command, keep: str) -> None:
    """Each keeps its row though the other model's pieces come after them; tokens not to be written follow theirs."""
    one = byte_pairs(["matched models matched"], ["<user>", "<tool>"])
    other = byte_pairs(["merged heads merged"], ["<user>", "<tool>"])
    places = [saved(tmp_path / "a", llama(0, one), one), saved(tmp_path / "b", llama(1, other), other)]
    second = checkpoints.load(places[1])
    user, tool = (other.convert_tokens_to_ids(token) for token in ("<user>", "<tool>"))
    second.generation_config.suppress_tokens = [user]
    second.generation_config.bad_words_ids = [[tool, user]]
    second.save_pretrained(places[1])
    assert command("vocab", *places, "--keep", keep, "--output", tmp_path / "out").code == 0
    for name, text in (("a", "a<tool> is<user>"), ("b", "is<user>a<tool>")):
        assert_the_same_function(tmp_path / name, tmp_path / "out" / name, text, transformers.LlamaForCausalLM)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out" / "b")
    user, tool = (tokenizer.convert_tokens_to_ids(token) for token in ("<user>", "<tool>"))
    written = checkpoints.load(tmp_path / "out" / "b").generation_config
    assert (written.suppress_tokens, written.bad_words_ids) == ([user], [[tool, user]])


def test_byte_pairs_of_other_texts(tmp_path: Path, command: Command) -> None:
    """Merges of both are in a union, the first one's before; an intersection has those alone whose pieces are left."""
    one, other = byte_pairs(["matched models matched"], []), byte_pairs(["merged heads merged"], [])
    places = [saved(tmp_path / "a", llama(0, one), one), saved(tmp_path / "b", llama(1, other), other)]
    assert command("vocab", *places, "--output", tmp_path / "out").code == 0
    assert_the_same_function(places[0], tmp_path / "out" / "a", "matched models", transformers.LlamaForCausalLM)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out" / "a")
    for text, tokens in (("matched models", one), ("merged heads", other)):
        assert len(tokens.tokenize(text)) < 8
        assert len(tokenizer.tokenize(text)) <= len(tokens.tokenize(text))
    assert command("vocab", *places, "--keep", "intersection", "--output", tmp_path / "both").code == 0
    shared = AutoTokenizer.from_pretrained(tmp_path / "both" / "b")
    assert shared.get_vocab().keys() == one.get_vocab().keys() & other.get_vocab().keys()
    assert shared.convert_tokens_to_ids(shared.tokenize("matched heads")) == shared("matched heads")["input_ids"]


def test_special_tokens_get_other_numbers(tmp_path: Path, command: Command) -> None:
    """Those that the tokenizer puts around a text, in the numbers of the words that are kept."""
    words = [word_pieces([]), word_pieces(SECOND)]
    core = Tokenizer(
        models.WordPiece({word: i for i, word in enumerate(["model", "weights", *SPECIAL, *SECOND])}, unk_token="[UNK]")
    )
    core.pre_tokenizer = pre_tokenizers.Whitespace()
    core.post_processor = processors.RobertaProcessing(("[SEP]", 5), ("[CLS]", 4))
    names = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), SPECIAL, strict=True))
    words[0] = PreTrainedTokenizerFast(tokenizer_object=core, **names)
    places = [saved(tmp_path / name, bert(seed, words[seed]), words[seed]) for seed, name in enumerate("ab")]
    assert command("vocab", *places, "--keep", "intersection", "--output", tmp_path / "out").code == 0
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out" / "a")
    assert tokenizer.convert_ids_to_tokens(tokenizer("one weight")["input_ids"]) == ["[CLS]", "one", "weight", "[SEP]"]
    for name in "ab":
        assert_the_same_function(tmp_path / name, tmp_path / "out" / name, "two head one", transformers.BertForMaskedLM)
    assert command("vocab", *reversed(places), "--output", tmp_path / "all").code == 0
    assert_the_same_function(places[0], tmp_path / "all" / "a", "two head model", transformers.BertForMaskedLM)


def test_a_special_token_on_a_row_of_no_token(tmp_path: Path, command: Command) -> None:
    """It keeps its row where that is kept, and is never another token's."""
    tokens, other = word_pieces(FIRST), word_pieces(SECOND)
    places = []
    for seed, own in enumerate((tokens, other)):
        model = bert(seed, own, len(tokens) + 8)
        model.config.pad_token_id = len(tokens) + 3
        places.append(saved(tmp_path / "ab"[seed], model, own))
    outcome = command("vocab", *places, "--output", tmp_path / "union")
    assert outcome.code == 2
    assert f"its pad_token_id is {len(tokens) + 3}, a row that its tokenizer has no token for" in outcome.err
    assert not (tmp_path / "union").exists()
    assert command("vocab", *places, "--keep", "first", "--output", tmp_path / "out").code == 0
    for name in "ab":
        assert transformers.BertConfig.from_pretrained(tmp_path / "out" / name).pad_token_id == len(tokens) + 3


@pytest.mark.parametrize("padded", [True, False])
def test_a_token_to_pad_with_is_the_tokenizers_own(tmp_path: Path, command: Command, padded: bool) -> None:
    """One that has none is written without one."""
    tokens = pieces(["▁one", "▁model"])
    own = tokens if padded else PreTrainedTokenizerFast(tokenizer_object=tokens.backend_tokenizer, eos_token="<e>")
    places = [saved(tmp_path / name, llama(seed, tokens), own) for seed, name in enumerate("ab")]
    assert command("vocab", *places, "--output", tmp_path / "out").code == 0
    assert AutoTokenizer.from_pretrained(tmp_path / "out" / "b").pad_token == ("<e>" if padded else None)


def test_unigrams(tmp_path: Path, command: Command) -> None:
    """Numbers are places in a list, and scores come along."""
    one, other = pieces(["▁one", "▁model"]), pieces(["▁two", "▁one", "▁weight"])
    places = [saved(tmp_path / "a", llama(0, one), one), saved(tmp_path / "b", llama(1, other), other)]
    assert command("vocab", *places, "--output", tmp_path / "out").code == 0
    for name, text in (("a", "one model"), ("b", "two weight one")):
        assert_the_same_function(tmp_path / name, tmp_path / "out" / name, text, transformers.LlamaForCausalLM)


def test_refusals(berts: list[Path], tmp_path: Path, command: Command) -> None:
    """One sentence each, and nothing written."""
    tokens = byte_pairs(["one"], [])
    other = saved(tmp_path / "pairs", bert(3, tokens), tokens)
    words = [word for word in SPECIAL if word != "[MASK]"]
    bare = tmp_path / "bare"
    checkpoints.save(bert(3, tokens), bare)
    few = word_pieces(FIRST)
    small = saved(tmp_path / "small", bert(4, few, len(words)), few)
    for line, said in (
        ([berts[0], other], "expected tokenizers of one kind"),
        ([berts[0], berts[1], "--keep", "base"], "no base was given"),
        ([berts[0]], "expected at least two"),
        ([berts[0], bare], "there is no tokenizer in it"),
        ([berts[0], small], "expected the tokenizer that the model was trained with"),
    ):
        outcome = command("vocab", *line, "--output", tmp_path / "out")
        assert outcome.code == 2
        assert said in outcome.err
        assert len(outcome.err.strip().splitlines()) == 1
        assert not (tmp_path / "out").exists()
