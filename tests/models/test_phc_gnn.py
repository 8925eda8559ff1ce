from __future__ import annotations

import copy
import pickle
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch_geometric.data import Batch, Data
from torch_geometric.nn import aggr

from phcgnn import PHCGNN, PHCGNNConfig
from phcgnn.algebra import Algebra
from phcgnn.nn import MultiplicationRule, PHMLinear, SoftAttentionPooling, SoftmaxAggregation, WhiteningNorm, fold
from phcgnn.nn.adjacency import Adjacency
from phcgnn.testing import (
    assert_batch_equals_one_by_one,
    assert_permutation_equivariant,
    assert_permutation_invariant,
    assert_resets_everything,
    assert_seed_fixes_parameters,
)

SMALL = {"node_features": (5, 3), "edge_features": (4, 2), "n": 2, "width": 8, "layers": 3, "downstream": (6, 4)}
REAL = {**SMALL, "node_features": 3, "edge_features": 2}
VARIANTS = {
    "plain": {},
    "mean": {"aggregation": "mean"},
    "max": {"aggregation": "max"},
    "softmax": {"aggregation": "softmax", "skip": "previous"},
    "pna": {"aggregation": "pna", "degrees": (1, 5, 3)},
    "learned": {"aggregation": "set-transformer"},
    "one PHM": {"mp_mlp": False, "skip": None},
    "concat": {"skip": "concat"},
    "shared rule": {"share_rule": True},
    "frozen rule": {"learn_rule": False, "rule_start": "complex"},
    "whitening": {"norm": "whitening"},
    "no norm": {"norm": None, "activation": "prelu"},
    "sum readout": {"pooling": "sum", "downstream": ()},
    "mean readout": {"pooling": "mean"},
    "pyg readout": {"pooling": "set-transformer"},
    "message activation": {"message_activation": "relu"},
    "no edge features": {"edge_features": None},
    "no node features": {"node_features": None},
    "mean of edges": {"node_features": None, "node_source": "edge-mean"},
    "constant": {"node_features": None, "node_source": "constant"},
    "nothing": {"node_features": None, "edge_features": None, "node_source": "constant"},
    "many categories": {"edge_features": (40, 3)},
    "dense": {"dense": True},
    "real algebra": {"n": 1},
    "terms": {"terms": 3},
    "targets": {"targets": 3},
}


def features(kind, rows):
    if kind is None:
        return None
    if isinstance(kind, int):
        return torch.randn(rows, kind)
    return torch.stack([torch.randint(c, (rows,)) for c in kind], dim=1)


def graph(config, nodes=6, edges=14):
    config = {**SMALL, **config}
    x = features(config["node_features"], nodes)
    x = torch.empty(nodes, 0) if x is None else x
    return x, torch.randint(nodes, (2, edges)), features(config["edge_features"], edges)


def data(config, **sizes):
    x, edge_index, edge_attr = graph(config, **sizes)
    return Data(x=x, edge_index=edge_index, edge_attr=edge_attr)


def warm(model, config):
    """Give the norms statistics of their own, so that eval mode is no special case."""
    with torch.no_grad():
        for _ in range(3):
            model(Batch.from_data_list([data(config) for _ in range(8)]))
    return model.eval()


@pytest.mark.parametrize("readout", [aggr.Set2Set(8, 2), aggr.MLPAggregation(8, 6, 5, num_layers=1)], ids=repr)
def test_a_readout_of_another_width_without_memory(readout):
    """On the meta device the widths are those of a network with numbers."""
    real = PHCGNN(**SMALL, pooling=copy.deepcopy(readout))
    meta = PHCGNN(**SMALL, pooling=copy.deepcopy(readout), device="meta")
    assert {k: v.shape for k, v in meta.state_dict().items()} == {k: v.shape for k, v in real.state_dict().items()}
    assert all(parameter.is_meta for parameter in meta.parameters())


