"""Pictures of grids are empty."""

from tests.pictures import empty_pictures

__all__ = ["empty_pictures"]
