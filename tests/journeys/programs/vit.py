"""A vision transformer: patches by a strided convolution, a class token, drop path by hand."""

from __future__ import annotations


def journey(env):
    torch, nn, F = env.torch, env.nn, env.F
    width, heads = 16, 2

    class ViT(nn.Module):
        def __init__(self):
            super().__init__()
            self.patches = nn.Conv2d(3, width, 4, stride=4)
            self.token = nn.Parameter(torch.zeros(1, 1, width))
            self.position = nn.Parameter(torch.zeros(1, 5, width))
            layer = nn.TransformerEncoderLayer(
                width, heads, 32, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
            )
            self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
            self.norm = nn.LayerNorm(width)
            self.head = nn.Linear(width, 6)

        def forward(self, images):
            x = self.patches(images).flatten(2).transpose(1, 2)
            x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], dim=1) + self.position
            return self.head(self.norm(self.encoder(x))[:, 0])

    model = env.settle(ViT())
    warm = [p for n, p in model.named_parameters() if "norm" not in n and not n.endswith("bias")]
    cold = [p for n, p in model.named_parameters() if "norm" in n or n.endswith("bias")]
    optimizer = env.optim.AdamW(
        [{"params": warm, "weight_decay": 0.05}, {"params": cold, "weight_decay": 0.0}], lr=2e-3
    )
    schedule = env.optim.lr_scheduler.LambdaLR(optimizer, lambda i: min(1.0, (i + 1) / 3))

    def step(x, y):
        optimizer.zero_grad(set_to_none=True)
        logits = model(x)
        loss = F.cross_entropy(logits, y)
        loss.backward()
        optimizer.step()
        return loss.detach(), (logits.argmax(-1) == y).float().mean()

    step = env.compile(step)
    losses, rates = [], []
    for _ in range(env.steps(5)):
        loss, _ = step(env.tensor(6, 3, 8, 8), env.integers(0, 6, (6,)))
        losses.append(loss.item())
        rates.append(schedule.get_last_lr()[0])
        schedule.step()
    model.eval()
    with torch.no_grad():
        top = model(env.tensor(3, 3, 8, 8)).softmax(-1).topk(2, dim=-1)
    return {"losses": losses, "rates": rates, "top": top.values, "classes": top.indices}
