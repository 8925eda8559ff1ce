from __future__ import annotations

import pytest
import torch

from phcgnn.nn import CategoricalEncoder, ContinuousEncoder
from phcgnn.testing import assert_resets_everything, assert_seed_fixes_parameters

ATOM = (119, 4, 12, 12, 10, 6, 6, 2, 2)


def codes(rows, cardinalities, dtype=torch.long):
    return torch.stack([torch.randint(c, (rows,)) for c in cardinalities], 1).to(dtype)


@pytest.mark.parametrize("cardinalities", [(28,), (5, 6, 2), ATOM])
@pytest.mark.parametrize("integers", [torch.uint8, torch.int16, torch.int32, torch.int64])
def test_is_the_sum_of_one_embedding_a_feature(cardinalities, integers, dtype):
    encoder, x = CategoricalEncoder(cardinalities, 16, dtype=dtype), codes(50, cardinalities, integers)
    tables = encoder.weight.split(cardinalities)
    expected = torch.stack([table[x[:, f].long()] for f, table in enumerate(tables)]).sum(0)
    torch.testing.assert_close(encoder(x), expected)
    got = torch.autograd.grad(encoder(x).square().sum(), encoder.weight)[0]
    torch.testing.assert_close(got, torch.autograd.grad(expected.square().sum(), encoder.weight)[0])


def test_one_look_up_whatever_the_number_of_features():
    encoder, x = CategoricalEncoder(ATOM, 16), codes(50, ATOM)
    with torch.profiler.profile(acc_events=True) as profile:
        encoder(x)
    lookups = [event.name for event in profile.events() if event.name == "aten::_embedding_bag"]
    assert len(lookups) == 1
    assert not [event for event in profile.events() if event.name == "aten::index_select"]


def test_shapes():
    encoder = CategoricalEncoder((5, 3), 8)
    assert encoder(torch.zeros(0, 2, dtype=torch.long)).shape == (0, 8)
    assert encoder(torch.zeros(2, 4, 2, dtype=torch.long)).shape == (2, 4, 8)
    assert encoder(torch.zeros(2, dtype=torch.long)).shape == (8,)
    single = CategoricalEncoder((5,), 8)
    assert single(torch.zeros(7, dtype=torch.long)).shape == (7, 8)
    assert single(torch.zeros(7, 1, dtype=torch.bool)).shape == (7, 8)


def test_parameters_and_starts():
    encoder = CategoricalEncoder(ATOM, 200)
    assert sum(p.numel() for p in encoder.parameters()) == 200 * sum(ATOM)
    assert list(encoder.state_dict()) == ["weight"]
    assert_resets_everything(encoder)
    assert_seed_fixes_parameters(lambda: CategoricalEncoder(ATOM, 200))
    first = encoder.weight[:119]
    assert first.abs().max().item() == pytest.approx((6 / 319) ** 0.5, rel=0.01)


def test_materialisation_knows_where_the_tables_begin():
    encoder, x = CategoricalEncoder((5, 3), 8, device="meta").to_empty(device="cpu"), codes(9, (5, 3))
    encoder.reset_parameters()
    torch.testing.assert_close(encoder(x), encoder.weight[x[:, 0]] + encoder.weight[5 + x[:, 1]])
    with pytest.raises(ValueError, match="column 1 holds the value 3"):
        encoder(torch.tensor([[4, 3]]))


def test_moves_and_compiles():
    encoder, x = CategoricalEncoder((5, 3), 8), codes(9, (5, 3))
    torch._dynamo.reset()
    torch.testing.assert_close(torch.compile(encoder, fullgraph=True, backend="aot_eager")(x), encoder(x))
    assert encoder.double()(x).dtype == torch.float64


@pytest.mark.parametrize(
    "value, message",
    [
        (torch.tensor([[0, 0], [4, 3]]), "column 1 holds the value 3, expected 0 to 2; .* 3 categories"),
        (torch.tensor([[-1, 0]]), "column 0 holds the value -1, expected 0 to 4"),
        (torch.tensor([[200, 0]], dtype=torch.uint8), "column 0 holds the value 200"),
        (torch.tensor([[0.0, 0.0]]), r"expected integers, got torch.float32; call `.long\(\)`"),
        (torch.zeros(3, 3, dtype=torch.long), r"shape \(3, 3\), expected \(\*, 2\); one column for each"),
        (torch.zeros((), dtype=torch.long), r"shape \(\)"),
    ],
)
def test_values_that_do_not_fit_are_refused(value, message):
    with pytest.raises((ValueError, TypeError), match=message):
        CategoricalEncoder((5, 3), 8)(value)


def test_the_check_can_be_left_out_for_data_that_was_checked():
    encoder = CategoricalEncoder((5, 3), 8)
    encoder.validate = False
    encoder(torch.tensor([[4, 2]]))
    with pytest.raises((IndexError, RuntimeError)):
        encoder(torch.tensor([[4, 3]]))


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: CategoricalEncoder((), 8), "at least one number"),
        (lambda: CategoricalEncoder(5, 8), "at least one number, got 5"),
        (lambda: CategoricalEncoder((5, 0), 8), "`cardinality` must be at least 1, got 0"),
        (lambda: CategoricalEncoder((5,), 0), "`features` must be at least 1"),
        (lambda: ContinuousEncoder(0, 8), "`in_features` must be at least 1"),
        (lambda: ContinuousEncoder(3, 8)(torch.zeros(5, 4)), r"shape \(5, 4\), expected \(\*, 3\)"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call()


def test_continuous_is_one_linear_map(dtype, tol):
    encoder, x = ContinuousEncoder(3, 8, dtype=dtype), torch.randn(5, 3, dtype=dtype)
    torch.testing.assert_close(encoder(x), x @ encoder.affine.weight.T + encoder.affine.bias, **tol)
    assert encoder(torch.zeros(5, 3, dtype=torch.int8)).dtype == dtype
    assert ContinuousEncoder(1, 8)(torch.randn(6)).shape == (6, 8)
    assert ContinuousEncoder(3, 8)(torch.randn(0, 3)).shape == (0, 8)
    assert_resets_everything(encoder)
    assert "3, 8" in repr(encoder)


@pytest.mark.parametrize("cardinalities", [(5, 3), (40, 30)], ids=["counted", "gathered"])
def test_gradient_of_several_features_is_that_of_one_table_each(cardinalities, dtype, tol):
    encoder = CategoricalEncoder(cardinalities, 16, dtype=dtype)
    x = torch.stack([torch.randint(count, (50,)) for count in cardinalities], dim=1)
    tables = [table.detach().clone().requires_grad_() for table in encoder.weight.split(cardinalities)]
    expected = sum(table[column] for table, column in zip(tables, x.T, strict=True))
    y, cotangent = encoder(x), torch.randn(50, 16, dtype=dtype)
    torch.testing.assert_close(y, expected, **tol)
    (found,) = torch.autograd.grad(y, encoder.weight, cotangent)
    torch.testing.assert_close(found, torch.cat(torch.autograd.grad(expected, tables, cotangent)), **tol)
    torch.testing.assert_close(encoder.one_hot(x) @ encoder.weight, y, **tol)


def test_the_table_is_not_kept_for_its_gradient():
    encoder = CategoricalEncoder([3, 2], 8)
    vectors = encoder(torch.tensor([[0, 1], [2, 0]] * 20))
    (kept,) = vectors._base.grad_fn.saved_tensors if vectors._is_view() else vectors.grad_fn.saved_tensors
    assert kept.dtype == torch.long
