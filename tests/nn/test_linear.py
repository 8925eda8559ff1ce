from __future__ import annotations

import copy
import io
import pickle
import shutil

import numpy as np
import pytest
import torch
from torch import nn

from phcgnn.algebra import Algebra
from phcgnn.functional import kronecker_sum
from phcgnn.nn import MultiplicationRule, PHMLinear
from phcgnn.testing import (
    assert_equals_kronecker_sum,
    assert_never_stale,
    assert_resets_everything,
    assert_seed_fixes_parameters,
)

cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("terms", [None, 1, 6])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("learn_rule", [True, False])
def test_equals_explicit_kronecker_sum(n, terms, bias, learn_rule, dtype, tol):
    layer = PHMLinear(2 * n, 3 * n, n=n, terms=terms, bias=bias, learn_rule=learn_rule, dtype=dtype)
    if bias:
        nn.init.normal_(layer.bias)
    assert_equals_kronecker_sum(layer, **tol)
    with torch.no_grad():
        assert_equals_kronecker_sum(layer.eval(), **tol)


@pytest.mark.parametrize("n, product", [(2, "complex"), (4, "quaternion")])
def test_start_multiplies_like_the_algebra(n, product):
    """n=2 against torch.complex by way of test_algebra, n=4 against Hamilton's table: one channel, no bias."""
    layer = PHMLinear(n, n, n=n, bias=False)
    x = torch.randn(6, n)
    expected = Algebra.named(product).product(layer.weight.view(n).expand(6, n), x)
    torch.testing.assert_close(layer(x), expected)


def test_complex_channels_are_complex_matrix_products():
    layer = PHMLinear(6, 10, n=2, bias=False)
    x = torch.randn(7, 6)
    weight, z = torch.complex(*layer.weight), torch.complex(x[:, :3], x[:, 3:])
    y = z @ weight.T
    torch.testing.assert_close(layer(x), torch.cat([y.real, y.imag], dim=1))


def test_n_equal_one_is_a_linear_layer_with_a_scalar():
    layer = PHMLinear(5, 7, n=1)
    assert layer.rule.constants.tolist() == [[[1.0]]]
    linear = layer.to_linear()
    assert torch.equal(linear.weight, layer.weight[0])


@pytest.mark.parametrize("shape", [(8,), (0, 8), (3, 8), (2, 3, 8), (2, 0, 3, 8)])
def test_any_leading_dimensions(shape):
    layer = PHMLinear(8, 12, n=4)
    assert layer(torch.randn(shape)).shape == (*shape[:-1], 12)


def test_parameter_count():
    count = sum(p.numel() for p in PHMLinear(32, 64, n=4).parameters())
    assert count == 4**3 + 32 * 64 // 4 + 64
    assert sum(p.numel() for p in PHMLinear(32, 64, n=4, terms=3).parameters()) == 3 * 16 + 3 * 8 * 16 + 64


def test_gradcheck():
    layer = PHMLinear(4, 6, n=2).double()
    parameters = dict(layer.named_parameters())

    def call(x, *values):
        return torch.func.functional_call(layer, dict(zip(parameters, values, strict=True)), (x,))

    inputs = (torch.randn(3, 4, dtype=torch.float64, requires_grad=True), *parameters.values())
    assert torch.autograd.gradcheck(call, inputs)


# ------------------------------------------------------------------------------------------ rules and resets


def test_shared_rule_is_one_parameter():
    rule = MultiplicationRule("quaternion")
    first, second = PHMLinear(8, 8, rule=rule), PHMLinear(8, 4, rule=rule)
    assert first.rule.constants is second.rule.constants
    model = nn.Sequential(first, second)
    assert sum(p.numel() for p in model.parameters()) == 64 + 16 + 8 + 8 + 4
    model(torch.randn(2, 8)).sum().backward()
    assert rule.constants.grad.abs().sum() > 0


def test_reset_leaves_a_rule_that_is_not_its_own():
    rule = MultiplicationRule("quaternion")
    layer = PHMLinear(8, 8, rule=rule)
    with torch.no_grad():
        rule.constants.fill_(3)
    layer.reset_parameters()
    assert (rule.constants == 3).all()
    own = PHMLinear(8, 8, rule=Algebra.named("quaternion"))
    with torch.no_grad():
        own.rule.constants.fill_(3)
    own.reset_parameters()
    assert torch.equal(own.rule.constants.double(), Algebra.named("quaternion").constants)


