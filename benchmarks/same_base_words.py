"""What the pages about fine-tunes of one base say beside their numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import same_base_models as digits
import same_base_photo_models as photos
import same_base_text_models as text


@dataclass(frozen=True)
class Words:
    """What a page says.

    Attributes:
        title: of the page.
        option: of the commands, for this page.
        done: what was trained and merged, before the way of counting.
        besides: what else is to be known, behind it.
        score: of the fine-tunes, in the table by task.
        over: what a mean and an interval are over.
        apart: how tuning models and test models differ.
        looked: what methods look at that need inputs.
        unlabelled: what a polish looks at.
        labelled: what searches look at.
    """

    title: str
    option: str
    done: str
    besides: str
    score: str
    over: str
    apart: str
    looked: str
    unlabelled: str
    labelled: str

    def counting(self, number: int, tuning: Sequence[int]) -> str:
        """The way of counting.

        Args:
            number: of models that a mean is over.
            tuning: seeds of the models that hyperparameters are chosen on.
        """
        chosen_on = f"seed{'s' if len(tuning) > 1 else ''} {', '.join(map(str, tuning))}"
        return f"""Numbers are scores in percent of what the task's own fine-tune has, averaged over tasks and over
{number} {self.over}; behind ± is half the width of a 95 % interval over them (Student's t). The worst task is that
which keeps least, averaged over the same. *Defaults* are the tool's. *Chosen* hyperparameters are the best on the
validation examples of tuning models ({chosen_on}), {self.apart}; the grids stand in
`benchmarks/same_base.py`. `fisher`, `regmean` and `regmean_pp` look at {self.looked},
without labels; all others see weights alone. Seconds are of one merge on one thread of a machine that other
programs used, gathering of statistics left out (`regmean_pp` runs models in the merge).
"""


DIGITS = Words(
    title="Fine-tunes of one base: every method",
    option="",
    done=f"""A ViT (4 layers, 64 wide) learns scikit-learn's digits from {digits.OF_BASE} images that are turned,
mirrored, moved, negative and noisy at random. It is fine-tuned on {1400 - digits.VALIDATION - digits.OF_BASE} other
images for each of eight tasks:
{"; ".join(task.name for task in digits.TASKS)}.
The first four make the group of four. A task's head is fitted to the base model first and then stays; bodies are
fine-tuned and merged, and each task is tested with its own head, by accuracy, on 397 images that nothing else sees.
""",
    besides="""How far fine-tuning goes was settled on one of the two tuning families. The tasks and the way heads are
fitted are those of a fourth design: the others, in which the base models knew the tasks already, were thrown away, one
of them after its test tables, of base models 1 to 3 and the same images, had been seen.
""",
    score="accuracy in %",
    over="base models, each with fine-tunes of its own",
    apart="so that choice and test share neither models nor images",
    looked="the fine-tunes' training images",
    unlabelled="training images",
    labelled=f"{digits.VALIDATION} validation images of each task",
)
TEXT = Words(
    title="Fine-tunes of one encoder on eight tasks of text",
    option=" --setting text",
    done=f"""MiniLM (all-MiniLM-L6-v2: 6 layers, 384 wide) is fine-tuned on each of eight tasks:
{", ".join(task.name for task in text.TASKS)}.
The first two and the first four make smaller groups. Each task has at most {text.TRAINED:,} training texts,
{text.EPOCHS} passes and a head of its own, which learns with the body from random numbers; the pooler, which models for
entities lack, counts with the head. Bodies are merged, and each task is tested with its
own head on at most {text.TESTED} texts that nothing else sees: SST-2 by accuracy; ISEAR, GoEmotions and CrowdFlower
(several labels at once) by macro F1 over the emotions that the set annotates; entities (persons, places, organisations
of English EWT, of Broad Twitter and of SEC filings) by F1 of whole ones; STS-B by Pearson's correlation.
""",
    besides="""There is one encoder: what differs from seed to seed is the heads' first numbers, the order of the texts,
and the rounding. Learning rate and passes are those of [text](text.md), where they were chosen on validation texts of
some of these sets. CoLA was to be one of the eight: MiniLM learned nothing of it from 6,000 sentences (Matthews'
correlation 0 on the validation sentences of the tuning seed), and SEC filings took its place. AdaMerging is not
measured: entities and similarity have no classes of a text, whose entropy it would lower. Nor is a search, which takes
minutes for each number of tasks and seed.
""",
    score="in percent",
    over="seeds of fine-tuning",
    apart="on texts that nothing is trained or tested on",
    looked=f"the first {text.LOOKED_AT} training texts of each task",
    unlabelled="training texts",
    labelled=f"{text.VALIDATED} validation texts of each task",
)
ADAPTERS = replace(
    DIGITS,
    title="LoRA adapters of one base: every method",
    option=" --setting adapters",
    done=f"""Base models, tasks, images, heads and passes are those of [fine-tunes of one base](same_base.md).
In place of the whole body, LoRA adapters of rank {digits.RANK} on every matrix of attention and feed-forward
layers are trained. An adapter counts as the whole model that it makes, less the base model: a task vector of low rank.
""",
    besides=f"""The learning rate of adapters, {digits.ADAPTER_RATE}, is the best of 0.002, 0.005 and 0.01 by the
adapters' own accuracy on the validation images of base model 11.
""",
)
PHOTOS = replace(
    DIGITS,
    title="Fine-tunes of one base on photos: every method",
    option=" --setting photos",
    done=f"""A ViT for CIFAR-10 (4 layers, 96 wide, 68 % of the test photos right) is fine-tuned on each of eight tasks,
in {photos.EPOCHS} passes over {photos.TRAINED:,} photos that it has not seen, half of the time the other way round, or
over scikit-learn's digits, made as large as photos: {"; ".join(task.name for task in photos.TASKS)}.
The first four make the group of four. A task's head is fitted to the base model first and then stays; bodies are
fine-tuned and merged, and each task is tested with its own head, by accuracy, on {photos.TESTED} photos (397 digits)
that nothing else sees.
""",
    besides="""The tuning models are of one base model and the test models of another: two ViTs that were trained on the
same 30,000 photos from different seeds. What differs between the test models is the heads' first numbers, the photos,
and their order. How many photos a fine-tune learns was settled on the tuning models: of 1,600, none of which was turned
round, most learned nothing that the base model under the task's head had not known.
""",
    over="seeds of fine-tuning, of one base model",
    apart="so that choice and test share no models and no images that they are scored on",
    looked="the fine-tunes' training images",
    unlabelled="training images",
    labelled=f"{photos.VALIDATED} validation images of each task",
)
