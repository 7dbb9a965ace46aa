"""Both ways to replace an output."""

import pytest


@pytest.fixture(params=["exchanged", "renamed twice"])
def how(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The way that a test replaces outputs by; the second is that of systems without the first."""
    if request.param == "renamed twice":
        monkeypatch.setattr("fusionlab.atomic.placing.exchange", lambda first, second: False)
    return request.param
