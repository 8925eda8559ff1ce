"""Reading the authors' ``model.pt``: both layouts by a fabricated module, and files that want more than tensors."""

from __future__ import annotations

import collections
import inspect
import io
import pickle
import pickletools
import struct
import sys
import types
import typing
import zipfile

import pytest
import torch
from torch import nn

from phcgnn import PHCGNN
from phcgnn.models import released
from phcgnn.models.inert import UnsafeFileError, read_module_tensors

SIZES = {"node_features": (7, 3), "edge_features": (5, 6, 2), "n": 2, "width": 8, "layers": 2, "downstream": (6, 4)}


def original_names(model, stacked):
    """The tensors of a network under the names of the released files."""
    n, out = model.config.n, {}

    def linear(prefix, layer):
        constants, weight = layer.rule.constants.detach(), layer.weight.detach()
        if stacked:
            out[f"{prefix}.phm_rule"], out[f"{prefix}.W"] = constants, weight.mT.contiguous()
            out[f"{prefix}.b"] = layer.bias.detach()
        else:
            for i, part in enumerate(layer.bias.detach().chunk(n)):
                out[f"{prefix}.phm_rule.{i}"], out[f"{prefix}.W.{i}"] = constants[i], weight[i]
                out[f"{prefix}.b.{i}"] = part

    def norm(prefix, layer):
        for name in ("weight", "bias", "running_mean", "running_var"):
            for i, part in enumerate(getattr(layer, name).detach().chunk(n)):
                out[f"{prefix}.bn.bn.{i}.{name}"] = part
        for i in range(n):
            out[f"{prefix}.bn.bn.{i}.num_batches_tracked"] = torch.tensor(3)

    def encoder(prefix, layer):
        for i, part in enumerate(layer.weight.detach().chunk(n, dim=1)):
            for f, table in enumerate(part.split(layer.cardinalities)):
                out[f"{prefix}.encoders.{i}.embeddings.{f}.weight"] = table

    def affine(prefix, layer):
        out[f"{prefix}.weight"], out[f"{prefix}.bias"] = layer.weight.detach(), layer.bias.detach()

    encoder("atomencoder", model.node_encoder)
    for i, conv in enumerate(model.convs):
        encoder(f"bondencoders.{i}", model.edge_encoders[i])
        linear(f"convs.{i}.transform.transform.linear1", conv.transform.linear1)
        norm(f"convs.{i}.transform.transform.norm", conv.transform.norm)
        linear(f"convs.{i}.transform.transform.linear2", conv.transform.linear2)
        if model.config.aggregation == "softmax":
            out[f"convs.{i}.transform.beta"] = conv.aggr_module.beta.detach().view(1)
        norm(f"norms.{i}", model.norms[i])
    linear("pooling.linear", model.pool.linear)
    affine("pooling.real_trafo.affine", model.pool.real.affine)
    for i, layer in enumerate([*model.predictor.linears, model.predictor.last]):
        linear(f"downstream.affine.{i}", layer)
    for i, layer in enumerate(model.predictor.norms):
        norm(f"downstream.norm.{i}", layer)
    affine("downstream.real_trafo.affine", model.predictor.real.affine)
    return {name: value.clone() for name, value in out.items()}


@pytest.fixture
def foreign():
    """A module of classes that exist while the file is written, and are gone when it is read."""
    room = types.ModuleType("foreign_network")
    exec("import torch.nn as nn\nclass Net(nn.Module): pass\nclass Helper: pass\n", room.__dict__)
    sys.modules["foreign_network"] = room
    yield room
    sys.modules.pop("foreign_network", None)


def as_modules(tensors, room):
    """A tree of modules that holds tensors under dotted names, with the baggage that such modules carry."""
    root = room.Net()
    for name, value in tensors.items():
        *path, last = name.split(".")
        node = root
        for step in path:
            if step not in node._modules:
                node.add_module(step, room.Net())
            node = node._modules[step]
        if value.is_floating_point() and "running" not in last:
            node.register_parameter(last, nn.Parameter(value))
        else:
            node.register_buffer(last, value)
    root.activation = torch.nn.functional.relu
    root.helper = room.Helper()
    root.helper.signature = collections.OrderedDict(x=inspect.Parameter("x", inspect.Parameter.POSITIONAL_OR_KEYWORD))
    root.helper.annotation = typing.Optional[torch.Tensor]  # noqa: UP045  as such modules hold it
    root.helper.device, root.helper.size = torch.device("cpu"), torch.Size([2, 3])
    root.add_module("nothing", None)
    return root


