"""Train on scikit-learn's digits, with a layer and a loss that are comprehensions."""

import torch
from sklearn.datasets import load_digits

import tcdsl
import tcdsl.torch as tct

program = tcdsl.define("""
def gated(float(B,I) x, float(I,H) W, float(I,H) V, float(H) b) -> (y) {
    u(n,h) +=! x(n,i) * W(i,h)
    v(n,h) +=! x(n,i) * V(i,h)
    y(n,h) = u(n,h) * sigmoid(v(n,h) + b(h))
}
def focal(float(B,C) score, int64(B) label) -> (loss) {      # of Lin and others, 2017
    top(n) max=! score(n,c)
    total(n) +=! exp(score(n,c) - top(n))
    p(n) = score(n,label(n)) - top(n) - log(total(n))
    loss +=! -(1.0 - exp(p(n))) * (1.0 - exp(p(n))) * p(n)
    loss = loss / B
}""")
focal = tct.op(program.focal, name="digits::focal")
device = "cuda" if torch.cuda.is_available() else "cpu"
pixels, labels = (torch.tensor(x).to(device) for x in load_digits(return_X_y=True))
pixels = pixels.float() / 16
W, V, b = torch.randn(64, 64) / 8, torch.randn(64, 64) / 8, torch.zeros(64)
layer = tct.Module(program.gated, W=W, V=V, b=b)
model = torch.nn.Sequential(layer, torch.nn.Linear(64, 10)).to(device)
adam = torch.optim.Adam(model.parameters(), lr=0.01)
for step, batch in enumerate(torch.randint(1300, (300, 128), device=device)):
    adam.zero_grad()
    loss = focal(model(pixels[batch]), labels[batch])
    loss.backward()
    adam.step()
    if step % 50 == 0:
        print(f"step {step}: loss {loss.item():.4f}")
right = (model(pixels[1300:]).argmax(1) == labels[1300:]).float().mean().item()
print(f"{right:.1%} of the others are right")
