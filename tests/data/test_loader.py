from __future__ import annotations

import copy
import json
import logging
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from phcgnn.data import GraphStore, PaddedShape
from phcgnn.data.batching import real_graphs, unpad

from .conftest import make_graphs, make_metadata


def big(count: int = 101) -> GraphStore:
    graphs = make_graphs(count)
    for number, data in enumerate(graphs):
        data.pos = torch.full((len(data.x), 1), float(number))  # tells which graph a node came from
        data.y = torch.tensor([[number % 2, number % 3 == 0]]).float()
    splits = {"train": torch.arange(0, count, 2), "test": torch.tensor([], dtype=torch.int64)}
    store = GraphStore.from_pyg(graphs, metadata=make_metadata(), splits=splits)
    store.weights = torch.arange(float(count))  # tells which graphs a batch holds
    return store


STORE = big()


def held(batches) -> list[list[int]]:
    """Which graphs each batch holds, ghosts left out."""
    return [(b.weight[b.graph_mask] if "graph_mask" in b else b.weight).int().tolist() for b in batches]


def flat(lists):
    return [item for part in lists for item in part]


@pytest.mark.parametrize("batch_size", [1, 7, 101, 500])
@pytest.mark.parametrize("drop_last", [True, False])
@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("pad", [True, False])
def test_an_epoch_visits_every_graph_once(batch_size, drop_last, shuffle, pad):
    loader = STORE.loader(batch_size, shuffle=shuffle, drop_last=drop_last, pad=pad, generator=0)
    planned = [index.tolist() for index in loader.indices()]
    count = len(loader)
    epoch = held(loader)
    assert epoch == planned
    assert len(epoch) == count
    seen = flat(epoch)
    assert len(seen) == len({*seen})
    if not drop_last:
        assert sorted(seen) == list(range(101))
    elif not pad:
        assert len(seen) == 101 // batch_size * batch_size
    if not shuffle:
        assert seen == list(range(len(seen)))
    if not pad:
        assert all(len(part) == batch_size for part in epoch[:-1])


def test_epochs_differ_and_one_seed_repeats_them():
    first, second = (STORE.loader(10, shuffle=True, generator=3) for _ in range(2))
    epochs = [held(first) for _ in range(3)]
    assert epochs == [held(second) for _ in range(3)]
    assert epochs[0] != epochs[1] != epochs[2]
    assert held(STORE.loader(10, shuffle=True, generator=4)) != epochs[0]


def test_generators_and_the_global_seed():
    def run(generator):
        return held(STORE.loader(10, shuffle=True, generator=generator))

    assert run(torch.Generator().manual_seed(5)) == run(torch.Generator().manual_seed(5))
    torch.manual_seed(1)
    one = run(None)
    assert run(None) != one
    torch.manual_seed(1)
    assert run(None) == one
    shared = torch.Generator().manual_seed(5)
    assert run(shared) != run(shared)


def test_without_shuffle_torchs_generator_is_left_alone():
    torch.manual_seed(1)
    before = torch.get_rng_state()
    list(STORE.loader(10))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("pad", [True, False])
@pytest.mark.parametrize("stop", [0, 1, 6, 10, 11])
def test_a_state_resumes_the_exact_remaining_batches(shuffle, pad, stop):
    def make(seed):
        return STORE.loader(10, shuffle=shuffle, generator=seed, pad=pad)

    loader = make(0)
    list(loader)  # a whole epoch before
    seen = []
    state = loader.state_dict()
    for batch in loader:
        if len(seen) == stop:
            break
        seen += held([batch])
        state = loader.state_dict()
    state = json.loads(json.dumps(state))  # a checkpoint may be text
    whole = make(0)
    list(whole)
    expected = [held(whole), held(whole)]
    resumed = make(99)
    resumed.load_state_dict(state)
    assert seen + held(resumed) == expected[0]
    assert held(resumed) == expected[1]


def test_a_state_of_a_finished_epoch_starts_the_next():
    loader, other = (STORE.loader(10, shuffle=True, generator=0) for _ in range(2))
    list(loader)
    other.load_state_dict(loader.state_dict())
    assert held(other) == held(loader)


def test_an_epoch_that_is_broken_off_is_over():
    loader, whole = (STORE.loader(10, shuffle=True, generator=0) for _ in range(2))
    next(iter(loader))
    list(whole)
    assert held(loader) == held(whole)


