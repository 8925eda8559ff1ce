"""``phcgnn doctor``: what is installed, what is used, and what is in the way."""

from __future__ import annotations

import json
import os
import platform
import warnings
from importlib import metadata
from typing import Annotated, Any

import typer

__all__ = ["doctor"]

CORE = ("torch", "torch_geometric", "lightning", "torchmetrics", "safetensors", "rich", "typer")
OPTIONAL = {
    "rdkit": "molecules: pip install 'phcgnn[chem]'",
    "pandas": "tables: pip install 'phcgnn[chem]'",
    "pyarrow": "Parquet: pip install 'phcgnn[chem]'",
    "ogb": "ogbg benchmarks: pip install 'phcgnn[ogb]'",
    "matplotlib": "reports: pip install 'phcgnn[report]'",
    "triton": "fused kernels on a GPU: comes with torch for CUDA",
    "tensorboard": "the log of a run: pip install 'phcgnn[report]'",
}


def doctor(as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False) -> None:
    """Say what phcgnn finds on this machine: versions, devices, threads, optional parts."""
    facts = _facts()
    if as_json:
        typer.echo(json.dumps(facts))
        return
    for section, entries in facts.items():
        typer.echo(f"{section}:")
        for name, value in entries.items():
            typer.echo(f"  {name:<16} {value}")


def _facts() -> dict[str, dict[str, Any]]:
    import torch

    from phcgnn._version import __version__

    optional = {}
    for name, remedy in OPTIONAL.items():
        version = _version(name)
        optional[name] = version or f"not installed ({remedy})"
    return {
        "versions": {
            "phcgnn": __version__,
            "python": platform.python_version(),
            **{name: _version(name) or "not installed" for name in CORE},
        },
        "optional": optional,
        "machine": {
            "system": f"{platform.system()} {platform.machine()}",
            "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
            "torch threads": torch.get_num_threads(),
        },
        "gpu": _gpu(),
    }


def _gpu() -> dict[str, Any]:
    import torch

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        ready = torch.cuda.is_available()
        found = {f"cuda:{i}": torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())} if ready else {}
    if ready:
        from phcgnn.nn.kernels import why_not

        reason = why_not(torch.device("cuda"))
        return {"used": "yes, by --device auto", **found, "own kernels": f"no: {reason}" if reason else "yes"}
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
    if torch.version.cuda is None:
        reason = f"this torch ({torch.__version__}) was built without CUDA; install a CUDA build of torch"
    elif hidden is not None and hidden.strip() in ("", "-1"):
        reason = f"the environment hides it: CUDA_VISIBLE_DEVICES is {hidden!r}; unset it"
    elif said:
        reason = " ".join(str(said[0].message).split())
    else:
        reason = f"torch was built for CUDA {torch.version.cuda}, but finds no GPU or driver; try nvidia-smi"
    return {"used": f"no: {reason}"}


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