@pytest.mark.parametrize("pooling", ["median", "lstm", "set-transformer", aggr.Set2Set(8, 2)], ids=str)
def test_any_readout_takes_graphs_without_nodes(pooling):
    model = PHCGNN(**SMALL, pooling=pooling).eval()
    x, edge_index, edge_attr = data(SMALL).x, data(SMALL).edge_index, data(SMALL).edge_attr
    full = model(x, edge_index, edge_attr, torch.tensor([0, len(x)]))
    gaps = model(x, edge_index, edge_attr, torch.tensor([0, 0, len(x), len(x)]))
    torch.testing.assert_close(gaps[1:2], full)
    nothing = model(x[:0], edge_index[:, :0], edge_attr[:0], torch.tensor([0, 0, 0]))
    torch.testing.assert_close(nothing, gaps[[0, 2]])


@pytest.mark.parametrize("settings", VARIANTS.values(), ids=VARIANTS)
class TestEveryVariant:
    def test_graphs_are_invariant_and_independent(self, settings):
        model = warm(PHCGNN(**{**SMALL, **settings}), settings)
        assert_permutation_invariant(model, *graph(settings), atol=1e-4)
        graphs = [graph(settings, 5, 8), graph(settings, 1, 0), graph(settings, 4, 0), graph(settings, 3, 7)]
        assert_batch_equals_one_by_one(model, graphs, atol=1e-4)

    def test_nodes_are_equivariant(self, settings):
        model = warm(PHCGNN(**{**SMALL, **settings, "task": "node"}), settings)
        assert_permutation_equivariant(model, *graph(settings), atol=1e-4)
        x, edge_index, edge_attr = graph(settings)
        targets = settings.get("targets", 1)
        assert model(Data(x=x, edge_index=edge_index, edge_attr=edge_attr)).shape == (6, targets)

    def test_gradients_reach_every_parameter(self, settings):
        model = PHCGNN(**{**SMALL, **settings, "activation": "silu"})
        batch = Batch.from_data_list([data(settings, nodes=9, edges=40) for _ in range(30)])
        model(batch).square().sum().backward()
        for name, parameter in model.named_parameters():
            assert parameter.grad is not None, name
            assert parameter.grad.isfinite().all(), name
        silent = {name for name, p in model.named_parameters() if not p.grad.any()}
        shifted = {"linear1.bias", "linear2.bias"} if settings.get("norm", "component") else set()
        if settings.get("n") == 1:  # the norm that follows undoes a scale
            shifted |= {"linear1.rule.constants"}
        assert not {name for name in silent if not any(name.endswith(end) for end in shifted)}

    def test_starts(self, settings):
        assert_seed_fixes_parameters(lambda: PHCGNN(**{**SMALL, **settings}))
        if "set-transformer" not in settings.values():  # PyG's own reset leaves its attention's output layer alone
            assert_resets_everything(PHCGNN(**{**SMALL, **settings}))

    def test_fold_changes_nothing_that_matters(self, settings):
        model = warm(PHCGNN(**{**SMALL, **settings}), settings)
        batch = Batch.from_data_list([data(settings) for _ in range(4)])
        folded = fold(model)
        assert (folded(batch) - model(batch)).abs().max() < 1e-5
        assert not [m for m in folded.modules() if isinstance(m, PHMLinear | MultiplicationRule)]

    @pytest.mark.parametrize("training", [True, False])
    def test_awkward_batches(self, settings, training):
        model = PHCGNN(**{**SMALL, **settings}).train(training)
        for sizes in ([(1, 0)], [(5, 8)], [(4, 0)], [(1, 0), (1, 0)], [(1, 0), (5, 9), (3, 0)], [(2, 2)]):
            batch = Batch.from_data_list([data(settings, nodes=v, edges=e) for v, e in sizes])
            y = model(batch)
            assert y.shape == (len(sizes), settings.get("targets", 1))
            assert y.isfinite().all()
            y.sum().backward()


@pytest.mark.parametrize("aggregation", ["sum", "mean"])
@pytest.mark.parametrize("settings", [SMALL, REAL, {**SMALL, "edge_features": (40,)}])
def test_summing_apart_equals_the_messages_with_gradients(aggregation, settings, monkeypatch):
    """The edges' categories are counted once, instead of embedded in every layer: float64, against message passing."""
    model = PHCGNN(**settings, aggregation=aggregation, dtype=torch.float64)
    inputs = (*graph(settings), torch.tensor([0, 4, 6]))
    fast = model(*inputs)
    cotangent = torch.randn_like(fast)
    gradients = torch.autograd.grad(fast, list(model.parameters()), cotangent)
    monkeypatch.setattr(type(model.convs[0]), "sums", False)
    monkeypatch.setattr(Adjacency, "from_edges", None)
    plain = model(*inputs)
    torch.testing.assert_close(fast, plain, rtol=1e-9, atol=1e-10)
    for a, b in zip(gradients, torch.autograd.grad(plain, list(model.parameters()), cotangent), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-7, atol=1e-8)


