"""The layer and the loss of ``train_digits.py`` beside PyTorch's formulas: losses and times.

python examples/compare_training.py [--device cuda] [--compile] [--steps 300] [--width 64]
"""

import argparse
import time

import torch
import torch.nn.functional as F
from train_digits import focal, labels, pixels, program

import tcdsl.torch as tct


class Gated(torch.nn.Module):
    """What ``tct.Module(program.gated, ...)`` is, in PyTorch's own operators."""

    def __init__(self, **weights):
        super().__init__()
        for name, weight in weights.items():
            self.register_parameter(name, torch.nn.Parameter(weight.clone()))

    def forward(self, x):
        return (x @ self.W) * torch.sigmoid(x @ self.V + self.b)


def torch_focal(score, label):
    p = F.log_softmax(score, dim=1).gather(1, label[:, None])[:, 0]
    return -((1 - p.exp()).square() * p).mean()


def train(make_layer, loss, args):
    """Return the loss of each step, and the time of a step."""
    torch.manual_seed(0)
    draw = [torch.randn(64, args.width) / 8 for _ in range(2)]
    layer = make_layer(W=draw[0], V=draw[1], b=torch.zeros(args.width))
    model = torch.nn.Sequential(layer, torch.nn.Linear(args.width, 10)).to(args.device)
    adam = torch.optim.Adam(model.parameters(), lr=0.01)
    x, label = pixels.to(args.device), labels.to(args.device)

    def run(x, label):
        return loss(model(x), label)

    step = torch.compile(run) if args.compile else run
    losses, begun = [], 0.0
    for number, batch in enumerate(torch.randint(1300, (args.steps, 128), device=args.device)):
        if number == args.steps // 2:  # everything is compiled
            begun = time.perf_counter()
        adam.zero_grad()
        value = step(x[batch], label[batch])
        value.backward()
        adam.step()
        losses.append(value.detach())
    losses = torch.stack(losses).tolist()  # waits for a GPU
    return losses, (time.perf_counter() - begun) / (args.steps - args.steps // 2)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--compile", action="store_true", help="both under torch.compile")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--width", type=int, default=64)
    args = parser.parse_args()
    ours = train(lambda **weights: tct.Module(program.gated, **weights), focal, args)
    theirs = train(Gated, torch_focal, args)
    for name, (losses, taken) in {"tcdsl": ours, "torch": theirs}.items():
        print(f"{name}: loss {losses[0]:.4f} to {losses[-1]:.4f}, {taken * 1e6:.0f} us a step")
    apart = max(abs(a - b) for a, b in zip(ours[0], theirs[0], strict=True))
    print(f"the losses of all steps differ by {apart:.1e} at most")
    assert apart < 1e-3


if __name__ == "__main__":
    main()
