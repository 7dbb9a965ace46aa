"""The trials of a search: Optuna proposes settings, is told their scores, and goes on where a search was cut."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fusionlab.errors import InputError
from fusionlab.search.journal import Journal, optuna_quietly
from fusionlab.search.options import SearchOptions
from fusionlab.search.space import Axis, Settings, Space, Value

if TYPE_CHECKING:  # an extra
    import optuna

# Of a trial, in Optuna's journal.
SCORES, SECONDS, REFUSAL = "scores", "seconds", "refusal"


@dataclass(frozen=True)
class Trial:
    """One merge that was scored.

    Attributes:
        point: values by what is searched; empty for settings as given that are no point of the space.
        settings: of the merge.
        score: higher is better; not a number where the settings are none that the method takes.
        scores: by data set, what the score is made of.
        seconds: for the merge and its scores.
        refusal: why the method does not take the settings; empty where it does.
    """

    point: dict[str, Value]
    settings: Settings
    score: float
    scores: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    refusal: str = ""


@dataclass(frozen=True)
class Found:
    """The outcome of a search.

    Attributes:
        method: the merge method.
        trials: all, in order; the first has the settings as they were given.
        told: how it was searched, in words for the reader.
    """

    method: str
    trials: tuple[Trial, ...]
    told: str = ""

    @property
    def best(self) -> Trial:
        """The trial with the highest score; of equals the first.

        Raises:
            InputError: no trial has a finite score.
        """
        kept = [trial for trial in self.trials if math.isfinite(trial.score)]
        if not kept:
            refusal = next((f" ({trial.refusal})" for trial in self.trials if trial.refusal), "")
            raise InputError(
                f"search found no settings of {self.method!r} with a finite score in {len(self.trials)} trials"
                f"{refusal}; expected over to give other ranges"
            )
        return max(kept, key=lambda trial: trial.score)

    def to_json(self) -> str:
        """All trials as JSON: how they were made, the best, and each with its settings and scores."""
        rows = [
            {
                "settings": trial.settings.hyperparameters,
                "weights": trial.settings.weights,
                "score": trial.score if math.isfinite(trial.score) else None,
                "scores": trial.scores,
                "seconds": round(trial.seconds, 3),
            }
            for trial in self.trials
        ]
        best = self.trials.index(self.best)
        told = {"method": self.method, "search": self.told, "best": best, "evaluations": len(rows), "trials": rows}
        return json.dumps(told, indent=1, ensure_ascii=False) + "\n"


class Trials:
    """Proposals of settings one after the other, each told its score before the next is asked for.

    The same seed gives the same proposals. With a journal, trials of the same search are taken from there, and `ask`
    gives what is left.

    Args:
        space: to search.
        options: how.
        of: a digest of what is merged and scored, so that a journal is not gone on with for another search.

    Raises:
        InputError: a journal that cannot be read, or whose trials this search would not make.
    """

    def __init__(self, space: Space, options: SearchOptions, of: str = "") -> None:
        self.space, self.options = space, options
        self.done: list[Trial] = []
        self._asked: optuna.trial.Trial | None = None
        with optuna_quietly() as library:
            self._distributions = {axis.name: _distribution(library, axis) for axis in space.axes}
            self._study = library.create_study(direction="maximize", sampler=_sampler(library, options))
            if space.has_start:
                self._study.enqueue_trial(space.start())
        self._journal: Journal | None = None
        if options.journal is not None:
            self._journal = Journal(Path(options.journal), self._name(of))
            for trial in self._journal.trials()[: options.trials]:
                self._replay(trial)

    def ask(self) -> Settings | None:
        """The settings to try next; None once all trials were made.

        The first are those given, as they are. Optuna is told of them where they are a point of the space.
        """
        if len(self.done) >= self.options.trials:
            return None
        self._asked = self._next()
        return self._settings(self._point())

    def tell(
        self, score: float, scores: dict[str, float] | None = None, seconds: float = 0.0, refusal: str = ""
    ) -> None:
        """Take the score of the settings that were asked for last.

        Args:
            score: higher is better; not finite for settings that the method does not take.
            scores: what it is made of.
            seconds: that it took.
            refusal: why the method does not take the settings.
        """
        point, found = self._point(), dict(scores or {})
        with optuna_quietly() as library:
            told = self._told(library, score)
            if self._asked is not None:
                self._study.tell(self._asked, **told)
            if self._journal is not None:
                trial = library.trial.create_trial(
                    params=point,
                    distributions=self._distributions if point else {},
                    user_attrs={SCORES: found, SECONDS: seconds, REFUSAL: refusal},
                    value=told.get("values"),
                    state=told.get("state", library.trial.TrialState.COMPLETE),
                )
                self._journal.add(trial)
        self._asked = None
        self.done.append(Trial(point, self._settings(point), score, found, seconds, refusal))

    def found(self, told: str = "") -> Found:
        """The outcome of the trials so far.

        Args:
            told: how they were made.
        """
        return Found(self.space.method, tuple(self.done), told)

    def _next(self) -> optuna.trial.Trial | None:
        """Optuna's proposal; none for settings as given that are no point of the space."""
        if not self.done and not self.space.has_start:
            return None
        with optuna_quietly():
            return self._study.ask(self._distributions)

    def _point(self) -> dict[str, Value]:
        return {} if self._asked is None else dict(self._asked.params)

    def _settings(self, point: dict[str, Value]) -> Settings:
        return self.space.settings(point) if self.done else self.space.given

    def _told(self, library: Any, score: float) -> dict[str, Any]:
        return {"values": score} if math.isfinite(score) else {"state": library.trial.TrialState.FAIL}

    def _name(self, of: str) -> str:
        """A name for the trials of this search, which no other one has."""
        options = {name: getattr(self.options, name) for name in ("sampler", "metric", "seed")}
        told = json.dumps([of, repr(self.space), options], sort_keys=True)
        return hashlib.blake2b(told.encode(), digest_size=8).hexdigest()

    def _replay(self, trial: optuna.trial.FrozenTrial) -> None:
        """Go through a trial of the journal as if it were made now, so that the sampler is where it was."""
        self._asked = self._next()
        point = self._point()
        if point != trial.params:
            raise InputError(
                f"the journal {self.options.journal} holds trials that this search would not make, such as of another "
                f"version of Optuna; expected another file"
            )
        score = math.nan if trial.value is None else trial.value
        if self._asked is not None:
            with optuna_quietly() as library:
                self._study.tell(self._asked, **self._told(library, score))
        self._asked, seen = None, trial.user_attrs
        self.done.append(Trial(point, self._settings(point), score, seen[SCORES], seen[SECONDS], seen[REFUSAL]))


def _sampler(library: Any, options: SearchOptions) -> Any:
    if options.sampler == "cmaes":
        return library.samplers.CmaEsSampler(seed=options.seed)
    return library.samplers.TPESampler(seed=options.seed, multivariate=True)


def _distribution(library: Any, axis: Axis) -> Any:
    kinds = library.distributions
    if axis.words:
        return kinds.CategoricalDistribution(axis.words)
    if axis.is_whole:
        return kinds.IntDistribution(int(axis.low), int(axis.high))
    return kinds.FloatDistribution(axis.low, axis.high, log=axis.is_log)
