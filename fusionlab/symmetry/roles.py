"""Roles: the kinds of spaces that there are. What holds for a kind is decided by these, never by a name's spelling."""

from enum import StrEnum
from typing import NoReturn


class Role(StrEnum):
    """The kind of a space, dotted from coarse to fine; options select by it and reports sum up by it."""

    RESIDUAL = "residual"
    RESIDUAL_SCALE = "residual.scale"
    EMBEDDING = "embedding"
    HEADS = "heads"
    QUERIES = "heads.queries"
    QUERY_KEY = "attention.qk"
    QUERY_KEY_SCALE = "attention.qk.scale"
    VALUE_OUTPUT = "attention.vo"
    LATENT = "latent"
    EXPERTS = "experts"
    GROUPS = "groups"
    UNITS = "ffn"
    UNIT_SCALE = "ffn.scale"

    def __repr__(self) -> str:
        # Part of the fingerprints that saved alignments carry.
        return repr(self.value)

    @classmethod
    def _missing_(cls, value: object) -> NoReturn:
        raise ValueError(f"role is {value!r}; expected one of {', '.join(cls)}")
