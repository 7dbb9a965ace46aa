"""Models of classes that transformers or timm has."""

from __future__ import annotations

from fusionlab.streaming.stored import StoredModel


def is_known(model: StoredModel) -> bool:
    """True if transformers or timm has the class of a model."""
    if model.format == "timm":
        return True
    import transformers  # noqa: PLC0415 - only models that differ are worth the second it takes

    return model.config.get("model_type") in transformers.CONFIG_MAPPING
