"""``phcgnn import-released``: the authors' weights as a model folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from phcgnn.models import PHCGNN

__all__ = ["import_released"]


def import_released(
    weights: Annotated[
        Path, typer.Argument(help="model.pt as released, or .safetensors.", exists=True, dir_okay=False)
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The model folder to write.")],
    skip: Annotated[
        str | None, typer.Option(help="initial, previous or concat, where the file is of no data set of the paper.")
    ] = None,
) -> None:
    """Read the weights that the authors released and write a model folder. Nothing in the file is run."""
    from phcgnn.models import released
    from phcgnn.models.folder import save_model

    if skip not in (None, "initial", "previous", "concat"):
        raise typer.BadParameter(f"choose from initial, previous, concat; got '{skip}'.", param_hint="--skip")
    try:
        model = released.load(weights, skip=skip)  # type: ignore[arg-type]
        save_model(model, output, _describe(model) | {"source": {"released": weights.name}})
    except (ValueError, OSError) as error:
        typer.echo(f"phcgnn import-released: {error}", err=True)
        raise typer.Exit(1) from error
    typer.echo(
        f"{output}: n={model.config.n}, width {model.config.width} x {model.config.layers}, "
        f"{model.num_parameters():,} parameters",
        err=True,
    )
    typer.echo(str(output))


def _describe(model: PHCGNN) -> dict[str, Any]:
    """Say what the released networks predict and of what: known by what their edges carry."""
    if model.config.edge_features == (5, 6, 2):
        return {"task": "classification", "targets": ["HIV_active"], "featuriser": "ogb/1", "normalisation": None}
    if model.config.edge_features == (4,):
        return {
            "task": "regression",
            "targets": ["logP_SA_cycle_normalized"],
            "featuriser": "zinc/1",
            "normalisation": None,
        }
    return {}
