"""Nothing is written half: output goes to a temporary name beside its target and is renamed when complete.

Complete means on the disk: files and folders are synced before they get their name, and the folder that holds the name
after it. An output that is replaced is exchanged in one step where the system can.
"""

from fusionlab.atomic.checks import MIB, free_space, refuse_existing, require_space, try_to_write
from fusionlab.atomic.pending import discard_all
from fusionlab.atomic.unfinished import MANIFEST, unfinished
from fusionlab.atomic.writing import atomic_file, atomic_folder, replaced_entries, scratch_folder

__all__ = [
    "MANIFEST",
    "MIB",
    "atomic_file",
    "atomic_folder",
    "discard_all",
    "free_space",
    "refuse_existing",
    "replaced_entries",
    "require_space",
    "scratch_folder",
    "try_to_write",
    "unfinished",
]
