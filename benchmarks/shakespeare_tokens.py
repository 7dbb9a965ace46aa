"""GPT-2's tokenizer with no more tokens than a text needs, for models that are small beside 50,257 of them.

    python benchmarks/shakespeare_tokens.py --tokenizer openai-community/gpt2

Every merge that GPT-2's byte-level BPE takes in the text stays, with the bytes and what merges pass through, so the
text is split just as by the whole tokenizer; all others, which would be rows that nothing reads, are left out. The
folder is the tokenizer of `gpt2_shakespeare_bpe.yaml`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pandas as pd
from tokenizers import Tokenizer, models
from transformers import AutoTokenizer, PreTrainedTokenizerFast

ROOT = Path(__file__).parents[1]
END = "<|endoftext|>"


def needed(tokens: Iterable[str], merges: Sequence[Sequence[str]]) -> set[str]:
    """Some tokens, and all that merges pass through on the way to them.

    Args:
        tokens: of a vocabulary, each a byte or a merge.
        merges: pairs of tokens, those that are taken first in front.
    """
    made: dict[str, Sequence[str]] = {}
    for pair in merges:
        made.setdefault("".join(pair), pair)
    found, waiting = set[str](), list(tokens)
    while waiting:
        token = waiting.pop()
        if token not in found:
            found.add(token)
            waiting += made.get(token, ())
    return found


def smaller(whole: Tokenizer, texts: Iterable[str]) -> Tokenizer:
    """A byte-level BPE that splits some texts as another does, with no more tokens than that takes.

    Args:
        whole: the other one.
        texts: to be split alike.
    """
    state = json.loads(whole.to_str())["model"]
    vocabulary: Mapping[str, int] = state["vocab"]
    pairs = [pair.split(" ") if isinstance(pair, str) else pair for pair in state["merges"]]
    seen = {token for text in texts for token in whole.encode(text).tokens}
    letters = {token for token in vocabulary if len(token) == 1}
    kept = sorted(needed(seen | letters, pairs) | {END}, key=vocabulary.__getitem__)
    merges = [(first, second) for first, second in pairs if {first, second, first + second} <= set(kept)]
    result = Tokenizer(models.BPE(vocab={token: index for index, token in enumerate(kept)}, merges=merges))
    result.pre_tokenizer, result.decoder = whole.pre_tokenizer, whole.decoder
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokenizer", default="openai-community/gpt2", help="GPT-2's: a hub id or a folder")
    parser.add_argument(
        "--text", type=Path, default=ROOT.parent / "shared/data/lm/tiny_shakespeare.parquet", help="with a column text"
    )
    parser.add_argument("--output", type=Path, default=ROOT / "checkpoints" / "gpt2_shakespeare_tokens")
    args = parser.parse_args()
    whole = AutoTokenizer.from_pretrained(args.tokenizer).backend_tokenizer
    # As blocks of text are made of it: texts with a blank line behind each.
    texts = [f"{text}\n\n" for text in pd.read_parquet(args.text)["text"]]
    result = smaller(whole, texts)
    for text in texts:
        if result.encode(text).tokens != whole.encode(text).tokens:
            raise SystemExit(f"another split of {text[:40]!r}")
    PreTrainedTokenizerFast(tokenizer_object=result, bos_token=END, eos_token=END, unk_token=END).save_pretrained(
        args.output
    )
    print(f"{args.output}: {result.get_vocab_size()} of {whole.get_vocab_size()} tokens")
    return 0


if __name__ == "__main__":
    sys.exit(main())
