from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch_geometric.nn import aggr

from phcgnn.nn import PHMLP, MultiplicationRule, PHCConv, PHMLinear, PNAAggregation, fold
from phcgnn.testing import (
    assert_batch_equals_one_by_one,
    assert_permutation_equivariant,
    assert_resets_everything,
    assert_seed_fixes_parameters,
)

REDUCE = {
    "sum": lambda m: m.sum(0),
    "mean": lambda m: m.mean(0),
    "min": lambda m: m.amin(0),
    "max": lambda m: m.amax(0),
    "softmax": lambda m: (m.softmax(0) * m).sum(0),
}


def graph(nodes=7, edges=15, width=8, dtype=torch.float32):
    edge_index = torch.randint(nodes, (2, edges))
    edge_index[1][edge_index[1] == 2] = 3  # node 2 hears nobody
    return torch.randn(nodes, width, dtype=dtype), edge_index, torch.randn(edges, width, dtype=dtype)


def literal(conv, reduce, x, edge_index, edge_attr, activation=lambda m: m):
    """Eq. (12)-(13), node by node."""
    received = []
    for v in range(len(x)):
        messages = [
            activation(x[edge_index[0, e]] + (0 if edge_attr is None else edge_attr[e]))
            for e in range(edge_index.shape[1])
            if edge_index[1, e] == v
        ]
        received.append(reduce(torch.stack(messages)) if messages else torch.zeros_like(x[v]))
    return conv.transform(x + torch.stack(received))


@pytest.mark.parametrize("aggregation", REDUCE)
@pytest.mark.parametrize("mlp", [True, False])
@pytest.mark.parametrize("edges", [True, False])
def test_equals_the_formula_node_by_node(aggregation, mlp, edges, dtype, tol):
    conv = PHCConv(8, 12, n=4, aggregation=aggregation, mlp=mlp, dtype=dtype).eval()
    x, edge_index, edge_attr = graph(dtype=dtype)
    edge_attr = edge_attr if edges else None
    expected = literal(conv, REDUCE[aggregation], x, edge_index, edge_attr)
    torch.testing.assert_close(conv(x, edge_index, edge_attr), expected, **tol)
    assert isinstance(conv.transform, PHMLP if mlp else PHMLinear)


@pytest.mark.parametrize("aggregation", ["sum", "mean", "max"])
@pytest.mark.parametrize("activation", ["relu", torch.tanh])
def test_message_activation(aggregation, activation):
    conv = PHCConv(8, 8, n=2, aggregation=aggregation, message_activation=activation).eval()
    function = torch.relu if activation == "relu" else activation
    x, edge_index, edge_attr = graph()
    expected = literal(conv, REDUCE[aggregation], x, edge_index, edge_attr, function)
    torch.testing.assert_close(conv(x, edge_index, edge_attr), expected)
    assert not conv.sums


@pytest.mark.parametrize("aggregation", ["sum", "mean"])
def test_summing_apart_equals_gathering_with_gradients(aggregation):
    conv = PHCConv(8, 8, n=2, aggregation=aggregation).double()
    x, edge_index, edge_attr = graph(dtype=torch.float64)
    x.requires_grad_()
    edge_attr.requires_grad_()
    assert conv.sums
    fast = conv(x, edge_index, edge_attr)
    plain = conv.combine(x, conv.gather_neighbours(x, edge_index, edge_attr))
    torch.testing.assert_close(fast, plain)
    inputs = [x, edge_attr, *conv.parameters()]
    cotangent = torch.randn_like(fast)
    for a, b in zip(
        torch.autograd.grad(fast, inputs, cotangent), torch.autograd.grad(plain, inputs, cotangent), strict=True
    ):
        torch.testing.assert_close(a, b, atol=1e-10, rtol=1e-8)


@pytest.mark.parametrize(
    "aggregation",
    [
        *REDUCE,
        "std",
        "median",
        "power-mean",
        "attentional",
        "deep-sets",
        "set-transformer",
        aggr.MulAggregation(),
        aggr.MultiAggregation(["mean", "max"], mode="proj", mode_kwargs={"in_channels": 8, "out_channels": 8}),
        PNAAggregation(8, n=2, degrees=[1, 3, 2]),
    ],
    ids=str,
)
def test_any_aggregation_is_equivariant_and_local(aggregation):
    conv = PHCConv(8, 8, n=2, aggregation=copy.deepcopy(aggregation)).eval()

    def call(x, edge_index, edge_attr, ptr):
        return conv(x, edge_index, edge_attr)

    x, edge_index, edge_attr = graph()
    assert_permutation_equivariant(call, x, edge_index, edge_attr)
    assert_batch_equals_one_by_one(call, [graph(5, 9), graph(1, 0), graph(4, 3)])


@pytest.mark.parametrize("aggregation", ["sum", "max", "softmax", "lstm", "set-transformer"])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("nodes", [1, 4])
def test_no_edges(aggregation, training, nodes):
    conv = PHCConv(8, 8, n=2, aggregation=aggregation).train(training)
    x, edge_index = torch.randn(nodes, 8), torch.empty(2, 0, dtype=torch.long)
    y = conv(x, edge_index)
    assert y.isfinite().all()
    y.sum().backward()


@pytest.mark.parametrize("aggregation", ["lstm", "gru", "lcm"])
def test_a_recurrent_aggregation_does_not_hear_of_other_graphs(aggregation):
    conv = PHCConv(8, 8, n=2, aggregation=aggregation).eval()
    graphs = [graph(5, 9), graph(1, 0), graph(4, 3), graph(4, 20)]
    assert_batch_equals_one_by_one(lambda x, edge_index, edge_attr, ptr: conv(x, edge_index, edge_attr), graphs)