def test_frozen_rule_is_a_buffer():
    layer = PHMLinear(8, 8, n=4, learn_rule=False)
    assert "rule.constants" in dict(layer.named_buffers())
    assert [name for name, _ in layer.named_parameters()] == ["weight", "bias"]
    assert "rule.constants" in layer.state_dict()
    frozen = layer.rule.constants.clone()
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    layer(torch.randn(3, 8)).square().sum().backward()
    optimizer.step()
    assert torch.equal(layer.rule.constants, frozen)


@pytest.mark.parametrize("rule_start", ["auto", "cyclic", "uniform", "quaternion", Algebra.clifford(1, 1)])
@pytest.mark.parametrize("weight_start", ["phm", "phm-he", "glorot", "he", "folded-glorot", "folded-he"])
def test_resets_and_seeds(rule_start, weight_start):
    def factory():
        return PHMLinear(8, 12, n=4, rule_start=rule_start, weight_start=weight_start)

    assert_resets_everything(factory())
    assert_seed_fixes_parameters(factory)
    torch.manual_seed(3)
    layer = factory()
    state = copy.deepcopy(layer.state_dict())
    torch.manual_seed(3)
    layer.reset_parameters()
    for name, value in layer.state_dict().items():
        assert torch.equal(value, state[name]), name


def test_state_dict_round_trip():
    first, second = PHMLinear(8, 12, n=4), PHMLinear(8, 12, n=4, rule_start="uniform")
    second.load_state_dict(first.state_dict())
    x = torch.randn(3, 8)
    assert torch.equal(first(x), second(x))


def test_a_callable_weight_start_is_used():
    def fill(weight, constants):
        assert constants.shape == (2, 2, 2)
        weight.fill_(7)

    assert (PHMLinear(4, 4, n=2, weight_start=fill).weight == 7).all()


# ------------------------------------------------------------------------------------------ the kept weight


@pytest.mark.parametrize("learn_rule", [True, False])
def test_never_stale(learn_rule, dtype, uncompared):
    layer = PHMLinear(8, 12, n=4, learn_rule=learn_rule, dtype=dtype)
    assert_never_stale(layer, torch.randn(3, 8, dtype=dtype), uncounted=not uncompared)


def output(layer, x):
    """What the layer must compute, whatever it keeps."""
    return torch.nn.functional.linear(x, layer.dense_weight(), layer.bias)


@pytest.fixture
def built(monkeypatch):
    """Counts how often the dense weight is built."""
    calls = []

    def counting(constants, weight):
        calls.append(1)
        return kronecker_sum(constants, weight)

    monkeypatch.setattr("phcgnn.nn.linear.kronecker_sum", counting)
    return calls


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_built_once_outside_training(built, context):
    layer, x = PHMLinear(8, 12, n=4).eval(), torch.randn(3, 8)
    with context():
        for _ in range(3):
            layer(x)
    assert len(built) == 1


def test_built_once_for_frozen_parameters_even_with_gradients_to_the_input(built):
    layer, x = PHMLinear(8, 12, n=4).eval().requires_grad_(False), torch.randn(3, 8, requires_grad=True)
    with torch.inference_mode():
        layer(torch.randn(3, 8))
    for _ in range(3):
        layer(x).sum().backward()
    assert len(built) == 1
    torch.testing.assert_close(x.grad, 3 * layer.dense_weight().sum(0).expand(3, 8))


