import pytest
import torch
from safetensors.torch import load_file, save_file

from phcgnn.errors import DataError
from phcgnn.tensorfile import DTYPES, read_tensors, write_tensors

KIND = {"format": "phcgnn.test", "schema": 2}


def write(path, **tensors):
    write_tensors(path, tensors, "a text", **KIND)


def read(path, **options):
    return read_tensors(path, **KIND, remedy="write it again", **options)


def test_round_trip_of_every_type(tmp_path):
    tensors = {str(dtype): torch.arange(6).reshape(2, 3).to(dtype) for dtype in DTYPES}
    tensors |= {"empty": torch.empty(0, 3), "scalar": torch.tensor(5), "strided": torch.arange(12).view(3, 4).t()}
    write(tmp_path / "f", **tensors)
    found, text = read(tmp_path / "f")
    assert text == "a text"
    assert found.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert found[name].dtype == tensor.dtype
        assert torch.equal(found[name], tensor)
    assert load_file(tmp_path / "f").keys() == tensors.keys()  # safetensors' own reader agrees


@pytest.mark.parametrize("keep", [0, 4, 50, -1])
def test_a_file_that_was_cut_short(tmp_path, keep):
    write(tmp_path / "f", a=torch.ones(100))
    content = (tmp_path / "f").read_bytes()
    (tmp_path / "f").write_bytes(content[:keep])
    with pytest.raises(DataError, match=r"f is no phcgnn\.test file, or it was cut short.*write it again"):
        read(tmp_path / "f")


def test_an_altered_file(tmp_path):
    write(tmp_path / "f", a=torch.ones(100))
    content = bytearray((tmp_path / "f").read_bytes())
    content[-3] ^= 1
    (tmp_path / "f").write_bytes(content)
    with pytest.raises(DataError, match="altered"):
        read(tmp_path / "f")
    assert len(read(tmp_path / "f", verify=False)[0]["a"]) == 100


def test_foreign_newer_and_missing_files(tmp_path):
    save_file({"a": torch.ones(2)}, tmp_path / "foreign")
    with pytest.raises(DataError, match=r"another program's, expected phcgnn\.test"):
        read(tmp_path / "foreign")
    write_tensors(tmp_path / "newer", {}, "", format="phcgnn.test", schema=3)
    with pytest.raises(DataError, match="schema 3, but this phcgnn reads up to 2"):
        read(tmp_path / "newer")
    with pytest.raises(DataError, match="does not exist"):
        read(tmp_path / "missing")
    with pytest.raises(DataError, match="is a folder"):
        read(tmp_path)
    (tmp_path / "pickle").write_bytes(b"\x80\x04\x95cos\nsystem\n")
    with pytest.raises(DataError, match=r"no phcgnn\.test file"):
        read(tmp_path / "pickle")
