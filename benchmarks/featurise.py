"""Molecules a second from SMILES to graphs, parsing included: on one core, and over the cores of the machine.

    python benchmarks/featurise.py                                  # ogbg-molhiv's molecules where they are, or RDKit's
    python benchmarks/featurise.py --table mols.csv --limit 10000 --rounds 9
    python benchmarks/featurise.py --into docs/molecules.md         # also puts a table of the figures into the page

Prints one JSON line a contender. Every round runs each of them once, in turn; figures are medians over rounds.
``per_cpu_second`` counts processor time, which neighbours on a shared machine hardly touch; so does
``processor_time_of_one_core``: how much more computing the pool costs than one core does, its start included.
``parse`` is RDKit's reading of the SMILES alone; ``ogb-package`` is ``ogb.utils.smiles2graph``, where it is installed.
"""

from __future__ import annotations

import argparse
import functools
import json
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from _timing import machine, take_turns
from layer_tables import markdown, put, require_place
from phcgnn.data.molecules import Featuriser, available_cores, featurise, featuriser, stream_rows
from phcgnn.data.molecules.quiet import quiet_rdkit, read_smiles

MOLHIV = Path(__file__).resolve().parents[2] / "shared" / "data" / "ogbg_molhiv" / "mapping" / "mol.csv.gz"


def parse(smiles: list[str]) -> None:
    """Let RDKit read the SMILES."""
    with quiet_rdkit():
        for text in smiles:
            read_smiles(text)


def ogb_package(smiles: list[str]) -> None:
    """Do what users of OGB do."""
    from ogb.utils import smiles2graph

    with quiet_rdkit():
        for text in smiles:
            smiles2graph(text)


def whole(by: Featuriser, smiles: list[str]) -> None:
    """Run a featuriser in this process."""
    by(smiles)


def pooled(smiles: list[str], by: str, workers: int) -> None:
    """Run the pool."""
    for _ in featurise(smiles, by, workers=workers):
        pass


def readable(smiles: list[str]) -> list[str]:
    """Return what RDKit reads; ``smiles2graph`` fails on anything else."""
    with quiet_rdkit():
        return [text for text in smiles if read_smiles(text) is not None]


def contenders(smiles: list[str], workers: int) -> dict[str, Callable[[], None]]:
    """Return what is run in a round."""
    steps: dict[str, Callable[[], None]] = {"parse": lambda: parse(smiles)}
    for name in ("ogb", "zinc", "zinc-extended"):
        made = featuriser(name)
        steps[name] = functools.partial(whole, made, smiles)
    try:
        import ogb.utils  # noqa: F401

        good = readable(smiles)
        steps["ogb-package"] = lambda: ogb_package(good)
    except ImportError:
        pass
    if workers > 1:
        steps[f"ogb, {workers} workers"] = lambda: pooled(smiles, "ogb", workers)
    return steps


def main() -> None:
    """Read the options and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", type=Path, help="any table with a column called smiles")
    parser.add_argument("--limit", type=int, default=0, help="molecules, spread over the table; 0: all")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=min(2, available_cores()))
    parser.add_argument("--into", type=Path, help="a page with <!-- tables: featurise --> and <!-- end of tables -->")
    options = parser.parse_args()
    if options.into is not None:
        require_place(options.into, "featurise")
    from rdkit import RDConfig, rdBase

    path = options.table or (MOLHIV if MOLHIV.is_file() else Path(RDConfig.RDDataDir, "NCI", "first_5K.smi"))
    smiles = [text for part in stream_rows(path) for text in part.smiles]
    if options.limit and options.limit < len(smiles):
        smiles = smiles[:: len(smiles) // options.limit][: options.limit]
    about = {
        "benchmark": "featurise-machine",
        **machine("cpu"),
        "rdkit": rdBase.rdkitVersion,
        "table": path.name,
        "molecules": len(smiles),
        "rounds": options.rounds,
    }
    print(json.dumps(about), flush=True)
    steps = contenders(smiles, options.workers)
    wall, own = take_turns(steps, options.rounds)
    lines = []
    for name, seconds in wall.items():
        line: dict[str, Any] = {
            "benchmark": "featurise",
            "contender": name,
            "per_second": round(len(smiles) / statistics.median(seconds)),
        }
        if "," not in name:
            line["per_cpu_second"] = round(len(smiles) / statistics.median(own[name]))
        else:
            ratios = [one / several for one, several in zip(wall["ogb"], seconds, strict=True)]
            line["times_one_core"] = round(statistics.median(ratios), 2)
            shares = [several / one for one, several in zip(own["ogb"], own[name], strict=True)]
            line["processor_time_of_one_core"] = round(statistics.median(shares), 2)
            line["times_one_core_each_round"] = [round(ratio, 2) for ratio in ratios]
        print(json.dumps(line), flush=True)
        lines.append(line)
    if options.into is not None:
        text = (
            f"{about['device']}, RDKit {about['rdkit']}, Python {about['python']}, {about['date']}; the "
            f"{about['molecules']:,} molecules of `{about['table']}`, parsing included."
        )
        page = options.into.read_text(encoding="utf-8")
        options.into.write_text(put(page, "featurise", f"{text}\n\n{table(lines)}"), encoding="utf-8")


def table(lines: Sequence[dict[str, Any]]) -> str:
    """Return the lines as a Markdown table."""
    head = ("what", "molecules a second", "a second of processor time", "times one core", "processor time of one core")
    rows = []
    for line in lines:
        own = f"{line['per_cpu_second']:,}" if "per_cpu_second" in line else ""
        pool = (
            f"{line[name]:.2f}" if name in line else "" for name in ("times_one_core", "processor_time_of_one_core")
        )
        rows.append([line["contender"], f"{line['per_second']:,}", own, *pool])
    return markdown(head, rows)


if __name__ == "__main__":
    main()