def test_built_each_time_in_training_and_where_autograd_needs_it(built):
    layer, x = PHMLinear(8, 12, n=4), torch.randn(3, 8)
    with torch.no_grad():
        layer(x)
        layer(x)
    assert len(built) == 2
    layer.eval()
    layer(x).sum().backward()
    assert layer.weight.grad is not None
    assert layer.rule.constants.grad is not None
    layer(x).sum().backward()
    assert len(built) == 4


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "sgd-foreach": lambda p: torch.optim.SGD(p, lr=0.1, foreach=True),
    "adam": lambda p: torch.optim.Adam(p, lr=0.1),
    "adam-foreach": lambda p: torch.optim.Adam(p, lr=0.1, foreach=True),
    "adam-fused": lambda p: torch.optim.Adam(p, lr=0.1, fused=True),
}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_follows_an_optimizer_step_without_a_change_of_mode(optimizer, uncompared):
    layer, x = PHMLinear(8, 12, n=4).eval(), torch.randn(3, 8)
    step = OPTIMIZERS[optimizer](layer.parameters())
    for _ in range(3):
        with torch.no_grad():
            before = layer(x)
        layer(x).square().sum().backward()
        step.step()
        with torch.no_grad():
            after = layer(x)
            torch.testing.assert_close(after, x @ layer.dense_weight().T + layer.bias)
        assert not torch.equal(before, after)


def test_a_compiled_optimizer_step_is_followed_and_compiled_once(uncompared):
    from torch._dynamo.testing import CompileCounterWithBackend

    torch._dynamo.reset()
    layer, x = PHMLinear(8, 12, n=4).eval(), torch.randn(3, 8)
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.1)
    counts = CompileCounterWithBackend("aot_eager")
    step = torch.compile(optimizer.step, backend=counts)
    frames = []
    for _ in range(4):
        layer(x).square().sum().backward()
        with torch.no_grad():
            before = layer(x)
            step()
            assert not torch.equal(layer(x), before)
            torch.testing.assert_close(layer(x), output(layer, x))
        frames.append(counts.frame_count)
    assert frames[0] == frames[-1]


