"""End models of a class that transformers does not have: they can be merged as they come, and not matched."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from fusionlab.checkpoints.files import CONFIG
from fusionlab.errors import InputError
from fusionlab.streaming import StoredModel
from fusionlab.streaming.known import is_known


def unknown_among(models: Mapping[str, StoredModel]) -> StoredModel | None:
    """The first model of a class that transformers does not have; None where it has all, or a config names none.

    Args:
        models: by name.
    """
    named = [model for model in models.values() if isinstance(model.config.get("model_type"), str)]
    return next((model for model in named if not is_known(model)), None)


def refuse_matching(models: Mapping[str, StoredModel], matchings: Collection[str]) -> None:
    """Refuse to match models of such a class.

    Args:
        models: by name.
        matchings: that were asked for, by name.

    Raises:
        InputError: there is one.
    """
    unknown = unknown_among(models)
    if unknown is not None and matchings:
        raise InputError(
            f"{unknown.location / CONFIG}: model type {unknown.config['model_type']!r} is not one that transformers "
            f"knows (code that comes with a checkpoint is never run), so no symmetry of it is known; expected --match "
            f"none, which merges what has equal names and shapes"
        )


def unmatched_notes(models: Mapping[str, StoredModel]) -> list[str]:
    """Sentences for the report of a merge of such models; none where there are none.

    Args:
        models: by name.
    """
    unknown = unknown_among(models)
    if unknown is None:
        return []
    kind = unknown.config["model_type"]
    return [
        f"No symmetry is known of models of type {kind!r}, which transformers does not have, so matching was not "
        f"tried: names and shapes agree, and nothing else was looked at."
    ]