def test_a_layer_is_what_the_facts_say():
    """t = PHM(ReLU(norm(PHM(h + sum(h_u + e_uv))))), norm, ReLU, + skip, by hand from the parts."""
    for skip in ("initial", "previous", None, "concat"):
        model = warm(PHCGNN(**SMALL, skip=skip), SMALL)
        x, edge_index, edge_attr = graph(SMALL)
        h = h0 = model.node_encoder(x)
        for layer in range(3):
            message = h[edge_index[0]] + model.edge_encoders[layer](edge_attr)
            t = h + torch.zeros_like(h).index_add(0, edge_index[1], message)
            mlp = model.convs[layer].transform
            t = mlp.linear2(torch.relu(mlp.norm(mlp.linear1(t))))
            t = torch.relu(model.norms[layer](t))
            if skip == "concat":
                parts = zip(t.chunk(2, dim=1), h.chunk(2, dim=1), strict=True)
                h = torch.cat([piece for pair in parts for piece in pair], dim=1)
            else:
                h = t + {"initial": h0, "previous": h, None: 0}[skip]
        torch.testing.assert_close(model.node_embeddings(x, edge_index, edge_attr, torch.tensor([0, 6])), h)
        gates = torch.sigmoid(model.pool.real(model.pool.linear(h)))
        pooled = (h * gates.repeat(1, 2)).sum(0, keepdim=True)
        torch.testing.assert_close(model.graph_embeddings(x, edge_index, edge_attr, torch.tensor([0, 6])), pooled)
        y = pooled
        for linear, norm in zip(model.predictor.linears, model.predictor.norms, strict=True):
            y = torch.relu(norm(linear(y)))
        y = model.predictor.real(model.predictor.last(y))
        torch.testing.assert_close(model(x, edge_index, edge_attr, torch.tensor([0, 6])), y)


def test_widths_of_concatenation():
    model = PHCGNN(**SMALL, skip="concat")
    assert [conv.in_features for conv in model.convs] == [8, 16, 24]
    assert model.node_embeddings(data(SMALL)).shape == (6, 32)
    assert model.config.layer_widths == (8, 16, 24, 32)


@pytest.mark.parametrize("source", ["edge-sum", "edge-mean"])
@pytest.mark.parametrize("kind", [(4, 2), 2])
def test_nodes_without_features_start_from_their_edges(source, kind):
    settings = {**SMALL, "node_features": None, "edge_features": kind, "node_source": source}
    model = PHCGNN(**settings).eval()
    _, edge_index, edge_attr = graph(settings)
    embedded = model.node_encoder(edge_attr)
    expected = torch.zeros(6, 8).index_add(0, edge_index[1], embedded)
    if source == "edge-mean":
        expected = expected / edge_index[1].bincount(minlength=6).clamp_min(1)[:, None]
    seen = []
    model.convs[0].transform.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    model(Data(edge_index=edge_index, edge_attr=edge_attr, num_nodes=6))
    first = model.edge_encoders[0](edge_attr)
    received = torch.zeros(6, 8).index_add(0, edge_index[1], expected[edge_index[0]] + first)
    torch.testing.assert_close(seen[0], expected + received)