@pytest.mark.parametrize("of", ["weight", "rule.constants"])
def test_follows_temporaries_that_take_the_place_of_others(of, uncompared):
    """A tensor that is gone leaves its id and its address to the next one."""
    layer, x = PHMLinear(8, 8, n=4).eval(), torch.randn(3, 8)
    value = layer.get_parameter(of).detach()
    with torch.no_grad():
        for scale in range(20):
            y = torch.func.functional_call(layer, {of: value * scale}, (x,))
            torch.testing.assert_close(y - layer.bias, scale * (output(layer, x) - layer.bias), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("of", ["weight", "constants"])
def test_follows_a_parametrization(of, uncompared):
    class Scale(nn.Module):
        factor = 1.0

        def forward(self, value):
            return value * self.factor

    layer, x, scale = PHMLinear(8, 8, n=4).eval(), torch.randn(3, 8), Scale()
    nn.utils.parametrize.register_parametrization(layer if of == "weight" else layer.rule, of, scale)
    with torch.no_grad():
        for factor in range(20):
            scale.factor = float(factor)
            torch.testing.assert_close(layer(x), output(layer, x))


def test_follows_parameters_and_rules_that_are_replaced(uncompared):
    layer, x = PHMLinear(8, 8, n=4).eval(), torch.randn(3, 8)
    with torch.no_grad():
        for _ in range(20):
            layer.weight = None
            layer.weight = nn.Parameter(torch.randn(4, 2, 2))
            torch.testing.assert_close(layer(x), output(layer, x))
        for _ in range(20):
            layer.rule = None
            layer.rule = MultiplicationRule(Algebra.uniform(4))
            torch.testing.assert_close(layer(x), output(layer, x))
        for parameter in (layer.weight, layer.rule.constants):
            for _ in range(20):
                parameter.data = torch.randn_like(parameter)
                parameter.data = torch.randn_like(parameter)  # where the one of the last call was, were it not held
                torch.testing.assert_close(layer(x), output(layer, x))
        layer.weight.data = layer.weight.data.mT  # the same memory, shape and version
        torch.testing.assert_close(layer(x), output(layer, x))


def test_the_memory_of_what_was_kept_is_given_to_nobody():
    layer, x = PHMLinear(8, 8, n=4).eval(), torch.randn(3, 8)
    address = layer.weight.data_ptr()
    with torch.no_grad():
        layer(x)
        layer.weight.data = torch.randn_like(layer.weight)
    held = [alias.untyped_storage().data_ptr() for alias in layer._dense._entry.aliases]
    assert held == [address, layer.rule.constants.data_ptr()]


def test_follows_another_parameter_over_the_same_memory(uncompared):
    layer, x = PHMLinear(8, 8, n=4).eval(), torch.randn(3, 8)
    with torch.no_grad():
        twin = nn.Parameter(layer.weight.data)
        while layer.weight._version < 3:
            layer.weight.mul_(1.0)
        layer(x)
        while twin._version < layer.weight._version:
            twin.mul_(2.0)
        layer.weight = twin
        torch.testing.assert_close(layer(x), output(layer, x))


@pytest.mark.parametrize("touch", [lambda m: m.eval(), lambda m: m.train().eval(), lambda m: m.to("cpu")])
def test_a_change_of_mode_and_a_move_forget_what_was_kept(touch, monkeypatch):
    monkeypatch.setattr("phcgnn.nn.cache._compares_content", lambda source: False)
    model, x = nn.Sequential(PHMLinear(8, 8, n=4)).eval(), torch.randn(3, 8)
    with torch.no_grad():
        before = model(x)
        model[0].weight.data.mul_(2)  # nothing counts this
        assert torch.equal(model(x), before)
        touch(model)
        torch.testing.assert_close(model(x), output(model[0], x))


def test_the_record_of_how_a_parameter_was_made_is_not_held():
    layer, x = PHMLinear(8, 8, n=4).eval(), torch.randn(3, 8)
    start = torch.ones(4, 2, 2, requires_grad=True)
    weight = start * 2
    with torch.no_grad():
        torch.func.functional_call(layer, {"weight": weight}, (x,))
    assert layer._dense._entry is None


def test_nothing_is_kept_under_a_dispatch_mode(uncompared):
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx

    layer, x = PHMLinear(8, 8, n=4).eval(), torch.randn(3, 8)
    for warm in (False, True):
        layer.eval()
        with torch.no_grad():
            if warm:
                layer(x)
            mode = FakeTensorMode(allow_non_fake_inputs=True)
            with mode:
                assert layer(mode.from_tensor(x)).shape == (3, 8)
            assert type(layer(x)) is torch.Tensor
            layer.eval()
            if warm:
                layer(x)

            def call(weight, x):
                return torch.func.functional_call(layer, {"weight": weight}, (x,))

            graph = make_fx(call)(layer.weight, x)
            torch.testing.assert_close(graph(2 * layer.weight, x), call(2 * layer.weight, x))


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("warm", [True, False])
def test_a_traced_layer_follows_its_parameters(warm, uncompared):
    layer, x = PHMLinear(8, 8, n=4).eval(), torch.randn(3, 8)
    with torch.no_grad():
        if warm:
            layer(x)
        traced = torch.jit.trace(layer, (x,))
        layer.weight.mul_(2)
        torch.testing.assert_close(traced(x), output(layer, x))


def test_follows_moves_replacements_and_a_shared_rule():
    rule = MultiplicationRule("quaternion")
    layer, other, x = PHMLinear(8, 8, rule=rule).eval(), PHMLinear(8, 8, rule=rule), torch.randn(3, 8)

    def fresh():
        return torch.nn.functional.linear(x.to(layer.weight.dtype), layer.dense_weight(), layer.bias)

    with torch.no_grad():
        layer(x)
        rule.constants.mul_(2)
        torch.testing.assert_close(layer(x), fresh())
        other.rule.reset_parameters()
        torch.testing.assert_close(layer(x), fresh())
        layer.double()
        assert layer(x.double()).dtype == torch.float64
        layer.float()
        layer.weight = nn.Parameter(torch.ones_like(layer.weight))
        torch.testing.assert_close(layer(x), fresh())
        layer.load_state_dict({k: v + 1 for k, v in layer.state_dict().items()}, assign=True)
        torch.testing.assert_close(layer(x), fresh())
        layer.rule = MultiplicationRule(Algebra.uniform(4))
        torch.testing.assert_close(layer(x), fresh())
        layer.weight.numpy()[0, 0, 0] = 100.0
        torch.testing.assert_close(layer(x), fresh())


def test_the_kept_weight_is_not_handed_out():
    layer, x = PHMLinear(8, 8).eval(), torch.randn(3, 8)
    with torch.no_grad():
        before = layer(x)
        layer.dense_weight().zero_()
        layer.to_linear().weight.zero_()
        assert torch.equal(layer(x), before)


def test_the_kept_weight_follows_copies_nowhere():
    layer, x = PHMLinear(8, 8).eval(), torch.randn(3, 8)
    with torch.no_grad():
        before = layer(x)
    buffer = io.BytesIO()
    torch.save(layer, buffer)
    buffer.seek(0)
    twins = [copy.deepcopy(layer), pickle.loads(pickle.dumps(layer)), torch.load(buffer, weights_only=False)]
    for twin in twins:
        assert twin._dense._entry is None
        with torch.no_grad():
            assert torch.equal(twin(x), before)
            twin.weight.zero_()
            assert torch.equal(twin(x), twin.bias.expand(3, 8))
            assert torch.equal(layer(x), before)
    assert list(layer.state_dict()) == ["weight", "bias", "rule.constants"]


# ------------------------------------------------------------------------------------------------ precision


def test_narrow_layers_keep_the_rule_in_float32():
    layer = PHMLinear(8, 12, n=4, rule_start="uniform")
    rule = layer.rule.constants.clone()
    for move in (lambda m: m.bfloat16(), lambda m: m.half(), lambda m: m.to(torch.bfloat16)):
        narrow = move(copy.deepcopy(layer))
        assert narrow.rule.constants.dtype == torch.float32
        assert torch.equal(narrow.rule.constants, rule)
        assert narrow.weight.dtype in (torch.bfloat16, torch.float16)
        x = torch.randn(3, 8, dtype=narrow.weight.dtype)
        assert narrow(x).dtype == x.dtype
    assert PHMLinear(8, 8, dtype=torch.bfloat16).rule.constants.dtype == torch.float32
    torch.set_default_dtype(torch.bfloat16)
    by_default = PHMLinear(8, 8)
    assert (by_default.rule.constants.dtype, by_default.weight.dtype) == (torch.float32, torch.bfloat16)
    torch.set_default_dtype(torch.float32)
    assert layer.double().rule.constants.dtype == torch.float64
    assert copy.deepcopy(layer).bfloat16().rule.constants.dtype == torch.float32


@pytest.mark.parametrize("training", [True, False])
def test_autocast_computes_the_product_in_bfloat16_and_the_weight_in_float32(training):
    layer, x = PHMLinear(8, 12, n=4, rule_start="uniform").train(training), torch.randn(3, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = layer(x)
        reference = torch.nn.functional.linear(x, layer.to_linear().weight, layer.bias)
    assert y.dtype == torch.bfloat16
    assert torch.equal(y, reference)
    y.float().sum().backward()
    assert layer.rule.constants.grad.dtype == layer.weight.grad.dtype == torch.float32


# --------------------------------------------------------------------------------- the machinery of torch


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("learn_rule", [True, False])
def test_compiles_whole(training, learn_rule):
    layer, x = PHMLinear(8, 12, n=4, learn_rule=learn_rule).train(training), torch.randn(3, 8)
    torch._dynamo.reset()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), layer(x))
    compiled(x).square().sum().backward()
    expected = torch.autograd.grad(layer(x).square().sum(), layer.weight)[0]
    torch.testing.assert_close(layer.weight.grad, expected)
    with torch.no_grad():
        layer.weight.mul_(2)
        torch.testing.assert_close(compiled(x), layer(x))


