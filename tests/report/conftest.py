"""Finished runs to report on, and a real browser to look at the reports with."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import importlib.util
import json
import os
import select
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path

import pytest
import torch

from phcgnn.data.sources import DataSettings, open_data
from phcgnn.experiments.execute import Execution, execute
from phcgnn.experiments.paper import paper_tables
from phcgnn.experiments.plan import plan
from phcgnn.experiments.reproduce import note_table
from phcgnn.report.build import Written, write_report
from phcgnn.training.config import TrainingConfig
from phcgnn.training.run import train

MODEL = {"n": 2, "width": 8, "layers": 2, "downstream": (8,)}
HOSTILE = "<script>window.hacked=1</script>"
ENDS = ["O", "N", "c1ccccc1", "C1CCCCC1", "c1ccncc1", "F", "C(=O)O", "S", "Cl", "C#N"]


@pytest.fixture(scope="session")
def reproduced(tmp_path_factory) -> Path:
    """Two models of the paper's Table 2 with two seeds each, on a few graphs."""
    path = Path(__file__).resolve().parents[1] / "data" / "benchmarks" / "conftest.py"
    spec = importlib.util.spec_from_file_location("benchmark_files", path)
    files = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(files)
    root, out = tmp_path_factory.mktemp("official"), tmp_path_factory.mktemp("reproduced")
    files.write_zinc(root, {"train": 12, "val": 8, "test": 8})
    table = paper_tables()["table2"]
    small = {"model": {"width": 16, "layers": 2, "downstream": [16, 8]}, "training": {"batch_size": 8}}
    models = ["zinc-100k-phc1", "zinc-100k-phc4"]
    runs = plan(table, out, models=models, runs=2, epochs=2, root=str(root), overrides=[small])
    note_table(out, table)
    outcome = execute(runs, out, Execution(device="cpu"), any_size=True)
    assert len(outcome.trained) == 4
    return out


