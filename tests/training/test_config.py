import dataclasses

import pytest

from phcgnn.training.config import TrainingConfig


def test_round_trip():
    config = TrainingConfig(lr=0.1, metric="roc_auc", stop_patience=3, gradient_clip=None)
    assert TrainingConfig.from_toml(config.to_toml()) == config
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.lr = 1.0


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"epochs": 0}, "`epochs` must be at least 1, got 0"),
        ({"batch_size": 2.0}, "`batch_size` must be an int, got 2.0"),
        ({"loss": "l3"}, "`loss`: unknown loss 'l3'"),
        ({"metric": "auc"}, "`metric`: unknown metric 'auc'"),
        ({"optimizer": "adamm"}, "`optimizer`: unknown optimizer 'adamm'.*Did you mean 'adam"),
        ({"schedule": "linear"}, "`schedule`: unknown schedule 'linear'"),
        ({"lambda1": -1.0}, "`lambda1` must be at least 0, got -1.0"),
        ({"lambda2": float("nan")}, "`lambda2` must be at least 0, got nan"),
        ({"lr": 0.0}, "`lr` must be above 0, got 0.0"),
        ({"max_time": -1.0}, "`max_time` must be above 0"),
        ({"gradient_clip": 0.0}, "`gradient_clip` must be above 0"),
        ({"stop_patience": 0}, "`stop_patience` must be above 0"),
        ({"factor": 1.0}, "`factor` must be between 0 and 1, got 1.0"),
        ({"seed": -1}, "`seed` must be at least 0"),
        ({"penalty_scale": "two"}, "`penalty_scale` must be 'lr' or 'one', got 'two'"),
        ({"precision": "fp8"}, "`precision` must be 'fp32' or 'tf32' or 'bf16', got 'fp8'"),
        ({"class_balance": "both"}, "`class_balance` must be 'none' or 'weights' or 'sampling'"),
    ],
)
def test_bad_values_are_named(values, message):
    with pytest.raises((ValueError, TypeError), match=message):
        TrainingConfig(**values)


@pytest.mark.parametrize(
    ("values", "task", "message"),
    [
        ({"loss": "l1"}, "classification", "does not fit classification; choose from bce, focal"),
        ({"metric": "mae"}, "classification", "scored with roc_auc, average_precision, accuracy, f1, mcc"),
        ({"metric": "roc_auc"}, "multiclass", "scored with accuracy, f1, mcc"),
        ({"class_balance": "weights"}, "regression", "class_balance is for classes"),
        ({"standardise": True}, "multiclass", "standardise is for regression; this task is multiclass"),
    ],
)
def test_what_does_not_fit_the_task(values, task, message):
    with pytest.raises(ValueError, match=message):
        TrainingConfig(**values).require_fits(task)
    TrainingConfig().require_fits(task)


def test_a_batch_that_processes_cannot_share():
    with pytest.raises(ValueError, match="batch_size is 9, which 2 processes cannot share evenly"):
        TrainingConfig(batch_size=9).require_shares(2)
    TrainingConfig(batch_size=10).require_shares(2)
