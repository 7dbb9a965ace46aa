"""Load checkpoints with the libraries that they are for, and print what they compute; imports nothing of ours.

Usage: ``python read_elsewhere.py JOBS``, a JSON list of jobs, each with its ``kind``, the ``folder`` and what else it
takes.
"""

import json
import sys

import timm
import torch
from peft import PeftModel
from sentence_transformers import SentenceTransformer
from transformers import AutoModelForCausalLM


def logits(kind, folder, base=None):
    """The outputs of one model on inputs that are the same everywhere."""
    if kind == "timm":
        model = timm.create_model(f"local-dir:{folder}", pretrained=True).eval()
        return model(torch.linspace(-1, 1, 128).reshape(2, 1, 8, 8))
    if kind == "sentence-transformers":
        return torch.as_tensor(SentenceTransformer(folder, device="cpu").encode(["a b c", "z"]))
    model = AutoModelForCausalLM.from_pretrained(base or folder, dtype="auto")
    if kind == "peft":
        model = PeftModel.from_pretrained(model, folder)
    return model.eval()(torch.arange(12).reshape(2, 6)).logits


if __name__ == "__main__":
    with torch.no_grad():
        print(json.dumps([logits(**job).double().flatten().tolist() for job in json.loads(sys.argv[1])]))
    assert "fusionlab" not in sys.modules
