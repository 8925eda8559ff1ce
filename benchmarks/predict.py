"""Molecules a second from a table of SMILES to a table of predictions, by the path of ``phcgnn predict`` itself.

    python benchmarks/predict.py                               # ogbg-molhiv's molecules where they are, or RDKit's
    python benchmarks/predict.py --cores 2 --rounds 5          # never more than two cores
    python benchmarks/predict.py --weights molhiv_phc4.safetensors
    python benchmarks/predict.py --into docs/prediction.md     # also puts a table of the figures into the page
    python benchmarks/predict.py --lines predict.jsonl --into docs/prediction.md       # from lines measured before

The model is ``molhiv`` PHC-4 (200 wide, 2 layers, softmax aggregation); its weights are as they start unless
``--weights`` names released ones, and the speed does not depend on them. Prints one JSON line a contender; every round
runs each of them once, in turn, and figures are medians over rounds:

- ``predict``: the whole path from file to file, processes for the graphs and threads for the networks, their start
  included, the start of Python and the loading of the model not; ``per_cpu_second`` counts processor time, which
  neighbours on a shared machine hardly touch.
- ``command``: the command in a process of its own, all included, with ``--command``.
- ``read``, ``featurise``, ``network``, ``write``: each stage by itself on one core; ``share`` says how the processor
  time of the four is divided, and ``cores_ideal`` how fast all of them together could be if the cores did nothing else.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from _timing import Step, machine, take_turns
from layer_tables import markdown, put, read, require_place
from phcgnn import PHCGNN
from phcgnn.data.molecules import Row, available_cores, featuriser, open_rows
from phcgnn.inference import Predictor, predict_table
from phcgnn.inference.columns import Columns, csv_line
from phcgnn.inference.predictor import CHUNK, Predictions
from phcgnn.models import released, save_model

MOLHIV = Path(__file__).resolve().parents[2] / "shared" / "data" / "ogbg_molhiv" / "mapping" / "mol.csv.gz"
PHC4 = {"n": 4, "width": 200, "layers": 2, "downstream": (128, 32), "aggregation": "softmax", "skip": "initial"}


def make_model(folder: Path, weights: Path | None) -> Path:
    """Write the model folder."""
    made = featuriser("ogb")
    torch.manual_seed(0)
    if weights is None:
        model = PHCGNN(node_features=made.node_features, edge_features=made.edge_features, **PHC4)  # type: ignore[arg-type]
    else:
        model = released.load(weights)
    about = {"task": "classification", "targets": ["HIV_active"], "featuriser": "ogb/1", "normalisation": None}
    return save_model(model.eval(), folder, about)


def write_table(source: Path, target: Path, limit: int) -> int:
    """Write the molecules to a plain CSV, spread over the source if there are too many; return their number."""
    with open_rows(source) as rows:
        at = rows.columns.index(rows.smiles or "smiles")
        smiles = [row.cells[at] for row in rows]
    if limit and limit < len(smiles):
        smiles = smiles[:: len(smiles) // limit][:limit]
    target.write_text("smiles,number\n" + "".join(csv_line([text, str(i)]) for i, text in enumerate(smiles)))
    return len(smiles)


class Stages:
    """Each stage by itself, on what the one before it made."""

    def __init__(self, predictor: Predictor, table: Path) -> None:
        self.predictor, self.table = predictor, table
        self.chunks = list(self._read())
        self.smiles = [[row.cells[0].strip() for row in chunk] for chunk in self.chunks]
        by = featuriser(predictor.featuriser)
        self.graphs = [by(chunk) for chunk in self.smiles]
        self.found: list[Predictions] = []
        self.by = by
        self.columns = Columns(predictor, ["smiles", "number"], 0, empty_molecules=False)

    def _read(self) -> Iterator[list[Row]]:
        with open_rows(self.table) as rows:
            every = list(rows)
        for start in range(0, len(every), CHUNK):
            yield every[start : start + CHUNK]

    def read(self) -> None:
        """Parse the CSV."""
        for _ in self._read():
            pass

    def featurise(self) -> None:
        """Make graphs."""
        for chunk in self.smiles:
            self.by(chunk)

    def network(self) -> None:
        """Collate and run the network on one thread."""
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        self.found = [self.predictor._chunk(graphs, refused) for graphs, refused in self.graphs]
        torch.set_num_threads(threads)

    def write(self) -> None:
        """Format and write the lines."""
        out = io.StringIO()
        for rows, found in zip(self.chunks, self.found, strict=True):
            for row, cells in zip(rows, self.columns.cells(rows, found), strict=True):
                out.write(csv_line([*self.columns.own(row), *cells]))


def command(folder: Path, table: Path, output: Path) -> None:
    """Run the command as a user does."""
    subprocess.run(
        [
            *(sys.executable, "-m", "phcgnn", "predict", "-q", "--overwrite"),
            "--model",
            folder,
            "-i",
            table,
            "-o",
            output,
        ],
        check=True,
    )


def tables(lines: Sequence[dict[str, Any]]) -> str:
    """Return the lines as Markdown."""
    about = next(line for line in lines if line["benchmark"] == "predict-machine")
    measured = [line for line in lines if line["benchmark"] == "predict"]
    text = (
        f"{about['device']}, {about['cores']} cores, torch {about['torch']}, RDKit {about['rdkit']}, Python "
        f"{about['python']}, {about['date']}; the {about['molecules']:,} molecules of `{about['table']}`, "
        f"{about['batch_size']} a forward pass."
    )
    head = ("what", "molecules a second", "a second of processor time", "share of the four stages")
    rows = [
        [
            line["contender"],
            f"{line['per_second']:,}",
            f"{line['per_cpu_second']:,}",
            f"{line['share']:.1%}" if "share" in line else "",
        ]
        for line in measured
    ]
    ideal = [
        f"Divided over {about['cores']} cores without loss, the four stages would do {line['cores_ideal']:,} a second."
        for line in measured
        if "cores_ideal" in line
    ]
    return "\n\n".join([text, markdown(head, rows), *ideal])


def main() -> None:
    """Read the options and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", type=Path, help="any table with a column called smiles")
    parser.add_argument("--weights", type=Path, help="released weights of molhiv PHC-4")
    parser.add_argument("--limit", type=int, default=0, help="molecules, spread over the table; 0: all")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cores", type=int, default=0, help="use no more than these (Linux); 0: all there are")
    parser.add_argument("--batch-size", type=int, help="molecules a forward pass")
    parser.add_argument("--command", action="store_true", help="also time the command in a process of its own")
    parser.add_argument(
        "--lines", type=Path, nargs="+", help="files of lines measured before; nothing is measured then"
    )
    parser.add_argument("--into", type=Path, help="a page with <!-- tables: predict --> and <!-- end of tables -->")
    options = parser.parse_args()
    if options.into is not None:
        require_place(options.into, "predict")
    lines = []
    for line in measure(options) if options.lines is None else read(options.lines):
        print(json.dumps(line), flush=True)
        lines.append(line)
    if options.into is not None:
        page = options.into.read_text(encoding="utf-8")
        options.into.write_text(put(page, "predict", tables(lines)), encoding="utf-8")


