import torch

from phcgnn.training.targets import Decoder, Scaler, class_weights, graph_weights, positive_weights

NAN = float("nan")


def test_scaler_leaves_gaps_out():
    targets = torch.randn(100, 3) * torch.tensor([1.0, 5.0, 0.0]) + torch.tensor([0.0, -3.0, 7.0])
    targets[torch.rand(100, 3) < 0.3] = NAN
    scaler = Scaler.fit(targets)
    scaled = scaler.apply(targets)
    torch.testing.assert_close(scaled.nanmean(0), torch.zeros(3), atol=1e-5, rtol=0)
    torch.testing.assert_close((scaled**2).nanmean(0), torch.tensor([1.0, 1.0, 0.0]), atol=1e-4, rtol=0)
    torch.testing.assert_close(scaler.restore(scaled), targets, equal_nan=True, atol=1e-5, rtol=1e-5)


def test_weights_balance_what_is_there():
    targets = (torch.rand(1000, 2) < torch.tensor([0.1, 0.7])).float()
    weights = positive_weights(targets)
    torch.testing.assert_close(weights * (targets == 1).sum(0), (targets == 0).sum(0).float())
    assert positive_weights(torch.ones(4, 1)) == 1
    classes = torch.tensor([0] * 90 + [1] * 10 + [-100] * 5)
    of_class = class_weights(classes, 3)
    assert (of_class[0] * 90).isclose(of_class[1] * 10)
    assert of_class[classes[classes >= 0]].mean().isclose(torch.tensor(1.0))


def test_graphs_are_drawn_alike():
    targets = (torch.rand(1000, 1) < 0.1).float()
    weights = graph_weights(targets, None)
    torch.testing.assert_close(weights[targets[:, 0] == 1].sum(), weights[targets[:, 0] == 0].sum())
    classes = torch.tensor([0] * 90 + [1] * 10)
    weights = graph_weights(classes, 2)
    torch.testing.assert_close(weights[:90].sum(), weights[90:].sum())
    gaps = torch.tensor([[NAN, NAN], [1.0, NAN], [0.0, 1.0], [0.0, 0.0]])
    assert graph_weights(gaps, None).isfinite().all()


def test_decoder():
    outputs = torch.randn(4, 3)
    assert torch.equal(Decoder("regression")(outputs), outputs)
    torch.testing.assert_close(Decoder("regression", Scaler((1.0,) * 3, (2.0,) * 3))(outputs), outputs * 2 + 1)
    torch.testing.assert_close(Decoder("classification")(outputs), outputs.sigmoid())
    torch.testing.assert_close(Decoder("multiclass")(outputs).sum(1), torch.ones(4))
    assert Decoder("classification")(outputs.bfloat16()).dtype == torch.float32
