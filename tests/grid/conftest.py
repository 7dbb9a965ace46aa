"""Pictures of grids are small."""

from tests.pictures import small_pictures

__all__ = ["small_pictures"]