def write(path, pickled, storages, root="archive"):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(f"{root}/data.pkl", pickled)
        for key, content in storages.items():
            archive.writestr(f"{root}/data/{key}", content)
        archive.writestr(f"{root}/version", "3\n")
    return path


@pytest.mark.parametrize("stacked", [False, True])
@pytest.mark.parametrize("aggregation", ["sum", "softmax"])
@pytest.mark.parametrize("skip", [None, "previous"])
def test_a_pickled_module_of_either_layout(tmp_path, foreign, stacked, aggregation, skip):
    model = PHCGNN(**SIZES, aggregation=aggregation, skip=skip or "initial")
    for parameter in [*model.parameters(), *(b for b in model.buffers() if b.is_floating_point())]:
        nn.init.uniform_(parameter, 0.1, 1.0)
    tensors = original_names(model, stacked)
    path = tmp_path / "model.pt"
    torch.save(as_modules(tensors, foreign), path, pickle_protocol=2)
    del sys.modules["foreign_network"]
    read = released.load(path, skip=skip)
    assert read.config == model.config
    assert not read.training
    for name, value in model.state_dict().items():
        if not name.endswith("num_batches_tracked"):
            assert torch.equal(read.state_dict()[name], value), name


def test_the_pickle_of_torch_1_7(tmp_path, foreign):
    """Old torch wrote a set of names and no state of its own; the class names are those of another library."""
    room, tensors = foreign, {"a.weight": torch.randn(3, 2), "a.running_mean": torch.randn(4)}
    root = as_modules(tensors, room)
    buffer = io.BytesIO()
    torch.save(root, buffer, pickle_protocol=2)
    names = {name.filename: zipfile.ZipFile(buffer).read(name) for name in zipfile.ZipFile(buffer).infolist()}
    (prefix,) = {name.partition("/")[0] for name in names}
    pickled = names[f"{prefix}/data.pkl"]
    assert b"foreign_network" in pickled
    assert "_non_persistent_buffers_set" in "".join(str(op[1]) for op in pickletools.genops(pickled))
    storages = {name.rpartition("/")[2]: value for name, value in names.items() if "/data/" in name}
    sys.modules.pop("foreign_network")
    read = read_module_tensors(write(tmp_path / "old.pt", pickled, storages))
    assert read.keys() == tensors.keys()
    for name, value in tensors.items():
        assert torch.equal(read[name], value)


def test_a_state_dict_and_views_of_one_storage(tmp_path):
    base = torch.arange(12.0)
    tensors = collections.OrderedDict(
        {"a": base[2:8].view(2, 3), "b": base.view(3, 4).t(), "c": torch.empty(0, 3), "d": torch.tensor(5)}
    )
    torch.save(tensors, tmp_path / "state.pt")
    read = read_module_tensors(tmp_path / "state.pt")
    assert read.keys() == tensors.keys()
    for name, value in tensors.items():
        assert torch.equal(read[name], value)
        assert read[name].dtype == value.dtype


def call(module, name, *arguments):
    """Pickle of a call, in protocol 0."""
    packed = "".join(f"V{argument}\n" for argument in arguments)
    return f"c{module}\n{name}\n({packed}tR.".encode()


def build(module, name, state):
    return f"c{module}\n{name}\n".encode() + b"\x80\x02" + state + b"b."


TENSOR = b"ctorch._utils\n_rebuild_tensor_v2\n"
STORAGE = b"(Vstorage\nctorch\nFloatStorage\nV0\nVcpu\nI4\ntQ"


def tensor(offset="I0\n", size="(I4\nt", stride="(I1\nt", storage=STORAGE):
    return TENSOR + b"(" + storage + f"{offset}{size}{stride}I00\nNtR.".encode()


