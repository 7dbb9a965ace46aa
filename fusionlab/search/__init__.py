"""A search of a merge method's hyperparameters and of the models' weights, by a score: the space, and the trials."""

from fusionlab.search.journal import refuse_journal
from fusionlab.search.options import SearchOptions
from fusionlab.search.space import WEIGHTS, Settings, Space
from fusionlab.search.trials import Found, Trial, Trials

__all__ = ["WEIGHTS", "Found", "SearchOptions", "Settings", "Space", "Trial", "Trials", "refuse_journal"]