def test_two_iterations_at_once_are_refused_and_not_mixed(store):
    loader = store.loader(2)
    first = iter(loader)
    next(first)
    assert len(list(loader)) == len(loader)
    with pytest.raises(RuntimeError, match="a later iteration of this loader has begun"):
        next(first)
    assert len(list(loader)) == len(loader)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"batch_size": 11}, "batch_size is 11, was 10"),
        ({"shuffle": False}, "shuffle is False, was True"),
        ({"drop_last": True}, "drop_last is True, was False"),
        ({"split": "train"}, "graphs is 51, was 101"),
        ({"pad": True}, "shape is .* was None"),
        ({"world_size": 2}, "world_size is 2, was 1"),
    ],
)
def test_a_state_of_another_loader_is_refused(change, message):
    settings = {"batch_size": 10, "shuffle": True, "generator": 0}
    state = STORE.loader(**settings).state_dict()
    with pytest.raises(ValueError, match=f"belongs to another loader: .*{message}"):
        STORE.loader(**{**settings, **change}).load_state_dict(state)


def test_splits():
    assert sorted(flat(held(STORE.loader(7, split="train", shuffle=True)))) == list(range(0, 101, 2))
    assert flat(held(STORE.loader(7, split=torch.tensor([5, 3, -1])))) == [5, 3, 100]
    for pad in (True, False):
        empty = STORE.loader(7, split="test", pad=pad)
        assert len(empty) == 0
        assert list(empty) == []
    with pytest.raises(ValueError, match=r"there is no split 'valid' in 'small'; it has train, test"):
        STORE.loader(7, split="valid")