HOSTILE = {
    "os.system": (call("os", "system", "touch hostile"), "it names os.system"),
    "posix.system": (call("posix", "system", "touch hostile"), "it names posix.system"),
    "builtins.eval": (call("builtins", "eval", "open('hostile', 'w')"), "it names builtins.eval"),
    "builtins.eval, named alone": (b"cbuiltins\neval\n.", "it names builtins.eval"),
    "__builtin__.exec": (call("__builtin__", "exec", "open('hostile', 'w')"), "it names __builtin__.exec"),
    "builtins.getattr": (call("builtins", "getattr", "x", "y"), "it names builtins.getattr"),
    "importlib": (call("importlib", "import_module", "os"), "it names importlib.import_module"),
    "subprocess by OBJ": (b"(csubprocess\nPopen\nVtouch hostile\no.", "it names subprocess.Popen"),
    "subprocess by INST": (b"(Vtouch hostile\nisubprocess\nPopen\n.", "it names subprocess.Popen"),
    "torch.hub.load": (call("torch.hub", "load", "x"), "it asks to call torch.hub.load"),
    "torch.load": (call("torch", "load", "x"), "it asks to call torch.load"),
    "a foreign function": (call("foreign.net", "run", "x"), r"it asks to call foreign.net.run\(...\)"),
    "our own code": (call("phcgnn.models.released", "load", "x"), "it asks to call phcgnn.models.released.load"),
    "arguments for a class": (b"\x80\x02cforeign.net\nNet\nVx\n\x85\x81.", "from arguments"),
    "nested in a module": (
        b"\x80\x02cforeign.net\nNet\n)\x81}(V_modules\n}Va\ncos\nsystem\n(Vtouch hostile\ntRsub.",
        "it names os.system",
    ),
    "nested in a tensor": (TENSOR + b"(" + call("os", "system", "touch hostile")[:-1] + b"tR.", "it names os.system"),
    "a state that is no dictionary": (b"\x80\x02cforeign.net\nNet\n)\x81(I1\ntb.", "a state that is no dictionary"),
    "a changed class": (build("foreign.net", "Net", b"N}V__call__\nI1\ns\x86"), "not a readable torch file"),
    "a changed function": (build("torch._utils", "_rebuild_tensor_v2", b"N}V_call\nI1\ns\x86"), "to change a function"),
    "a changed dictionary": (build("collections", "OrderedDict", b"N}Vitems\nI1\ns\x86"), "not a readable torch file"),
    "larger than its storage": (tensor(size="(I5\nt"), "larger than its storage"),
    "behind its storage": (tensor(offset="I1\n"), "larger than its storage"),
    "before its storage": (tensor(offset="I-1\n"), "makes no sense"),
    "endless by stride 0": (tensor(size="(I1000000\nI1000000\nt", stride="(I0\nI0\nt"), "larger than its storage"),
    "no storage": (tensor(storage=b"I1\n"), "makes no sense"),
    "shape and stride disagree": (tensor(stride="(I1\nI1\nt"), "not a readable torch file"),
    "another persistent thing": (b"\x80\x02(Vmodule\nVx\ntQ.", "refers to something that is no storage"),
    "a path as a storage": (
        tensor(storage=b"(Vstorage\nctorch\nFloatStorage\nV../../etc/passwd\nVcpu\nI4\ntQ"),
        "refers to something that is no storage",
    ),
    "a list": (b"(lI1\na.", "neither a module nor a tensor"),
    "a module within itself": (
        b"\x80\x02cforeign.net\nNet\n)\x81q\x00}V_modules\n}Va\nh\x00ssb.",
        "its tree of modules is endless",
    ),
    "a deep tuple to hash": (b"\x80\x02}(" + b")" + b"\x85" * 1_000_000 + b"I1\nu.", "nested too deep"),
    "a deep tuple by memory": (b"\x80\x02)q\x00" + b"h\x00\x85q\x00" * 1000 + b".", "nested too deep"),
    "a place far off": (b"\x80\x02Nr\xff\xff\xff\x7f.", "asks for memory that it does not use"),
    "cut short": (b"\x80\x02cforeign.net\nNet\n)", "not a readable torch file"),
    "nothing": (b"", "not a readable torch file"),
    "noise": (bytes(range(256)), "not a readable torch file|refused"),
}


