"""The layer and the loss of ``train_digits.py`` beside PyTorch's formulas: losses and times.

python examples/compare_training.py [--device cuda] [--mode default] [--steps 300] [--width 64]

Both train by turns, some steps each, so that what else the machine does slows both: the ratio is
the median of those of neighbouring turns.  On a CPU the times are those of the processor.
"""

import argparse
import itertools
import random
import statistics
import time
import types

import torch
import torch.nn.functional as F
from train_digits import focal, labels, pixels, program

import tcdsl.torch as tct

TURN = 10  # steps


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


def training(make_layer, loss, args):
    """Yield the loss of each step of a training that begins as every other one does."""
    torch.manual_seed(0)
    draw = [torch.randn(64, args.width) / 8 for _ in range(2)]
    layer = make_layer(W=draw[0], V=draw[1], b=torch.zeros(args.width))
    model = torch.nn.Sequential(layer, torch.nn.Linear(args.width, 10)).to(args.device)
    adam = torch.optim.Adam(model.parameters(), lr=0.01)
    x, label = pixels.to(args.device), labels.to(args.device)

    def run(x, label):
        return loss(model(x), label)

    step = torch.compile(alone(run, loss.__name__), mode=args.mode) if args.mode else run
    batches = torch.randint(1300, (args.steps, 128), device=args.device)
    for batch in batches:
        adam.zero_grad()
        value = step(x[batch], label[batch])
        value.backward()
        adam.step()
        yield value.detach().clone()


def alone(f, name):
    """Return *f* with code of its own: what is compiled of a code object shares its guards."""
    code = f.__code__.replace(co_name=f"{f.__name__}_{name.replace('.', '_')}")
    return types.FunctionType(code, f.__globals__, None, None, f.__closure__)


def taken(steps, device):
    """Return the losses of TURN of *steps*, and the seconds of one."""
    clock = time.perf_counter if device == "cuda" else time.process_time
    begun = clock()
    losses = list(itertools.islice(steps, TURN))
    if device == "cuda":
        torch.cuda.synchronize()
    return losses, (clock() - begun) / TURN


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--mode", help="both under torch.compile: default, reduce-overhead, ...")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--width", type=int, default=64)
    args = parser.parse_args()
    both = {
        "tcdsl": training(lambda **weights: tct.Module(program.gated, **weights), focal, args),
        "torch": training(Gated, torch_focal, args),
    }
    losses = {name: [] for name in both}
    times = {name: [] for name in both}
    for _ in range(args.steps // TURN):
        for name, steps in random.sample([*both.items()], 2):
            own, seconds = taken(steps, args.device)
            losses[name] += own
            times[name].append(seconds)
    found = [torch.stack(own).tolist() for own in losses.values()]
    warm = {name: own[len(own) // 3 :] for name, own in times.items()}  # everything is compiled
    for name, (first, *_, last) in zip(both, found, strict=True):
        step = statistics.median(warm[name])
        print(f"{name}: loss {first:.4f} to {last:.4f}, {step * 1e6:.0f} us a step")
    ratios = [theirs / own for own, theirs in zip(warm["tcdsl"], warm["torch"], strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4)
    print(f"tcdsl is at {middle:.2f} of torch's rate (quartiles {low:.2f} and {high:.2f})")
    apart = max(abs(a - b) for a, b in zip(*found, strict=True))
    print(f"the losses of all steps differ by {apart:.1e} at most")
    assert apart < 1e-3


if __name__ == "__main__":
    main()