@pytest.mark.parametrize("pad", [True, False])
@pytest.mark.parametrize("world_size", [1, 2, 3, 20])
@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("drop_last", [True, False])
def test_ranks_share_one_epoch(pad, world_size, shuffle, drop_last):
    settings = {"shuffle": shuffle, "generator": 0, "pad": pad, "drop_last": drop_last}
    whole = held(STORE.loader(10, **settings))
    parts = [held(STORE.loader(10, **settings, rank=rank, world_size=world_size)) for rank in range(world_size)]
    lengths = {len(part) for part in parts}
    rounds = math.ceil(len(whole) / world_size)
    dealt = [parts[i % world_size][i // world_size] for i in range(sum(map(len, parts)))]
    if shuffle and not pad and world_size > 1:
        together = held(STORE.loader(10 * world_size, **settings))
        steps = [flat(step) for step in zip(*parts, strict=True)]
        assert flat(steps) == flat(together)
        assert steps[:-1] == together[: len(steps) - 1]  # the last may have taken in the rest
        assert all(max(map(len, step)) - min(map(len, step)) <= 1 for step in zip(*parts, strict=True))
    elif not shuffle:
        assert dealt == whole
        assert max(lengths) - min(lengths) <= 1
    elif drop_last:
        assert lengths == {len(whole) // world_size}
        assert dealt == whole[: len(dealt)]
    else:
        assert lengths == {rounds}
        assert dealt == [whole[i % len(whole)] for i in range(rounds * world_size)]


def test_a_state_of_one_rank_serves_all():
    def make(rank):
        return STORE.loader(10, shuffle=True, generator=0, rank=rank, world_size=2)

    first = make(0)
    running = iter(first)
    next(running)
    state = first.state_dict()
    other = make(1)
    expected = held(make(1))
    other.load_state_dict(copy.deepcopy(state))
    assert held(other) == expected[1:]


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("batch_size", [1, 2, 10, 101, 300])
def test_padded_batches_have_one_shape(batch_size, shuffle):
    loader = STORE.loader(batch_size, shuffle=shuffle, generator=0, pad=True, csr=True)
    for _ in range(3):
        shapes = {
            (b.num_graphs, b.num_nodes, b.num_edges, len(b.y), len(b.ptr), len(b.rowptr), len(b.node_mask))
            for b in loader
        }
        s = loader.shape
        assert shapes == {(s.graphs, s.nodes, s.edges, s.graphs, s.graphs + 1, s.nodes + 1, s.nodes)}
    assert s.graphs == batch_size + 1
    assert s.nodes % 8 == 0
    assert s.edges % 8 == 0


def test_the_shape_wastes_little():
    store = GraphStore.from_pyg(make_graphs(2000), metadata=make_metadata())
    loader = store.loader(128, shuffle=True, generator=0, pad=True)
    mean = len(store.x) / len(store) * 128
    assert mean < loader.shape.nodes < 1.4 * mean


@settings(max_examples=40)
@given(st.lists(st.integers(0, 60), min_size=1, max_size=60), st.integers(1, 70), st.integers(0, 5))
def test_padding_never_fails(sizes, batch_size, seed):
    """However uneven the graphs, every one is visited once, in batches of one shape."""
    import numpy as np

    from phcgnn.data import FlatGraphs, StoreMetadata

    counts = np.array(sizes)
    loops = np.concatenate([np.arange(n) for n in sizes] or [[]]).astype(np.int32)
    chunk = FlatGraphs(
        x=np.empty((counts.sum(), 0)),
        node_counts=counts,
        edge_index=np.stack([loops, loops]),
        edge_attr=np.empty((counts.sum(), 0)),
        edge_counts=counts,
    )
    metadata = StoreMetadata(
        name="s", task="regression", targets=(), metric="mae", node_features=None, edge_features=None
    )
    weights = torch.arange(float(len(sizes)))
    store = GraphStore.from_flat([chunk], metadata=metadata, y=None, splits=None, weights=weights)
    for shape in (True, PaddedShape(batch_size + 1, max(sizes) + 1, max(sizes))):
        loader = store.loader(batch_size, shuffle=True, generator=seed, pad=shape)
        batches = list(loader)
        assert sorted(flat(held(batches))) == list(range(len(sizes)))
        assert {b.num_nodes for b in batches} == {loader.shape.nodes}
        assert {b.num_edges for b in batches} == {loader.shape.edges}
        assert all(len(part) <= batch_size for part in held(batches))


def test_another_loaders_shape_can_be_used():
    train = STORE.loader(10, shuffle=True, generator=0, pad=True)
    test = STORE.loader(10, pad=train.shape)
    assert {b.num_nodes for b in test} == {train.shape.nodes}


@pytest.mark.parametrize(
    "options, error, message",
    [
        ({"batch_size": 0}, ValueError, "`batch_size` must be at least 1, got 0"),
        ({"batch_size": 2.0}, TypeError, "`batch_size` must be an int, got 2.0"),
        ({"world_size": 0}, ValueError, "`world_size` must be at least 1"),
        ({"rank": 2, "world_size": 2}, ValueError, "`rank` must be from 0 to world_size - 1 = 1, got 2"),
        ({"shuffle": True, "world_size": 2}, ValueError, "needs a `generator` with the same seed on every rank"),
        ({"pad": (3, 4)}, TypeError, "`pad` must be a bool or a PaddedShape, got"),
        ({"pad": PaddedShape(11, 3, 300)}, ValueError, "`pad` must be at least .* which the largest graph needs"),
        ({"pad": PaddedShape(10, 300, 300)}, ValueError, "`pad` must be at least"),
        ({"split": [200]}, IndexError, "index 200 is out of range"),
    ],
)
def test_wrong_settings_are_refused(options, error, message):
    with pytest.raises(error, match=message):
        STORE.loader(**{"batch_size": 10, **options})


def test_options_reach_the_batch():
    batch = next(iter(STORE.loader(10, compact=True, csr=True)))
    assert batch.x.dtype == torch.int16
    assert "rowptr" in batch
    assert "node_mask" not in batch
    plain = next(iter(STORE.loader(10)))
    assert plain.x.dtype == torch.int64
    assert "rowptr" not in plain


def test_repr():
    assert repr(STORE.loader(10, shuffle=True)) == "GraphLoader(101 graphs, batch_size=10, shuffle=True)"
    text = repr(STORE.loader(10, pad=True, rank=1, world_size=2))
    assert "shape=PaddedShape(graphs=11" in text
    assert "rank=1 of 2" in text


def test_fewer_graphs_than_ranks():
    parts = [
        held(STORE.loader(4, shuffle=True, generator=0, split=torch.tensor([3, 5]), rank=rank, world_size=5))
        for rank in range(5)
    ]
    assert [len(part) for part in parts] == [1] * 5
    assert all(len(part[0]) == 1 for part in parts)
    joined = [
        held(STORE.loader(2, shuffle=True, generator=0, split=torch.arange(9), rank=rank, world_size=2))
        for rank in range(2)
    ]
    assert [[len(batch) for batch in part] for part in joined] == [[2, 3], [2, 2]]


def test_drawing_by_weight():
    members = torch.arange(10)
    weights = torch.tensor([0.0] * 8 + [1.0, 3.0])
    loader = STORE.loader(5, shuffle=True, generator=0, split=members, draw=weights)
    drawn = torch.cat([torch.cat(loader.indices()) for _ in range(200) if list(loader) is not None])
    assert len(drawn) == 2000
    assert set(drawn.tolist()) == {8, 9}
    assert abs((drawn == 9).double().mean() - 0.75) < 0.05
    for draw, message in [(weights[:3], "shape"), (weights * 0, "not all of them 0"), (-weights, "at least 0")]:
        with pytest.raises(ValueError, match=message):
            STORE.loader(5, shuffle=True, split=members, draw=draw)
    with pytest.raises(ValueError, match="needs shuffle=True"):
        STORE.loader(5, split=members, draw=weights)


def test_the_shape_leaves_room_for_what_is_drawn(caplog):
    sizes = STORE.node_ptr.diff().double()
    large = (sizes == sizes.max()).double()
    members = torch.arange(len(STORE))
    options = {"shuffle": True, "generator": 0, "split": members, "pad": True, "cut": False}
    evenly, drawn = STORE.loader(50, **options), STORE.loader(50, draw=0.01 + large, **options)
    assert evenly.shape.nodes < drawn.shape.nodes
    with caplog.at_level(logging.INFO, "phcgnn"):
        assert all("sizes" in batch for _ in range(3) for batch in drawn)
    assert not caplog.records
    one = STORE.loader(8, draw=(members == 3).double(), **options)  # the same graph, over and over
    assert one.shape.nodes >= 8 * int(sizes[3]) + 1
    assert all("sizes" in batch for batch in one)


def test_many_batches_that_do_not_fit_are_said_once(caplog):
    shape = STORE.loader(8, pad=True).shape
    narrow = PaddedShape(9, shape.nodes * 11 // 20, shape.edges)
    loader = STORE.loader(8, pad=narrow, cut=False, shuffle=True, generator=0)
    with caplog.at_level(logging.INFO, "phcgnn"):
        over = sum("sizes" not in batch for batch in loader)
        assert len(list(loader)) == 13
    assert over > 1
    assert caplog.messages == [
        f"{over} of 13 batches of an epoch have more nodes or edges than {narrow!r}; they are not padded, and take the "
        "plain step"
    ]


@pytest.mark.parametrize("world_size", [1, 3])
def test_without_cuts_batches_are_those_without_padding(world_size):
    options = {"shuffle": True, "generator": 3, "world_size": world_size, "rank": world_size - 1}
    plain = STORE.loader(8, **options)
    shape = STORE.loader(8, pad=True).shape
    narrow = PaddedShape(9, shape.nodes * 11 // 20, shape.edges)
    padded = STORE.loader(8, pad=narrow, cut=False, csr=True, **options)
    kinds = set()
    for _ in range(2):
        for expected, batch in zip(plain, padded, strict=True):
            kinds.add("sizes" in batch)
            assert real_graphs(batch) == expected.num_graphs == real_graphs(expected)
            if "sizes" not in batch:
                assert expected.num_nodes >= narrow.nodes
                found = batch
            else:
                assert (batch.num_graphs, batch.num_nodes, batch.num_edges) == (9, narrow.nodes, narrow.edges)
                found = unpad(batch)
            for name in ("x", "edge_index", "edge_attr", "y", "pos", "weight", "batch", "ptr"):
                torch.testing.assert_close(found[name], expected[name], equal_nan=True, rtol=0, atol=0)
            assert len(found.rowptr) == expected.num_nodes + 1
            assert found.num_graphs == expected.num_graphs
    assert kinds == {True, False}


def test_a_run_goes_on_with_or_without_padding():
    plain = STORE.loader(8, shuffle=True, generator=3)
    padded = STORE.loader(8, shuffle=True, generator=3, pad=True, cut=False)
    for _ in zip(range(4), plain, strict=False):
        pass
    padded.load_state_dict(plain.state_dict())
    assert held(padded)[0] == plain.indices()[plain.position].tolist()
    with pytest.raises(ValueError, match="shape is"):
        STORE.loader(8, shuffle=True, generator=3, pad=True).load_state_dict(plain.state_dict())
