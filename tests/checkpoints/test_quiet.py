"""The libraries' chatter is off inside, and as it was afterwards."""

import logging
import warnings
from collections.abc import Iterator

import pytest
from transformers.utils import logging as transformers_logging

from fusionlab.checkpoints.quiet import quiet

LIBRARIES = ("transformers", "timm", "huggingface_hub")


def heard(caplog: pytest.LogCaptureFixture) -> set[str]:
    """The libraries that get an error through."""
    caplog.clear()
    for name in LIBRARIES:
        logging.getLogger(name).error("what went wrong")
    return {record.name for record in caplog.records}


@pytest.fixture
def listening(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """All libraries speak, with levels of their own."""
    loggers = [logging.getLogger(name) for name in LIBRARIES]
    before = [(logger.level, logger.propagate) for logger in loggers]
    progress = transformers_logging.is_progress_bar_enabled()
    for logger, level in zip(loggers, (logging.INFO, logging.WARNING, logging.ERROR), strict=True):
        logger.setLevel(level)
        logger.propagate = True
    transformers_logging.enable_progress_bar()
    yield caplog
    for logger, (level, propagate) in zip(loggers, before, strict=True):
        logger.setLevel(level)
        logger.propagate = propagate
    if not progress:
        transformers_logging.disable_progress_bar()


def levels() -> list[int]:
    return [logging.getLogger(name).level for name in LIBRARIES]


@pytest.mark.parametrize("fails", [False, True])
def test_libraries_are_silent_inside_and_speak_again(listening: pytest.LogCaptureFixture, fails: bool) -> None:
    """Errors, progress bars and warnings; also where the block fails."""
    before = levels()
    assert heard(listening) == set(LIBRARIES)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            with quiet():
                warnings.warn("deprecated", stacklevel=1)
                assert heard(listening) == set()
                assert not transformers_logging.is_progress_bar_enabled()
                if fails:
                    raise RuntimeError
        except RuntimeError:
            assert fails
        assert not caught
        warnings.warn("deprecated", stacklevel=1)
        assert len(caught) == 1
    assert heard(listening) == set(LIBRARIES)
    assert levels() == before
    assert transformers_logging.is_progress_bar_enabled()


def test_progress_bars_that_were_off_stay_off(listening: pytest.LogCaptureFixture) -> None:
    transformers_logging.disable_progress_bar()
    with quiet():
        pass
    assert not transformers_logging.is_progress_bar_enabled()
