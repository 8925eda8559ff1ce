import pytest

from phcgnn.training.folder import RunFolder, discard_report, finite, seed_folders


def make_run(path, *, finished=False):
    folder = RunFolder(path)
    folder.open(resume=False, overwrite=False)
    folder.write_text("config.toml", "")
    folder.checkpoint.write_bytes(b"state")
    if finished:
        folder.write_json("result.json", {})
    return folder


def test_a_new_folder(tmp_path):
    folder = RunFolder(tmp_path / "deep" / "run")
    folder.require_free(resume=False, overwrite=False)
    assert not folder.path.exists()
    assert not folder.open(resume=False, overwrite=False)
    assert folder.checkpoint.parent.is_dir()
    assert not folder.open(resume=False, overwrite=False)  # nothing was written yet, so it is still new


@pytest.mark.parametrize("finished", [True, False])
def test_a_run_is_kept_unless_told(tmp_path, finished):
    folder = make_run(tmp_path / "run", finished=finished)
    message = "finished run; give another folder" if finished else "not ended; continue it with --resume"
    with pytest.raises(FileExistsError, match=message):
        folder.open(resume=False, overwrite=False)
    assert folder.open(resume=True, overwrite=False)
    assert folder.finished == finished
    assert not folder.open(resume=False, overwrite=True)
    assert not folder.checkpoint.exists()
    assert not folder.finished


@pytest.mark.parametrize("choice", [{}, {"resume": True}, {"overwrite": True}])
def test_what_is_no_runs_is_left_alone_whatever_is_asked(tmp_path, choice):
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "thesis.tex").write_text("years of work")
    with pytest.raises(FileExistsError, match="files that are no run's"):
        RunFolder(tmp_path).open(**{"resume": False, "overwrite": False, **choice})
    assert (tmp_path / "log" / "thesis.tex").exists()


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(NotADirectoryError, match="file is a file; give a folder"):
            RunFolder(path).require_free(resume=True, overwrite=True)


def test_what_a_killed_write_left_is_cleared_away(tmp_path):
    folder = make_run(tmp_path / "run")
    left = [folder.path / ".model.json.0f0f0f0f.part", folder.checkpoint.with_name(".last.0f0f0f0f.part")]
    for path in left:
        path.write_bytes(b"half")
    assert folder.open(resume=True, overwrite=False)
    assert not any(path.exists() for path in left)


def test_killed_before_anything_was_written(tmp_path):
    folder = RunFolder(tmp_path / "run")
    folder.open(resume=False, overwrite=False)
    (folder.path / ".config.toml.0f0f0f0f.part").write_bytes(b"half")
    assert not folder.open(resume=False, overwrite=False)


def test_rows(tmp_path):
    folder = RunFolder(tmp_path)
    folder.write_rows("a.csv", [])
    folder.append_row("a.csv", {"x": 1, "y": "a,b"})
    folder.append_row("a.csv", {"x": 2, "y": ""})
    assert (tmp_path / "a.csv").read_text() == 'x,y\n1,"a,b"\n2,\n'
    folder.write_rows("a.csv", [{"x": 3}])
    assert (tmp_path / "a.csv").read_text() == "x\n3\n"


def test_finite():
    assert finite({"a": [1, float("inf")], "b": (True, None, "NaN")}) == {"a": [1, None], "b": [True, None, "NaN"]}


def test_to_start_anew_takes_the_report_with_its_figures_away(tmp_path):
    folder = make_run(tmp_path / "run", finished=True)
    (folder.path / "figures").mkdir()
    (folder.path / "figures" / "mine.svg").write_text("mine")
    folder.open(resume=False, overwrite=True)
    assert (folder.path / "figures" / "mine.svg").exists()  # there was no report that it could be of
    folder.write_text("report.html", "old")
    folder.open(resume=False, overwrite=True)
    assert not (folder.path / "report.html").exists()
    assert not (folder.path / "figures").exists()
    (folder.path / "figures").mkdir()
    (folder.path / "figures" / "notes.txt").write_text("mine")
    folder.write_text("report.html", "old")
    discard_report(folder.path)
    assert (folder.path / "figures" / "notes.txt").exists()


def test_seeds_are_found_by_their_numbers(tmp_path):
    for name in ("seed-10", "seed-2", "seed-x", "seed-"):
        (tmp_path / name).mkdir()
    (tmp_path / "seed-3").write_text("a file")
    assert [path.name for path in seed_folders(tmp_path)] == ["seed-2", "seed-10"]