def test_objects_work_where_names_do():
    aggregation = aggr.SoftmaxAggregation(learn=True)
    readout = aggr.Set2Set(8, 2)
    model = PHCGNN(
        **SMALL,
        aggregation=aggregation,
        pooling=readout,
        activation=nn.PReLU(),
        message_activation=torch.tanh,
        rule_start=Algebra.named("complex"),
        weight_start=lambda weight, constants: weight.fill_(0.25),
    )
    assert model(data(SMALL)).shape == (1, 1)
    assert model.pool is readout
    own = [conv.aggr_module for conv in model.convs]
    assert len({id(module) for module in own}) == 3
    assert aggregation not in own
    assert len({id(module) for module in model.activations}) == 3
    assert model.convs[0].transform.linear1.weight.unique().tolist() == [0.25]
    with pytest.raises(ValueError, match="`aggregation` was given as an object, which a file cannot hold"):
        model.config.to_dict()
    with pytest.raises(ValueError, match="stands for an object; give the object"):
        PHCGNN.from_config(model.config)
    assert model.summary().rows[-2].part == "pooling: Set2Set"
    clone = copy.deepcopy(model)
    torch.testing.assert_close(clone.eval()(data(SMALL)).shape, model(data(SMALL)).shape)


@pytest.mark.parametrize("settings", VARIANTS.values(), ids=VARIANTS)
def test_pickles_and_copies_predict_the_same(settings):
    model = PHCGNN(**{**SMALL, **settings}).eval()
    batch = data(settings)
    for twin in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        assert torch.equal(twin(batch), model(batch))
        assert len(list(twin.parameters())) == len(list(model.parameters()))


@pytest.mark.parametrize("kind", [(4, 2), (40,), 2])
@pytest.mark.parametrize("pooling", ["attention", "mean"])
def test_many_edges_and_nodes_in_bfloat16(kind, pooling):
    """bfloat16 counts to 256: the network with narrow weights follows the one with wide ones."""
    settings = {**SMALL, "edge_features": kind, "layers": 1, "downstream": (), "pooling": pooling}
    wide = PHCGNN(**settings).eval()
    narrow = copy.deepcopy(wide).bfloat16()
    x, _, edge_attr = graph(settings, nodes=1001, edges=1000)
    edge_index = torch.stack([torch.arange(1, 1001), torch.zeros(1000, dtype=torch.long)])
    inputs = x, edge_index, torch.zeros_like(edge_attr) + 1, torch.tensor([0, 1001])
    for embed in ("node_embeddings", "graph_embeddings"):
        got, expected = getattr(narrow, embed)(*inputs)[0], getattr(wide, embed)(*inputs)[0]
        assert (got.float() - expected).norm() < 0.03 * expected.norm(), embed


def test_temperatures_belong_to_layers():
    model = PHCGNN(**SMALL, aggregation="softmax")
    betas = [m.beta for m in model.modules() if isinstance(m, SoftmaxAggregation)]
    assert len(betas) == len({id(beta) for beta in betas}) == 3
    assert all(beta.item() == 1 for beta in betas)


def test_one_rule_for_all():
    model = PHCGNN(**SMALL, aggregation="pna", degrees=(0, 2), share_rule=True)
    rules = {id(m.rule) for m in model.modules() if isinstance(m, PHMLinear)}
    assert rules == {id(model.rule)}
    assert len({id(m.rule) for m in PHCGNN(**SMALL).modules() if isinstance(m, PHMLinear)}) == 3 * 2 + 1 + 3


def test_gates():
    model = PHCGNN(**SMALL).eval()
    batch = Batch.from_data_list([data(SMALL), data(SMALL)])
    assert isinstance(model.pool, SoftAttentionPooling)
    model(batch)
    assert model.pool.last_gates is None
    model.pool.keep_gates = True
    model(batch)
    assert model.pool.last_gates.shape == (12, 4)
    torch.testing.assert_close(model.attention_gates(batch), model.pool.last_gates)
    with pytest.raises(ValueError, match="gates come with pooling='attention'"):
        PHCGNN(**SMALL, pooling="sum").attention_gates(batch)
    with pytest.raises(ValueError, match="no pooling"):
        PHCGNN(**SMALL, task="node").graph_embeddings(batch)


def test_whitening_dropout_and_modes():
    model = PHCGNN(**SMALL, norm="whitening", dropout=(0.0, 0.5, 0.2), downstream_dropout=0.3, dropout_kind="element")
    assert all(isinstance(norm, WhiteningNorm) for norm in model.norms)
    assert [d.p for d in model.dropouts] == [0.0, 0.5, 0.2]
    assert [d.p for d in model.predictor.dropouts] == [0.3, 0.3]
    assert {d.kind for d in (*model.dropouts, *model.predictor.dropouts)} == {"element"}
    batch = Batch.from_data_list([data(SMALL) for _ in range(8)])
    assert not torch.equal(model(batch), model(batch))
    model.eval()
    assert torch.equal(model(batch), model(batch))


