"""How a model is trained, as a frozen value that files can hold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from phcgnn.configuration import FrozenConfig
from phcgnn.data.metadata import Task
from phcgnn.errors import require_positive
from phcgnn.registry import Registry
from phcgnn.training.losses import LOSSES, TASK_LOSSES
from phcgnn.training.metrics import METRICS, TASK_METRICS
from phcgnn.training.objective import PenaltyScale
from phcgnn.training.schedule import OPTIMIZERS, SCHEDULES

__all__ = ["Balance", "Precision", "TrainingConfig"]

Balance = Literal["none", "weights", "sampling"]
Precision = Literal["fp32", "tf32", "bf16"]


@dataclass(frozen=True, kw_only=True)
class TrainingConfig(FrozenConfig):
    """How a model is trained. What is None follows from the task or from the data.

    Args:
        epochs: At most so many.
        batch_size: Graphs a step, over all processes together.
        loss: A name in :data:`phcgnn.training.losses.LOSSES`. (default: ``l1``, ``bce`` or ``cross_entropy``)
        metric: What the best epoch is chosen by. (default: what the data set names)
        lambda1: Factor of the weight penalty.
        lambda2: Factor of the rule penalty.
        penalty_scale: ``lr`` multiplies the penalties with the current learning rate, as released; ``one`` does not.
        class_balance: ``weights`` makes yes and no (or all classes) count alike, ``sampling`` draws them alike often.
        standardise: Whether targets of a regression are brought to mean 0 and deviation 1.
        optimizer: ``adam`` or ``adamw``.
        lr: Learning rate.
        weight_decay: Of the optimizer itself.
        schedule: ``plateau``, ``step``, ``cosine`` or ``constant``.
        factor: What the learning rate falls by (``plateau``, ``step``).
        patience: Epochs without improvement before it falls (``plateau``), or between falls (``step``).
        warmup: Epochs of linear rise (``cosine``), at most half of all.
        min_lr: The learning rate stays at or above this.
        stop_lr: Training ends when the learning rate falls below this (``cosine``: never, it ends by ``epochs``).
        stop_patience: Training ends after so many epochs without a better validation score.
        max_time: Training ends after so many seconds.
        gradient_clip: Largest norm of the gradient.
        precision: ``fp32``, ``tf32`` or ``bf16`` (mixed).
        seed: Of everything random.

    >>> TrainingConfig(lr=1e-3, schedule="platau")
    Traceback (most recent call last):
    ValueError: TrainingConfig: `schedule`: unknown schedule 'platau'; choose from constant, cosine, plateau, step.
        Did you mean 'plateau'?
    """

    epochs: int = 100
    batch_size: int = 128
    loss: str | None = None
    metric: str | None = None
    lambda1: float = 0.0
    lambda2: float = 0.0
    penalty_scale: PenaltyScale = "lr"
    class_balance: Balance = "none"
    standardise: bool = False
    optimizer: str = "adam"
    lr: float = 1e-3
    weight_decay: float = 0.0
    schedule: str = "plateau"
    factor: float = 0.5
    patience: int = 10
    warmup: int = 0
    min_lr: float = 0.0
    stop_lr: float = 1e-6
    stop_patience: int | None = None
    max_time: float | None = None
    gradient_clip: float | None = 2.0
    precision: Precision = "fp32"
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        where = "TrainingConfig"
        require_positive(where, epochs=self.epochs, batch_size=self.batch_size)
        registries: tuple[tuple[str, Registry[Any]], ...] = (
            ("loss", LOSSES),
            ("metric", METRICS),
            ("optimizer", OPTIMIZERS),
            ("schedule", SCHEDULES),
        )
        for field, registry in registries:
            value = getattr(self, field)
            if value is not None:
                try:
                    registry[value]
                except ValueError as error:
                    raise ValueError(f"{where}: `{field}`: {error}") from None
        for field in ("lambda1", "lambda2", "weight_decay", "min_lr", "stop_lr", "patience", "warmup", "seed"):
            if not getattr(self, field) >= 0:
                raise ValueError(f"{where}: `{field}` must be at least 0, got {getattr(self, field)!r}.")
        for field in ("lr", "max_time", "gradient_clip", "stop_patience"):
            value = getattr(self, field)
            if value is not None and not value > 0:
                raise ValueError(f"{where}: `{field}` must be above 0, got {value!r}.")
        if not 0 < self.factor < 1:
            raise ValueError(f"{where}: `factor` must be between 0 and 1, got {self.factor!r}.")

    def require_fits(self, task: Task) -> None:
        """Refuse a loss, a metric, a balance or a scale that makes no sense for a task.

        >>> TrainingConfig(loss="bce").require_fits("regression")
        Traceback (most recent call last):
        ValueError: training.loss is 'bce', which does not fit regression; choose from l1, mse, huber.
        """
        if self.loss is not None and self.loss not in TASK_LOSSES[task]:
            raise ValueError(
                f"training.loss is {self.loss!r}, which does not fit {task}; choose from "
                f"{', '.join(TASK_LOSSES[task])}."
            )
        if self.metric is not None and self.metric not in TASK_METRICS[task]:
            raise ValueError(
                f"training.metric is {self.metric!r}, but {task} is scored with {', '.join(TASK_METRICS[task])}."
            )
        if self.class_balance != "none" and task == "regression":
            raise ValueError("training.class_balance is for classes; this task is regression.")
        if self.standardise and task != "regression":
            raise ValueError(f"training.standardise is for regression; this task is {task}.")

    def require_shares(self, processes: int) -> None:
        """Refuse a batch that processes cannot share."""
        if self.batch_size % processes:
            raise ValueError(
                f"training.batch_size is {self.batch_size}, which {processes} processes cannot share evenly."
            )