def test_compiles_whole_under_autocast():
    layer, x = PHMLinear(8, 12, n=4), torch.randn(3, 8)
    torch._dynamo.reset()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(compiled(x), layer(x))


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="inductor needs a C++ compiler")
def test_compiles_with_inductor():
    layer, x = PHMLinear(8, 12, n=4), torch.randn(3, 8)
    torch._dynamo.reset()
    torch.testing.assert_close(torch.compile(layer, fullgraph=True)(x), layer(x))


@pytest.mark.parametrize("training", [True, False])
def test_exports_with_a_free_batch_size(training):
    layer = PHMLinear(8, 12, n=4).train(training)
    batch = torch.export.Dim("batch", min=2)
    program = torch.export.export(layer, (torch.randn(3, 8),), dynamic_shapes=({0: batch},))
    x = torch.randn(11, 8)
    torch.testing.assert_close(program.module()(x), layer(x))


def test_functional_call_and_vmap_over_an_ensemble():
    layers = [PHMLinear(8, 12, n=4) for _ in range(3)]
    parameters, buffers = torch.func.stack_module_state(layers)
    template, x = copy.deepcopy(layers[0]).to("meta"), torch.randn(5, 8)
    for mode in (True, False):
        template.train(mode)

        def call(p, b, x):
            return torch.func.functional_call(template, (p, b), (x,))

        stacked = torch.func.vmap(call, in_dims=(0, 0, None))(parameters, buffers, x)
        torch.testing.assert_close(stacked, torch.stack([layer(x) for layer in layers]))


