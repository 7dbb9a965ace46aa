"""LightningDataModules: the hub, local files, and a bundled sample."""

from fusionlab.data.digits import Digits
from fusionlab.data.images import Images

__all__ = ["Digits", "Images"]
