from __future__ import annotations

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad

from phcgnn.nn.eager import plain_on_cpu


def test_plain_tensors_and_parameters_are():
    assert plain_on_cpu(torch.ones(2), nn.Parameter(torch.ones(2)))


def test_what_is_watched_transformed_or_elsewhere_is_not():
    class Other(torch.Tensor):
        pass

    x, seen = torch.ones(3), []
    assert not plain_on_cpu(x, torch.ones(2, device="meta"))
    assert not plain_on_cpu(x.as_subclass(Other))
    assert not plain_on_cpu(torch.eye(2).to_sparse())
    with torch.autocast("cpu"):
        assert not plain_on_cpu(x)
    with FakeTensorMode():
        assert not plain_on_cpu(x)
    with forward_ad.dual_level():
        assert not plain_on_cpu(x)
    torch.func.vmap(lambda t: seen.append(plain_on_cpu(t)) or t)(x)
    torch.jit.trace(lambda t: seen.append(plain_on_cpu(t)) or t * 1, x, check_trace=False)
    assert seen == [False, False]
    assert plain_on_cpu(x)