@pytest.mark.parametrize("training", [True, False])
def test_per_sample_gradients(training):
    layer, x = PHMLinear(4, 6, n=2).train(training), torch.randn(5, 4)
    with torch.no_grad():
        layer(x)
    parameters = {name: p.detach() for name, p in layer.named_parameters()}

    def loss(p, row):
        return torch.func.functional_call(layer, p, (row,)).square().sum()

    gradients = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))(parameters, x)
    for name, parameter in layer.named_parameters():
        rows = [torch.autograd.grad(layer(row).square().sum(), parameter)[0] for row in x]
        torch.testing.assert_close(gradients[name], torch.stack(rows))
    tangent = torch.func.jvp(layer, (x,), (torch.ones_like(x),))[1]
    torch.testing.assert_close(tangent, layer.dense_weight().sum(1).expand(5, 6))


def test_functional_call_after_a_kept_weight_uses_the_given_parameters(uncompared):
    layer, x = PHMLinear(8, 8, learn_rule=False).eval(), torch.randn(3, 8)
    with torch.no_grad():
        layer(x)
        changed = {"rule.constants": layer.rule.constants * 2}
        y = torch.func.functional_call(layer, changed, (x,))
        torch.testing.assert_close(y - layer.bias, 2 * (layer(x) - layer.bias))
        mapped = torch.func.vmap(lambda c: torch.func.functional_call(layer, {"rule.constants": c}, (x,)))(
            torch.stack([layer.rule.constants, 2 * layer.rule.constants])
        )
        torch.testing.assert_close(mapped, torch.stack([layer(x), y]))


def test_parameters_made_in_inference_mode(uncompared):
    with torch.inference_mode():
        layer, x = PHMLinear(8, 8).eval(), torch.randn(3, 8)
        assert torch.equal(layer(x), layer(x))
        layer.weight.mul_(2)
        torch.testing.assert_close(layer(x), x @ layer.dense_weight().T + layer.bias)


def test_meta_device_and_materialisation():
    layer = PHMLinear(8, 12, n=4, device="meta", weight_start="folded-glorot")
    assert layer(torch.empty(3, 8, device="meta")).shape == (3, 12)
    layer = layer.to_empty(device="cpu")
    layer.reset_parameters()
    assert_equals_kronecker_sum(layer)
    with torch.device("meta"):
        layer = PHMLinear(8, 12, n=4, rule_start="uniform")
    assert {value.device.type for value in layer.state_dict().values()} == {"meta"}


@pytest.fixture
def process_group(tmp_path):
    import torch.distributed as dist

    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_ddp(process_group):
    layer, x = PHMLinear(8, 12, n=4), torch.randn(3, 8)
    wrapped = nn.parallel.DistributedDataParallel(layer)
    wrapped(x).square().sum().backward()
    expected = torch.autograd.grad(layer(x).square().sum(), layer.weight)[0]
    torch.testing.assert_close(layer.weight.grad, expected)


@pytest.mark.filterwarnings("ignore:.*:UserWarning:torch.distributed")
def test_fsdp_in_eval_follows_the_optimizer_and_edits(process_group, uncompared):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    torch.manual_seed(1)
    layer, x = nn.Sequential(PHMLinear(8, 12, n=4), nn.ReLU()), torch.randn(3, 8)
    plain = copy.deepcopy(layer)
    fully_shard(layer, mesh=init_device_mesh("cpu", (1,)))
    for model in (layer, plain):
        model.eval()
        step = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(2):
            with torch.no_grad():
                model(x)
            model(x).square().sum().backward()
            step.step()
    with torch.no_grad():
        torch.testing.assert_close(layer(x), plain(x))
        layer.reshard()
        for model in (layer, plain):
            model[0].weight.mul_(3)
        torch.testing.assert_close(layer(x), plain(x))
    # what is gathered into the same tensor, maybe at the same address, moves no version: nothing may be kept
    assert layer[0]._dense._entry is None


