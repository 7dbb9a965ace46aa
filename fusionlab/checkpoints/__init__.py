"""Checkpoints: Hugging Face folders and hub ids, timm folders, Lightning files; read safely, written atomically."""

from fusionlab.checkpoints.checkpoint import Checkpoint, load, read, save, stored_as
from fusionlab.checkpoints.huggingface import load_with_head
from fusionlab.checkpoints.lightning_file import describe

__all__ = ["Checkpoint", "describe", "load", "load_with_head", "read", "save", "stored_as"]