def measure(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield a line about the machine and one a contender."""
    if options.cores:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.cores])
    cores = available_cores()
    torch.set_num_threads(cores)
    from rdkit import RDConfig, rdBase

    source = options.table or (MOLHIV if MOLHIV.is_file() else Path(RDConfig.RDDataDir, "NCI", "first_5K.smi"))
    with tempfile.TemporaryDirectory() as parent:
        table, output = Path(parent, "molecules.csv"), Path(parent, "predictions.csv")
        molecules = write_table(source, table, options.limit)
        folder = make_model(Path(parent, "model"), options.weights)
        predictor = Predictor.load(folder, device="cpu", batch_size=options.batch_size)
        stages = Stages(predictor, table)
        steps: dict[str, Step] = {
            "predict": lambda: predict_table(predictor, table, output, overwrite=True),
            "read": stages.read,
            "featurise": stages.featurise,
            "network": stages.network,
            "write": stages.write,
        }
        if options.command:
            steps["command"] = lambda: command(folder, table, output)
        yield {
            "benchmark": "predict-machine",
            **machine("cpu"),
            "cores": cores,
            "rdkit": rdBase.rdkitVersion,
            "table": source.name,
            "molecules": molecules,
            "weights": "as they start" if options.weights is None else options.weights.name,
            "batch_size": predictor.batch_size,
            "rounds": options.rounds,
        }
        wall, own = take_turns(steps, options.rounds)
    spent = {name: statistics.median(own[name]) for name in ("read", "featurise", "network", "write")}
    total = sum(spent.values())
    for name in steps:
        line: dict[str, Any] = {
            "benchmark": "predict",
            "contender": name,
            "per_second": round(molecules / statistics.median(wall[name])),
            "per_cpu_second": round(molecules / statistics.median(own[name])),
        }
        if name in spent:
            line["share"] = round(spent[name] / total, 3)
        elif name == "predict":
            line["cores_ideal"] = round(cores * molecules / total)
            line["per_second_each_round"] = [round(molecules / seconds) for seconds in wall[name]]
            line["stages_share_of_its_processor_time"] = round(float(np.median(total / np.array(own[name]))), 3)
        yield line


if __name__ == "__main__":
    main()