@pytest.mark.cuda
@cuda
@pytest.mark.filterwarnings("ignore:Attempting to run cuBLAS")
def test_on_cuda():
    layer, x = PHMLinear(8, 12, n=4).cuda(), torch.randn(3, 8, device="cuda")
    assert_equals_kronecker_sum(layer, x, rtol=1e-4, atol=1e-4)
    layer.eval()
    with torch.no_grad():
        before = layer(x)
        layer.weight.mul_(2)
        torch.testing.assert_close(layer(x) - layer.bias, 2 * (before - layer.bias))
        layer.weight.data = layer.weight.data * 2
        torch.testing.assert_close(layer(x) - layer.bias, 4 * (before - layer.bias))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = layer(x)
        layer.weight.mul_(0.25)
        graph.replay()
        torch.testing.assert_close(captured, before)
        assert layer.cpu()(x.cpu()).device.type == "cpu"


@pytest.mark.cuda
@cuda
@pytest.mark.filterwarnings("ignore:Attempting to run cuBLAS")
def test_never_stale_on_cuda():
    layer, x = PHMLinear(64, 64, device="cuda"), torch.randn(3, 64, device="cuda")
    assert_never_stale(layer, x)
    layer.eval()
    for fused in ("fused", "foreach"):
        step = torch.optim.Adam(layer.parameters(), lr=0.1, **{fused: True})
        for _ in range(3):
            layer(x).square().sum().backward()
            with torch.no_grad():
                before = layer(x)
                step.step()
                assert not torch.equal(layer(x), before)
                torch.testing.assert_close(layer(x), output(layer, x))
    with torch.no_grad():
        for scale in range(20):
            weight = layer.weight.detach() * scale
            y = torch.func.functional_call(layer, {"weight": weight}, (x,))
            torch.testing.assert_close(y, x @ kronecker_sum(layer.rule.constants, weight).T + layer.bias)
            del weight, y
        for _ in range(20):
            layer.weight = None
            layer.weight = nn.Parameter(torch.randn(4, 16, 16, device="cuda"))
            torch.testing.assert_close(layer(x), output(layer, x))
            layer.rule = None
            layer.rule = MultiplicationRule(Algebra.uniform(4), device="cuda")
            torch.testing.assert_close(layer(x), output(layer, x))
            layer.weight.data = torch.randn_like(layer.weight)
            layer.weight.data = torch.randn_like(layer.weight)
            torch.testing.assert_close(layer(x), output(layer, x))
        layer.weight.data = layer.weight.data.mT
        torch.testing.assert_close(layer(x), output(layer, x))


@pytest.mark.cuda
@cuda
def test_the_replay_of_a_captured_step_is_seen_after_a_change_of_mode():
    layer, x = PHMLinear(8, 8, n=4, device="cuda").eval(), torch.randn(3, 8, device="cuda")
    step = torch.optim.Adam(layer.parameters(), lr=0.1, fused=True, capturable=True)
    for parameter in layer.parameters():
        parameter.grad = torch.ones_like(parameter)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        step.step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step.step()
    with torch.no_grad():
        layer(x)
        graph.replay()
        layer.eval()
        torch.testing.assert_close(layer(x), output(layer, x))


def test_to_linear():
    layer = PHMLinear(8, 12, n=4, bias=False).eval()
    linear, x = layer.to_linear(), torch.randn(3, 8)
    assert type(linear) is nn.Linear
    assert not linear.training
    assert linear.bias is None
    torch.testing.assert_close(linear(x), layer(x))


@pytest.mark.parametrize("learned", [("weight",), ("bias",), ("weight", "bias"), ()])
def test_to_linear_keeps_what_is_frozen(learned):
    layer = PHMLinear(8, 12, n=4)
    for name in ("weight", "bias"):
        layer.get_parameter(name).requires_grad_(name in learned)
    assert [name for name, p in layer.to_linear().named_parameters() if p.requires_grad] == list(learned)


