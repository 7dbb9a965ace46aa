"""A short line between models as they are, and a look at what their plain mean says of inputs, for advice."""

from jsonargparse import Namespace
from lightning.pytorch import seed_everything

from fusionlab.advice import INPUTS, Agreement, agreement_of
from fusionlab.commands import data_options, own_data, parsing
from fusionlab.evaluation.curves import Curve
from fusionlab.evaluation.line import refuse_points
from fusionlab.experiment import Plan
from fusionlab.experiment import run as run_experiment


def measured(arguments: Namespace) -> tuple[list[Curve], Agreement | None]:
    """Lines from the first model to each other, on the data that the arguments name; nothing is matched.

    Args:
        arguments: of ``fusionlab advise``.

    Returns:
        The lines, on test data; and the agreement on training inputs, where there are some, without labels.

    Raises:
        InputError: checkpoints or data that do not fit.
    """
    seed_everything(arguments.seed, verbose=False)
    refuse_points(arguments.points, may_be_none=False)
    trainer = data_options.trainer_options(arguments)
    found = parsing.read_all(arguments.ckpts, names=arguments.names)
    own_data.fitted(arguments, list(found.values()), "advise")
    plan = Plan(matchings={}, ensemble=False, points=arguments.points, trainer=trainer, seed=arguments.seed)
    models = {label: checkpoint.model for label, checkpoint in found.items()}
    inputs = data_options.training_inputs(arguments, len(models), INPUTS)
    agreement = None if inputs is None else agreement_of(list(models.values()), inputs.shared)
    return run_experiment(models, data_options.test_data(arguments), plan, "Advice")[1].curves, agreement
