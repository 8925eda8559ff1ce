import json
import re
import shutil
import sys

import pytest

from phcgnn.errors import DataError
from phcgnn.report.build import write_report
from phcgnn.report.training import runs_in

ADDRESS = re.compile(r"(?:https?:)?//[\w.]", re.IGNORECASE)


KINDS = ("reproduced", "regression", "classification", "multiclass")


@pytest.fixture
def undrawn(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_stands_alone(kind, reported, parse):
    folder, written = reported(kind)
    assert written.missing is None
    text = (folder / "report.html").read_text()
    parser = parse(text)
    for tag, attributes in parser.tags:
        for name, value in attributes.items():
            if name in ("src", "href", "xlink:href", "action", "data", "poster", "srcset"):
                assert value.startswith(("#", "data:image/png;base64,")), (tag, name, value[:80])
            if name in ("style", "fill", "stroke", "clip-path"):
                assert re.fullmatch(r"(?:(?!url\().)*(?:url\(#[^)]*\))?(?:(?!url\().)*", value or ""), value
    assert not ADDRESS.search(re.sub(r"base64,[\w+/=%]+", "", text))
    assert "@import" not in text
    ids = [attributes["id"] for _, attributes in parser.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    anchors = {attributes["href"][1:] for tag, attributes in parser.tags if tag == "a"}
    assert anchors
    assert anchors <= set(ids)
    assert all(path.is_file() for path in written.files)
    drawn = {path.stem for path in written.files if path.suffix == ".svg"}
    assert drawn == {path.stem for path in (folder / "figures").iterdir()}
    assert len(drawn) == sum(tag == "figure" for tag, _ in parser.tags)


def test_the_same_runs_give_the_same_report(reported):
    folder, written = reported("classification")
    first = {path: path.read_bytes() for path in written.files}
    assert {path: path.read_bytes() for path in write_report(folder).files} == first


@pytest.mark.parametrize("kind, name", [("regression", "<script>window.hacked=1</script>"), ("multiclass", "<i>c")])
def test_the_data_s_names_are_text(kind, name, reported, parse):
    folder, _ = reported(kind)
    parser = parse((folder / "report.html").read_text())
    assert sum(tag in ("script", "i") for tag, _ in parser.tags) == 1
    assert any(name in text for text in parser.texts)


def test_a_reproduction_has_tables_and_every_figure(reported):
    out, report = reported("reproduced")
    written = {path.relative_to(out).as_posix() for path in report.files}
    assert {"report.html", "results.csv", "table.md", "table.tex"} < written
    figures = {name[len("figures/") : -len(".svg")] for name in written if name.startswith("figures/")}
    group, rules = "table2-zinc-100k", "rules-zinc-100k"
    assert figures == {
        *(f"{group}-{kind}" for kind in ("validation", "training", "boxes", "parameters")),
        *(f"{rules}-1-weight-{number}" for number in (1, 2)),
        *(f"{rules}-2-{kind}-{number}" for kind in ("weight", "rule") for number in (1, 2)),
        f"{rules}-2-algebras",
    }
    text = (out / "report.html").read_text()
    for shown in ("PHC-4", "0.188 ± 0.003", "Δ (s.d.)", "Cut short", "quaternion"):
        assert shown in text


def test_a_reproduction_that_has_no_run_yet_says_so(tmp_path):
    (tmp_path / "reproduction.json").write_text(json.dumps({"schema": 1, "tables": ["ppa", "timing"]}))
    write_report(tmp_path)
    assert "No run is finished yet" in (tmp_path / "report.html").read_text()


def test_tables_that_share_rows_show_their_layers_once(reproduced, tmp_path, undrawn):
    out = tmp_path / "out"
    shutil.copytree(reproduced, out)
    (out / "reproduction.json").write_text(json.dumps({"schema": 1, "tables": ["table2", "table2"]}))
    write_report(out)
    assert (out / "report.html").read_text().count("<summary>PHC-4, seed 0</summary>") == 1


def test_without_matplotlib_tables_are_written_and_the_rest_is_named(reproduced, regression, tmp_path, undrawn):
    for number, given in enumerate((reproduced, regression)):
        out = tmp_path / str(number)
        shutil.copytree(given, out)
        written = write_report(out)
        assert "pip install 'phcgnn[report]'" in written.missing
        assert not (out / "figures").exists()
        text = (out / "report.html").read_text()
        assert "<figure" not in text
        assert "pip install &#x27;phcgnn[report]&#x27;" in text
        assert "layer by layer" in text
    assert (tmp_path / "0" / "table.md").read_text().count("PHC-4") == 1


def test_without_rdkit_the_worst_molecules_are_listed(classification, tmp_path, undrawn, monkeypatch):
    out = tmp_path / "out"
    shutil.copytree(classification, out)
    monkeypatch.setitem(sys.modules, "rdkit", None)
    write_report(out)
    text = (out / "report.html").read_text()
    assert "need RDKit" in text
    assert "probability - truth" in text


def test_old_figures_go_and_a_stranger_s_stay(classification, tmp_path, undrawn):
    out = tmp_path / "out"
    shutil.copytree(classification, out)
    (out / "figures").mkdir()
    (out / "figures" / "mine.svg").write_text("mine")
    write_report(out)
    assert (out / "figures" / "mine.svg").read_text() == "mine"
    (out / "figures" / "stale.svg").write_text("stale")
    write_report(out)
    assert not (out / "figures" / "stale.svg").exists()


def test_a_folder_of_models_is_a_report_of_all_of_them(classification, regression, tmp_path, undrawn):
    for given, name in ((classification, "a"), (regression, "b")):
        shutil.copytree(given, tmp_path / name)
    (tmp_path / "notes.txt").write_text("")
    assert {name: len(runs) for name, runs in runs_in(tmp_path).items()} == {"a": 1, "b": 2}
    write_report(tmp_path)
    text = (tmp_path / "report.html").read_text()
    assert all(f'id="model-{number}-scaffolds"' in text for number in (1, 2))
    assert "<summary>b, seed 0</summary>" in text
    about = "molecules, classification of toxic, dull; molecules, regression of &lt;script&gt;"
    assert f'<p class="subtitle">{about}' in text
    assert "; 3 runs.</p>" in text
    heads = re.findall(r'<button type="button">([^<]+)</button>', text)
    assert {"ROC-AUC", "Average precision", "MAE"} < set(heads)


def test_nothing_to_report_on_is_refused(tmp_path):
    with pytest.raises(DataError, match="no finished run"):
        write_report(tmp_path)
    with pytest.raises(DataError, match="no such folder"):
        write_report(tmp_path / "none")