def test_the_bias_starts_at_zero():
    layer = PHMLinear(8, 12, n=4)
    assert not layer.bias.any()
    nn.init.normal_(layer.bias)
    layer.reset_parameters()
    assert not layer.bias.any()


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_tensors():
    layer, rows = PHMLinear(8, 12, n=4), [torch.randn(3, 8), torch.randn(5, 8)]
    for y, x in zip(layer(torch.nested.nested_tensor(rows)).unbind(), rows, strict=True):
        torch.testing.assert_close(y, layer(x))


def test_repr():
    assert repr(PHMLinear(8, 12, n=4, terms=3, rule=MultiplicationRule(Algebra.uniform(4, 3), learn=False))) == (
        "PHMLinear(\n  in_features=8, out_features=12, n=4, terms=3, bias=True, shared rule\n"
        "  (rule): MultiplicationRule(n=4, terms=3, start=uniform:4,3, learn=False)\n)"
    )


# ------------------------------------------------------------------------------------------------ bad input


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: PHMLinear(30, 64, n=4), r"`in_features` must be a multiple of n=4, got 30.*28 or 32.*1, 2, 3, 5"),
        (lambda: PHMLinear(64, 3, n=4), r"`out_features` must be a multiple of n=4, got 3. Use 4, or"),
        (lambda: PHMLinear(4, 4, n=0), "`n` must be at least 1, got 0"),
        (lambda: PHMLinear(4, 4, n=-2), "`n` must be at least 1, got -2"),
        (lambda: PHMLinear(4, 4, n=2.0), "`n` must be an int, got 2.0"),
        (lambda: PHMLinear("4", 4), "`in_features` must be an int, got '4'"),
        (lambda: PHMLinear(np.int64(8), 4), r"`in_features` must be an int.*int64\); pass int\(in_features\)"),
        (lambda: PHMLinear(8, 4, np.int64(4)), r"`n` must be an int.*pass int\(n\)"),
        (lambda: PHMLinear(4, 4, bias="False"), "`bias` must be True or False, got 'False'"),
        (lambda: PHMLinear(4, 4, learn_rule="False"), "`learn_rule` must be True or False, got 'False'"),
        (
            lambda: PHMLinear(4, 4, weight_start=None),
            r"`weight_start` must be a name \(folded-glorot, .*or a callable, got None",
        ),
        (lambda: PHMLinear(4, 4, n=2, terms=0), "`terms` must be at least 1, got 0"),
        (
            lambda: PHMLinear(4, 4, rule_start="uniformly"),
            "unknown rule start 'uniformly'; choose from auto",
        ),
        (lambda: PHMLinear(4, 4, weight_start="glorto"), "unknown weight start 'glorto'; .*Did you mean 'glorot'"),
        (lambda: PHMLinear(4, 4, rule_start="complex"), "n=2 and terms=2, the layer has n=4 and terms=4"),
        (lambda: PHMLinear(4, 4, rule=MultiplicationRule("complex")), "rule has n=2 and terms=2, the layer n=4"),
        (lambda: PHMLinear(4, 4, n=2, rule=Algebra.uniform(2, 3), terms=2), "n=2 and terms=3, the layer has n=2"),
        (lambda: PHMLinear(4, 4, rule="quaternion", rule_start="cyclic"), "give one of them"),
        (lambda: PHMLinear(4, 4, rule=MultiplicationRule("quaternion"), learn_rule=False), "cannot freeze a rule"),
        (lambda: PHMLinear(4, 4, rule=torch.zeros(4, 4, 4)), "must be a MultiplicationRule, an Algebra or a name"),
        (lambda: PHMLinear(4, 4, terms=2, rule_start="cyclic"), "n=4 and terms=2; use rule_start='uniform'"),
        (
            lambda: PHMLinear(8, 4)(torch.zeros(3, 4)),
            r"has shape \(3, 4\), expected \(\*, 8\); the layer was",
        ),
        (lambda: PHMLinear(8, 4)(torch.zeros(())), r"has shape \(\), expected"),
    ],
)
def test_bad_input_is_refused_with_the_remedy(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call()
