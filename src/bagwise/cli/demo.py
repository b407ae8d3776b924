"""What `bagwise demo` computes: two models on two data sets, one figure, one report."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bagwise import metrics
from bagwise.bags import Bags
from bagwise.datasets import load_musk1, make_digit_bags
from bagwise.models._gaussian_process import GaussianProcessMIL
from bagwise.models.probit import ProbitVGPMIL
from bagwise.models.vgpmil import VGPMIL
from bagwise.plots import ImageBagsDisplay, require_matplotlib
from bagwise.report import write_report
from bagwise.report.page import require_jinja2

MODELS: tuple[type[GaussianProcessMIL], ...] = (VGPMIL, ProbitVGPMIL)
IMAGE_SHAPE = (8, 8)
POSITIVE_DIGITS = (2, 9)
HELD_OUT = 0.3
HEADINGS = (
    "data set",
    "model",
    "bag AUC",
    "bag accuracy",
    "instance AUC",
    "bag log-lik.",
    "ECE",
    "fit (s)",
)
NOTES = (
    "All scores are of bags that were not trained on. AUC: chance of ranking a positive above a "
    "negative. Log-likelihood: mean per bag, higher is better. ECE: expected calibration error, "
    "lower is better; of instances for digits, of bags for MUSK1.",
    "MUSK1 has no instance labels. Probabilities are those of the default scores: calibrated on "
    "bags left out of the fit.",
)

Announce = Callable[[str], None]


@dataclass(frozen=True)
class Row:
    """Scores of one model on the held-out bags of one data set."""

    data: str
    model: str
    bag_auc: float
    bag_accuracy: float
    instance_auc: float | None  # None where the data set has no instance labels
    bag_log_likelihood: float
    calibration_error: float  # of instances where their labels are known, else of bags
    seconds: float  # of fitting

    def cells(self) -> tuple[str, ...]:
        """The row as text, in the order of `HEADINGS`."""
        return (
            self.data,
            self.model,
            f"{self.bag_auc:.3f}",
            f"{self.bag_accuracy:.3f}",
            "—" if self.instance_auc is None else f"{self.instance_auc:.3f}",
            f"{self.bag_log_likelihood:.3f}",
            f"{self.calibration_error:.3f}",
            f"{self.seconds:.1f}",
        )


@dataclass(frozen=True)
class Trial:
    """Bags to train on and bags to score, with their true instance labels where known."""

    data: str
    train: Bags
    test: Bags
    truth: NDArray[np.int64] | None = None


@dataclass
class Outcome:
    """Everything a demo run found."""

    rows: list[Row] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)


def digit_trial(n_bags: int = 160, seed: int = 0) -> Trial:
    """Bags of handwritten digits, of which the first half trains.

    >>> digit_trial(20).train
    Bags(10 bags: 5 positive, 5 negative; 100 instances x 64 features, 10 per bag; float64)
    """
    bags, truth = make_digit_bags(n_bags, positive=POSITIVE_DIGITS, random_state=seed)
    half = n_bags // 2
    return Trial("digits", bags[:half], bags[half:], truth[bags.offsets[half] :])


def musk_trial(n_bags: int | None = None, seed: int = 0) -> Trial:
    """MUSK1, or `n_bags` of it, of which a stratified 30 % is held out."""
    bags = load_musk1()
    if n_bags is not None:
        bags = bags.split(n_bags, random_state=seed)[1]
    train, test = bags.split(HELD_OUT, random_state=seed)
    return Trial("MUSK1", train, test)


def fit_and_score(
    trial: Trial, model_class: type[GaussianProcessMIL], seed: int = 0
) -> tuple[Row, GaussianProcessMIL]:
    """Fit a model with default arguments and score it on the held-out bags."""
    start = time.perf_counter()
    model = model_class(random_state=seed).fit(trial.train)
    seconds = time.perf_counter() - start
    bag = metrics.bag_scores(model, trial.test)
    known = None
    if trial.truth is not None:
        known = metrics.instance_scores(model, trial.test, trial.truth)
    row = Row(
        data=trial.data,
        model=model_class.__name__,
        bag_auc=bag["roc_auc"],
        bag_accuracy=bag["accuracy"],
        instance_auc=None if known is None else known["roc_auc"],
        bag_log_likelihood=bag["log_likelihood"],
        calibration_error=(bag if known is None else known)["expected_calibration_error"],
        seconds=seconds,
    )
    return row, model


def example_bags(bags: Bags, n: int = 6) -> NDArray[np.intp]:
    """The first bags of each label, half and half, in their order: not chosen by how they fare.

    >>> bags = Bags.from_arrays(np.eye(6), range(6), y=[0, 0, 0, 0, 1, 1])
    >>> example_bags(bags, 4)
    array([0, 1, 4, 5])
    """
    labels = np.asarray(bags.y)
    positive, negative = np.flatnonzero(labels == 1), np.flatnonzero(labels != 1)
    return np.sort(np.concatenate([positive[: n - n // 2], negative[: n // 2]]))


def draw_digits(model: GaussianProcessMIL, trial: Trial, path: Path, n_bags: int = 6) -> None:
    """Write a figure of some held-out digit bags with the model's probabilities."""
    chosen = example_bags(trial.test, n_bags)
    bags = trial.test[chosen]
    truth = None
    if trial.truth is not None:
        truth = trial.truth[np.isin(trial.test.bag_index, chosen)]
    digits = " or ".join(map(str, POSITIVE_DIGITS))
    from matplotlib.pyplot import close

    figure = ImageBagsDisplay.from_estimator(
        model,
        bags,
        IMAGE_SHAPE,
        truth=truth,
        frame_name=f"truly a {digits}",
        title=f"A bag is positive if it holds a {digits}. The model was told bag labels only.",
        subtitle=f"{type(model).__name__}, trained on {len(trial.train)} bags without labels of "
        "their digits; these bags are new to it",
    ).figure_
    figure.savefig(path, pil_kwargs={"optimize": True})
    close(figure)


def run_demo(
    output: Path,
    seed: int = 0,
    *,
    digit_bags: int = 160,
    musk_bags: int | None = None,
    models: Sequence[type[GaussianProcessMIL]] = MODELS,
    announce: Announce = lambda message: None,
) -> Outcome:
    """Fit all models to all data sets and write `digits.png` and `report.html` to `output`.

    `announce` is told what is being done. Figure and report show the last of the models.
    """
    require_matplotlib()  # before the work, not after it
    require_jinja2()
    output.mkdir(parents=True, exist_ok=True)
    outcome = Outcome()
    figure, report = output / "digits.png", output / "report.html"
    for trial in (digit_trial(digit_bags, seed), musk_trial(musk_bags, seed)):
        for model_class in models:
            announce(f"{model_class.__name__} on {len(trial.train)} bags of {trial.data}")
            row, model = fit_and_score(trial, model_class, seed)
            outcome.rows.append(row)
        if trial.data == "digits":
            announce("drawing the digits")
            draw_digits(model, trial, figure)
            write_digit_report(model, trial, report, seed)
    outcome.files += [figure, report]
    return outcome


def write_digit_report(model: GaussianProcessMIL, trial: Trial, path: Path, seed: int = 0) -> None:
    """Write the report page of the held-out digit bags, with their images and true labels."""
    digits = " or ".join(map(str, POSITIVE_DIGITS))
    write_report(
        path,
        model,
        trial.test.with_instance_labels(trial.truth),
        title=f"Which of these bags hold a {digits}?",
        data_name="held-out bags of handwritten digits",
        image_shape=IMAGE_SHAPE,
        command=f"bagwise demo --seed {seed}",
        overwrite=True,
    )
