"""Which dropout a network was trained with, read off its weights: the running statistics of its norms remember it.

    python benchmarks/dropout_of_weights.py zinc_phc5_100k.safetensors --store zinc.phg
    python benchmarks/dropout_of_weights.py molhiv_phc4.safetensors --store molhiv.phg

Dropout in front of a layer raises the variance of what reaches the norm behind it in training, and the norm keeps the
mean of those variances. So the network is run in training mode with one probability after the other, and the variances
found are compared with those kept: the probability at which they agree, a ratio of 1, is the one that it was trained
with. Prints one JSON line a place and probability: ``message passing`` is the median over the norms behind dropout in
message passing (of all layers but the first), ``downstream`` that of the norm behind the first hidden layer.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
from pathlib import Path

import torch
from torch import Tensor, nn

from phcgnn.data import GraphStore
from phcgnn.models import PHCGNN, released
from phcgnn.nn import ComponentDropout

PROBABILITIES = (0.0, 0.1, 0.2, 0.3, 0.4)

MESSAGE_PASSING = r"convs\.[1-9]\d*\.transform\.norm"


def ratio(model: PHCGNN, norms: list[nn.Module], store: GraphStore, batch_size: int, batches: int) -> float:
    """Return the variances that norms keep over those that they see, the median over channels and norms."""
    kept = [norm.state_dict()["running_var"].clone() for norm in norms]
    seen: list[list[Tensor]] = [[] for _ in norms]
    handles = [
        norm.register_forward_pre_hook(lambda _, given, own=own: own.append(given[0].var(0)))
        for norm, own in zip(norms, seen, strict=True)
    ]
    state = {name: value.clone() for name, value in model.state_dict().items()}
    torch.manual_seed(0)
    with torch.no_grad():
        for number, batch in enumerate(store.loader(batch_size, split="train", shuffle=True)):
            if number == batches:
                break
            model(batch)
    for handle in handles:
        handle.remove()
    model.load_state_dict(state)
    return statistics.median(
        float((one / torch.stack(own).mean(0)).log().median().exp()) for one, own in zip(kept, seen, strict=True)
    )


def main() -> None:
    """Read the options and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weights", type=Path, help="as the paper's authors released them")
    parser.add_argument("--store", type=Path, required=True, help="a .phg file of the data they were trained on")
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--batches", type=int, default=12)
    options = parser.parse_args()
    model, store = released.load(options.weights), GraphStore.load(options.store)
    behind: dict[str, list[nn.Module]] = {
        "message passing": [norm for name, norm in model.named_modules() if re.fullmatch(MESSAGE_PASSING, name)],
        "downstream": [model.predictor.norms[1]],
    }
    model.train()
    for place, norms in behind.items():
        for p in PROBABILITIES:
            for name, module in model.named_modules():
                if isinstance(module, ComponentDropout):
                    module.p = p if name.startswith("predictor") == (place == "downstream") else 0.0
            found = ratio(model, norms, store, options.batch_size, options.batches)
            print(
                json.dumps({"weights": options.weights.name, "place": place, "p": p, "kept_to_seen": round(found, 3)})
            )


if __name__ == "__main__":
    main()