def write_molecules(folder: Path, columns: dict[str, list[object]]) -> Path:
    path = folder / "molecules.csv"
    lines = [",".join(["smiles", *columns])]
    lines += [
        ",".join(map(str, ("C" * (i // 10 + 1) + ENDS[i % 10], *row)))
        for i, row in enumerate(zip(*columns.values(), strict=True))
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


def train_on(path: Path, out: Path, targets: list[str], task: str, seeds: int = 1) -> Path:
    """Train on a table of molecules."""
    settings = {"path": str(path), "smiles_column": "smiles", "target_columns": targets, "task": task}
    store = open_data(DataSettings.from_dict({**settings, "split": "random"})).store
    for seed in range(seeds):
        folder = out if seeds == 1 else out / f"seed-{seed}"
        train(store, folder, model=MODEL, config=TrainingConfig(epochs=2, batch_size=16, seed=seed))
    return out


@pytest.fixture(scope="session")
def regression(tmp_path_factory) -> Path:
    """Two seeds on two targets with gaps, one of them with a name that would be a script."""
    pytest.importorskip("rdkit")
    folder = tmp_path_factory.mktemp("regression")
    values = torch.randn(60, generator=torch.Generator().manual_seed(1)).tolist()
    second = ["" if i % 7 == 0 else 10 * value for i, value in enumerate(values)]
    path = write_molecules(folder, {HOSTILE: values, "b": second})
    return train_on(path, folder / "out", [HOSTILE, "b"], "regression", seeds=2)


@pytest.fixture(scope="session")
def classification(tmp_path_factory) -> Path:
    pytest.importorskip("rdkit")
    folder = tmp_path_factory.mktemp("classification")
    path = write_molecules(folder, {"toxic": [i % 10 % 2 for i in range(80)], "dull": [0] * 80})
    return train_on(path, folder / "out", ["toxic", "dull"], "classification")


@pytest.fixture(scope="session")
def multiclass(tmp_path_factory) -> Path:
    pytest.importorskip("rdkit")
    folder = tmp_path_factory.mktemp("multiclass")
    path = write_molecules(folder, {"kind": ["a", "b", "<i>c"] * 20})
    return train_on(path, folder / "out", ["kind"], "multiclass")


@pytest.fixture(scope="session")
def reported(request, tmp_path_factory):
    """Return a folder with its report, and what was written, by the name of a fixture of runs; made once for all."""
    pytest.importorskip("matplotlib")
    made: dict[str, tuple[Path, Written]] = {}

    def make(kind: str) -> tuple[Path, Written]:
        if kind not in made:
            out = tmp_path_factory.mktemp("reported") / kind
            shutil.copytree(request.getfixturevalue(kind), out)
            made[kind] = out, write_report(out)
        return made[kind]

    return make


VOID = {"meta", "br", "link", "img", "input", "hr"}


class Strict(HTMLParser):
    """Refuses what is not closed or closed twice, and keeps every tag with its attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.open, self.tags, self.texts = [], [], []

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def _parse(text: str) -> Strict:
    parser = Strict()
    parser.feed(text)
    parser.close()
    assert parser.open == []
    return parser


@pytest.fixture(scope="session")
def parse():
    """Return what reads HTML and refuses tags that do not match."""
    return _parse


# ---------------------------------------------------------------------------------------------------- the browser

CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
LAUNCH = (
    "import os, sys; r, w = map(int, sys.argv[1:3]); os.dup2(r, 3); os.dup2(w, 4); os.execv(sys.argv[3], sys.argv[3:])"
)


class Browser:
    """A headless chromium, driven over its pipe by the DevTools protocol."""

    def __init__(self, program: str, profile: Path) -> None:
        theirs, ours_out = os.pipe()
        ours_in, theirs_out = os.pipe()
        high = [fcntl.fcntl(end, fcntl.F_DUPFD, 100) for end in (theirs, theirs_out)]  # out of the way of 3 and 4
        command = [sys.executable, "-S", "-E", "-c", LAUNCH, *map(str, high), program, *FLAGS]
        self.process = subprocess.Popen(
            [*command, f"--user-data-dir={profile}", "about:blank"],
            pass_fds=high,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for end in (theirs, theirs_out, *high):
            os.close(end)
        self.reader, self.writer = ours_in, ours_out
        self.buffer, self.number, self.events = b"", 0, []

    def call(self, method: str, session: str | None = None, **params):
        """Send a command and return its answer; events in between are kept."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        os.write(self.writer, json.dumps(message | ({"sessionId": session} if session else {})).encode() + b"\0")
        while True:
            answer = self.receive()
            if answer.get("id") == self.number:
                assert "error" not in answer, answer["error"]
                return answer["result"]
            self.events.append(answer)

    def receive(self, seconds: float = 120.0):
        deadline = time.monotonic() + seconds
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.reader], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, "chromium does not answer"
            chunk = os.read(self.reader, 1 << 20)
            assert chunk, "chromium has gone"
            self.buffer += chunk
        message, _, self.buffer = self.buffer.partition(b"\0")
        return json.loads(message)

    def close(self) -> None:
        with contextlib.suppress(AssertionError, OSError):
            self.call("Browser.close")
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.reader)
        os.close(self.writer)

    @contextlib.contextmanager
    def open(self, path: Path, *, dark: bool = False, width: int = 1200, height: int = 900):
        """Open a file from disk in a new tab."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        tab = Tab(self, session)
        for domain in ("Page", "Runtime", "Log", "Network"):
            tab.call(f"{domain}.enable")
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        tab.call("Emulation.setEmulatedMedia", features=[scheme])
        tab.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        assert "errorText" not in tab.call("Page.navigate", url=path.resolve().as_uri())
        tab.wait("Page.loadEventFired")
        try:
            yield tab
        finally:
            self.call("Target.closeTarget", targetId=target)


@dataclass
class Tab:
    browser: Browser
    session: str
    seen: list[dict] = field(default_factory=list)

    def call(self, method: str, **params):
        return self.browser.call(method, self.session, **params)

    def wait(self, event: str) -> None:
        while not any(one["method"] == event for one in self.events()):
            self.browser.events.append(self.browser.receive())

    def events(self) -> list[dict]:
        return [one for one in self.browser.events if one.get("sessionId") == self.session]

    def run(self, script: str):
        """Evaluate JavaScript; the value must be JSON."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def complaints(self) -> list[str]:
        """What the console shows of errors and warnings."""
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")
        found = []
        for one in self.events():
            if one["method"] == "Runtime.exceptionThrown":
                found.append(one["params"]["exceptionDetails"]["text"])
            if one["method"] == "Log.entryAdded" and one["params"]["entry"]["level"] in ("error", "warning"):
                found.append(one["params"]["entry"]["text"])
            if one["method"] == "Runtime.consoleAPICalled" and one["params"]["type"] in ("error", "warning", "assert"):
                found.append(str(one["params"]["args"]))
        return found

    def requests(self) -> list[str]:
        """Every address that was asked for."""
        return [
            one["params"]["request"]["url"] for one in self.events() if one["method"] == "Network.requestWillBeSent"
        ]

    def screenshot(self, *, whole: bool = False) -> bytes:
        picture = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        return base64.b64decode(picture["data"])


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    program = next((found for name in CHROMIUM if (found := shutil.which(name))), None)
    if program is None:
        pytest.skip("chromium is not installed: no page was looked at (`make browser` installs it)")
    started = Browser(program, tmp_path_factory.mktemp("profile"))
    try:
        yield started
    finally:
        started.close()
