"""The other end of the pool: a fresh interpreter that turns lists of SMILES into graphs until its input ends."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import types
from pathlib import Path
from typing import BinaryIO

__all__ = ["BOOT", "serve"]

BOOT = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("phcgnn_pool_worker", sys.argv[1])
worker = importlib.util.module_from_spec(spec)
spec.loader.exec_module(worker)
worker.main(sys.argv[2] == "light")
"""
"""What ``python -c`` is given, with the path of this file and ``light`` or ``full``."""


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Read a pickled featuriser, then lists of SMILES; write what it returned for each, or its exception."""
    featuriser = pickle.load(requests)
    while True:
        try:
            smiles = pickle.load(requests)
        except EOFError:
            return
        try:
            answer: object = featuriser(smiles)
        except Exception as error:
            answer = RuntimeError(f"{type(error).__name__}: {error}")
        pickle.dump(answer, answers, protocol=pickle.HIGHEST_PROTOCOL)
        answers.flush()


def main(light: bool) -> None:
    """Serve over the standard streams; whatever else writes to standard output is sent to standard error instead."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    if light:
        # The packages' own files import torch, which takes seconds and is of no use here.
        root = Path(__file__).resolve().parents[2]
        for name in ("phcgnn", "phcgnn.data", "phcgnn.data.molecules"):
            package = types.ModuleType(name)
            package.__path__ = [str(root.joinpath(*name.split(".")[1:]))]
            sys.modules[name] = package
    serve(sys.stdin.buffer, answers)