@pytest.mark.parametrize("pickled, message", HOSTILE.values(), ids=HOSTILE)
def test_hostile_pickles_are_refused_and_nothing_runs(pickled, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = write(tmp_path / "model.pt", pickled, {"0": struct.pack("4f", 1, 2, 3, 4)})
    with pytest.raises(UnsafeFileError, match=message):
        released.load(path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["model.pt"]
    assert not hasattr(collections.OrderedDict(), "hostile")


def test_the_examples_above_would_be_harmful(tmp_path, monkeypatch):
    """The ordinary unpickler does run them; and a tensor that is well described is read."""
    monkeypatch.chdir(tmp_path)
    pickle.loads(HOSTILE["os.system"][0])
    assert (tmp_path / "hostile").exists()
    good = b"(dVa\n" + tensor()[:-1] + b"s."
    path = write(tmp_path / "model.pt", good, {"0": struct.pack("4f", 1, 2, 3, 4)})
    assert read_module_tensors(path)["a"].tolist() == [1, 2, 3, 4]


def test_a_harmless_name_stays_a_blank(tmp_path):
    pickled = b"(dVa\n" + tensor()[:-1] + b"s."
    baggage = b"cinspect\nParameter\n(Vx\ntR0" + b"coperator\ngetitem\n(VA\nVb\ntR0" + pickled
    path = write(tmp_path / "model.pt", baggage, {"0": struct.pack("4f", 1, 2, 3, 4)})
    assert list(read_module_tensors(path)) == ["a"]


def good_pickle():
    return b"(dVa\n" + tensor()[:-1] + b"s."


def zipped(path, members, compression=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in members:
            archive.writestr(name, content)


FLOATS = struct.pack("4f", 1, 2, 3, 4)
ARCHIVES = {
    "no pickle": ([("archive/version", "3")], "must hold one data.pkl"),
    "two pickles": ([("a/data.pkl", b"N."), ("b/data.pkl", b"N.")], "must hold one data.pkl"),
    "outside": ([("../x/data.pkl", b"N.")], "must hold one data.pkl"),
    "no storage": ([("a/data.pkl", good_pickle())], "storage 0 is missing"),
    "short storage": ([("a/data.pkl", good_pickle()), ("a/data/0", FLOATS[:-1])], "storage 0 is missing or has not"),
    "storage elsewhere": ([("a/data.pkl", good_pickle()), ("../a/data/0", FLOATS)], "storage 0 is missing"),
}


@pytest.mark.parametrize("members, message", ARCHIVES.values(), ids=ARCHIVES)
def test_odd_archives(members, message, tmp_path):
    zipped(tmp_path / "model.pt", members)
    with pytest.raises(UnsafeFileError, match=message):
        read_module_tensors(tmp_path / "model.pt")


def test_damaged_archives(tmp_path):
    path = write(tmp_path / "model.pt", good_pickle(), {"0": FLOATS})
    content = path.read_bytes()
    for damaged in (content[: len(content) // 2], content.replace(FLOATS, FLOATS[::-1]), b"PK" + bytes(40)):
        path.write_bytes(damaged)
        with pytest.raises(UnsafeFileError, match=r"model.pt: not a readable torch file.*1.6, or a .safetensors"):
            released.load(path)
    zipped(path, [("a/data.pkl", good_pickle()), ("a/data/0", FLOATS)], zipfile.ZIP_DEFLATED)
    with pytest.raises(UnsafeFileError, match="compressed or too large"):
        released.load(path)
    with pytest.warns(UserWarning, match="Duplicate"):
        zipped(path, [("a/data.pkl", good_pickle()), ("a/data/0", FLOATS), ("a/data/0", FLOATS)])
    with pytest.raises(UnsafeFileError, match="no name twice"):
        released.load(path)


def test_other_files(tmp_path):
    for name, content, message in (
        ("model.pt", pickle.dumps({"a": 1}), "a bare pickle"),
        ("model.pt", b"anything", "a bare pickle, or no torch file"),
        ("w.safetensors", b"anything", "not a readable .safetensors"),
        ("w.safetensors", b"", "not a readable .safetensors"),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(UnsafeFileError, match=message):
            released.load(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        released.load(tmp_path / "none.pt")


def test_networks_that_do_not_fit(tmp_path):
    tensors = original_names(PHCGNN(**SIZES), stacked=False)
    path = tmp_path / "state.pt"

    def load(changes=(), without=(), **options):
        values = {name: value for name, value in {**tensors, **dict(changes)}.items() if name not in without}
        torch.save(values, path)
        return released.load(path, **options)

    assert load().config.skip == "initial"
    assert load(skip="previous").config.skip == "previous"
    assert load(aggregation="max").config.aggregation == "max"
    assert load(dtype=torch.float64).node_encoder.weight.dtype == torch.float64
    for changes, without, message in (
        ({"extra": torch.ones(1)}, (), "1 tensors have no place in the network: extra"),
        ({}, ("norms.1.bn.bn.0.weight",), "no tensor `norms.1.bn.bn.0.weight`"),
        ({}, ("downstream.real_trafo.affine.bias",), "no tensor `downstream.real_trafo"),
        ({}, ("convs.0.transform.transform.linear1.W.0",), "`convs.0.transform.transform.linear1.W.*` has gaps"),
        ({"norms.1.bn.bn.0.weight": torch.ones(9)}, (), "`norms.1` has shape"),
        ({"bondencoders.0.encoders.0.embeddings.0.weight": torch.ones(9, 4)}, (), "does not say how its skip"),
    ):
        with pytest.raises(ValueError, match=message):
            load(changes, without)
    torch.save({"a": torch.ones(1)}, path)
    with pytest.raises(ValueError, match="not a released network"):
        released.load(path)
