"""``phcgnn bench``: how fast this machine trains and predicts."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from phcgnn.cli.errors import failures, usage

__all__ = ["bench"]


def bench(
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    preset: Annotated[
        list[str] | None, typer.Option(help="Whose network to time; may be given several times. (default: four)")
    ] = None,
    seconds: Annotated[float, typer.Option(min=0.1, help="For each network, about.")] = 10.0,
    threads: Annotated[int | None, typer.Option(min=1, help="Of the CPU. (default: torch's choice)")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Time training steps and predictions on random graphs of the size of molecules; no data are needed."""
    import torch
    from rich.console import Console
    from rich.table import Table

    from phcgnn.experiments.bench import FEATURES, SHORT, Work, short_bench
    from phcgnn.experiments.timing import machine

    with usage():
        if device not in ("auto", "cpu", "cuda"):
            raise ValueError(f"--device must be auto, cpu or cuda, got {device!r}.")
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        if device == "cuda" and not torch.cuda.is_available():
            raise ValueError("--device cuda: torch sees no GPU; run `phcgnn doctor` for the reason.")
        presets = tuple(preset or SHORT)
        for name in presets:
            if Work.from_preset(name).data not in FEATURES:
                known = ", ".join(FEATURES)
                raise ValueError(f"--preset {name}: its graphs cannot be made up; take one of {known}.")
    if threads is not None:
        torch.set_num_threads(threads)
    about, lines = machine(device), []
    console = Console(stderr=True)
    with failures(), console.status("timing") as status:
        for line in short_bench(presets, device=device, seconds=seconds):
            lines.append(line)
            status.update(f"timed {line['preset']}")
    if as_json:
        typer.echo(json.dumps({"machine": about, "networks": lines}))
        return
    table = Table(title=", ".join(f"{name} {value}" for name, value in about.items()), title_justify="left")
    table.add_column("network")
    for column in ("parameters", "batch", "step ms", "training graphs/s", "prediction graphs/s", "step / nn.Linear"):
        table.add_column(column, justify="right")
    for line in lines:
        table.add_row(
            line["preset"],
            f"{line['parameters']:,}",
            str(line["batch_size"]),
            f"{line['step_ms']:.1f}",
            f"{line['training_graphs_per_second']:,.0f}",
            f"{line['prediction_graphs_per_second']:,.0f}",
            f"{line['step_to_dense']:.2f}",
        )
    out = Console()
    if not out.is_terminal:
        out.width = max(out.width, 120)
    out.print(table)
