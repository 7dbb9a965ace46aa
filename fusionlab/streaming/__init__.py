"""Merging without models: tensors are read from files, merged and written, a piece at a time."""

from fusionlab.streaming.agreement import may_stream
from fusionlab.streaming.memory import memory_of
from fusionlab.streaming.merge import Streamed, stream_merge
from fusionlab.streaming.naming import under_one_naming
from fusionlab.streaming.opening import open_model, open_models
from fusionlab.streaming.recipe import Recipe
from fusionlab.streaming.resuming import Manifest, Tally, files_of, made_of, refuse_other
from fusionlab.streaming.shards import shard_bytes
from fusionlab.streaming.side_files import write_side_files
from fusionlab.streaming.stored import StoredModel, open_folder

__all__ = [
    "Manifest",
    "Recipe",
    "StoredModel",
    "Streamed",
    "Tally",
    "files_of",
    "made_of",
    "may_stream",
    "memory_of",
    "open_folder",
    "open_model",
    "open_models",
    "refuse_other",
    "shard_bytes",
    "stream_merge",
    "under_one_naming",
    "write_side_files",
]