def test_unsorted_edges_where_the_aggregation_wants_them_sorted():
    conv = PHCConv(8, 8, n=2, aggregation=aggr.LSTMAggregation(8, 8)).eval()
    x, edge_index, edge_attr = graph()
    order = edge_index[1].argsort(stable=True)
    torch.testing.assert_close(conv(x, edge_index, edge_attr), conv(x, edge_index[:, order], edge_attr[order]))


def test_explanations_see_the_messages():
    """PyG's explainers and hooks work on messages: they must exist then."""
    conv = PHCConv(8, 8, n=2).eval()
    x, edge_index, edge_attr = graph()
    expected, seen = conv(x, edge_index, edge_attr), []
    handle = conv.register_message_forward_hook(lambda module, inputs, output: seen.append(output))
    torch.testing.assert_close(conv(x, edge_index, edge_attr), expected)
    assert seen[0].shape == (15, 8)
    handle.remove()
    assert conv.sums
    conv.explain = True
    assert not conv.sums


def test_rule_norm_activation_and_fold():
    rule = MultiplicationRule("quaternion")
    conv = PHCConv(8, 12, rule=rule, norm=None, activation="tanh", bias=False).eval()
    assert conv.transform.linear1.rule is conv.transform.linear2.rule is rule
    assert isinstance(conv.transform.norm, nn.Identity)
    assert conv.transform.linear1.bias is None
    x, edge_index, edge_attr = graph()
    torch.testing.assert_close(fold(conv)(x, edge_index, edge_attr), conv(x, edge_index, edge_attr))


def test_starts():
    assert_seed_fixes_parameters(lambda: PHCConv(8, 8, n=2, aggregation="softmax"))
    assert_resets_everything(PHCConv(8, 8, n=2, aggregation="softmax"))
    assert_resets_everything(PHCConv(8, 8, n=2, aggregation=PNAAggregation(8, n=2, degrees=[0, 1]), mlp=False))


def test_repr_and_state():
    conv = PHCConv(8, 12, n=4, aggregation="softmax")
    assert "8, 12, n=4" in repr(conv)
    other = PHCConv(8, 12, n=4, aggregation="softmax")
    other.load_state_dict(conv.state_dict())
    x, edge_index, edge_attr = graph()
    torch.testing.assert_close(conv.eval()(x, edge_index, edge_attr), other.eval()(x, edge_index, edge_attr))


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: PHCConv(9, 8, n=2), "`in_features` must be a multiple of n=2"),
        (lambda: PHCConv(8, 8, aggregation="summ"), "unknown aggregation 'summ'"),
        (lambda: PHCConv(8, 8)(torch.ones(3, 4), torch.zeros(2, 1).long()), r"`x` has shape \(3, 4\).*\(V, 8\)"),
        (lambda: PHCConv(8, 8)(torch.ones(3, 8), torch.zeros(3, 2).long()), r"`edge_index` .*has shape \(3, 2\)"),
        (lambda: PHCConv(8, 8)(torch.ones(3, 8), torch.zeros(2, 1)), r"`edge_index` \(torch.float32\)"),
        (
            lambda: PHCConv(8, 8)(torch.ones(3, 8), torch.tensor([[0, 1], [1, 3]])),
            r"holds the node 3 at \[1, 1\].* 0 to 2",
        ),
        (lambda: PHCConv(8, 8)(torch.ones(3, 8), torch.tensor([[0, -1], [1, 2]])), r"holds the node -1 at \[0, 1\]"),
        (
            lambda: PHCConv(8, 8)(torch.ones(3, 8), torch.zeros(2, 1).long(), torch.ones(1, 7)),
            r"`edge_attr` has shape \(1, 7\), expected \(1, 8\); embed the edges' features",
        ),
        (
            lambda: PHCConv(8, 8, aggregation=aggr.Set2Set(8, 1))(torch.ones(3, 8), torch.tensor([[0, 1], [1, 2]])),
            r"Set2Set.* has shape \(3, 16\), expected \(3, 8\); the aggregation must keep the width",
        ),
    ],
)
def test_bad_input(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call()


def test_the_check_of_the_nodes_can_be_left_out():
    conv, (x, edge_index, edge_attr) = PHCConv(8, 8, n=2, aggregation="max").eval(), graph()
    expected = conv(x, edge_index, edge_attr)
    conv.validate = False
    torch.testing.assert_close(conv(x, edge_index, edge_attr), expected)
    with pytest.raises(IndexError):
        conv(x, edge_index + 99, edge_attr)


@pytest.mark.parametrize("aggregation", ["sum", "mean", "max", "std", "softmax", "pna"])
@pytest.mark.parametrize("activation", [None, "relu"])
def test_a_node_with_a_thousand_neighbours_in_bfloat16(aggregation, activation):
    """bfloat16 counts to 256: neither the degree nor a sum may be taken in it."""
    if aggregation == "pna":
        aggregation = PNAAggregation(8, 2, degrees=[0] * 1000 + [1])
    conv = PHCConv(8, 8, 2, aggregation=aggregation, message_activation=activation, mlp=False).eval()
    x, edge_attr = torch.rand(1001, 8), torch.rand(1000, 8)
    edge_index = torch.stack([torch.arange(1, 1001), torch.zeros(1000, dtype=torch.long)])
    expected = conv(x, edge_index, edge_attr)[0]
    hub = copy.deepcopy(conv).bfloat16()(x.bfloat16(), edge_index, edge_attr.bfloat16())[0]
    assert hub.dtype == torch.bfloat16
    assert (hub.float() - expected).norm() < 0.03 * expected.norm()