def test_ways_to_give_a_batch():
    model = PHCGNN(**SMALL).eval()
    graphs = [data(SMALL, nodes=3), data(SMALL, nodes=5)]
    batch = Batch.from_data_list(graphs)
    expected = model(batch)

    bare = SimpleNamespace(x=batch.x, edge_index=batch.edge_index, edge_attr=batch.edge_attr, batch=batch.batch)
    torch.testing.assert_close(model(bare), expected)
    torch.testing.assert_close(model(batch.x, batch.edge_index, batch.edge_attr, batch.ptr), expected)
    torch.testing.assert_close(model(graphs[1]), expected[1:])
    narrow = Batch.from_data_list(graphs)
    narrow.edge_index, narrow.x, narrow.edge_attr = (
        narrow.edge_index.int(),
        narrow.x.to(torch.uint8),
        narrow.edge_attr.short(),
    )
    torch.testing.assert_close(model(narrow), expected)
    single = PHCGNN(**{**SMALL, "node_features": (5,), "edge_features": 1}).eval()
    flat = Data(x=graphs[0].x[:, 0], edge_index=graphs[0].edge_index, edge_attr=torch.rand(14))
    assert single(flat).shape == (1, 1)


@pytest.mark.slow
@pytest.mark.parametrize("settings", [SMALL, {**SMALL, "aggregation": "softmax"}], ids=["sum", "softmax"])
def test_32_graphs_can_be_overfitted(settings):
    model = PHCGNN(**{**settings, "n": 4, "width": 32, "downstream": (32, 16)})
    batch, target = Batch.from_data_list([data(SMALL) for _ in range(32)]), torch.randn(32, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(300):
        loss = (model(batch) - target).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.01


def test_construction_by_config_equals_construction_by_options():
    torch.manual_seed(1)
    first = PHCGNN(**SMALL, aggregation="pna", degrees=(1, 2), skip=None, norm=None)
    torch.manual_seed(1)
    second = PHCGNN.from_config(PHCGNNConfig.from_toml(first.config.to_toml()), dtype=torch.float32)
    assert first.config == second.config
    for name, value in first.state_dict().items():
        assert torch.equal(value, second.state_dict()[name])


def test_summary_prints():
    text = str(PHCGNN(**SMALL, share_rule=True).summary())
    for part in (
        "shared rule",
        "node encoder",
        "5 + 3 -> 8",
        "layer 3",
        "edge encoder",
        "pooling: attention",
        "8 -> 6",
    ):
        assert part in text
    assert "constant -> 8" in str(PHCGNN(**{**SMALL, "node_features": None}, node_source="constant").summary())
    assert "pooling" not in str(PHCGNN(**SMALL, task="node").summary())
    assert "n=2, width=8" in repr(PHCGNN(**SMALL))


@pytest.mark.parametrize("aggregation, apart", [("sum", True), ("mean", True), ("softmax", False)])
@pytest.mark.parametrize("edge_features", [7, (3, 4)])
def test_sums_and_means_never_hold_edges_times_width(aggregation, apart, edge_features):
    """With as many edges a node as ogbg-ppa has, no such tensor is made in the whole network, forward or backward."""
    edges, width, nodes = 400, 60, 43
    sizes = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            sizes.extend(leaf.numel() for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor))
            return result

    columns = (edges, 7) if edge_features == 7 else (edges, 2)
    edge_attr = torch.rand(columns) if edge_features == 7 else torch.randint(3, columns)
    model = PHCGNN(
        node_features=None, edge_features=edge_features, n=6, width=width, downstream=(12,), aggregation=aggregation
    )
    with Watch():
        y = model(torch.empty(nodes, 0), torch.randint(nodes, (2, edges)), edge_attr, torch.tensor([0, 20, nodes]))
        forward = len(sizes)
        y.sum().backward()
    assert len(sizes) > forward > 0
    assert (max(sizes) < edges * width) == apart
    assert (max(sizes[forward:]) < edges * width) == apart
