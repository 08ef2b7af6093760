"""nn.Transformer learns to reverse sequences: padding masks, causal masks, greedy decoding."""

from __future__ import annotations


def journey(env):
    torch, nn, F = env.torch, env.nn, env.F
    words, width, length = 9, 16, 5

    class Reverser(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(words, width, padding_idx=0)
            self.position = nn.Parameter(torch.zeros(length + 1, width))
            self.transformer = nn.Transformer(
                width, 2, num_encoder_layers=1, num_decoder_layers=1, dim_feedforward=32,
                dropout=0.0, batch_first=True,
            )  # fmt: skip
            self.head = nn.Linear(width, words)

        def forward(self, source, target):
            mask = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
            mask = mask.to(source.device)
            pad = source == 0
            a = self.embed(source) + self.position[: source.shape[1]]
            b = self.embed(target) + self.position[: target.shape[1]]
            out = self.transformer(
                a, b, tgt_mask=mask, src_key_padding_mask=pad, memory_key_padding_mask=pad
            )
            return self.head(out)

    model = env.settle(Reverser())
    optimizer = env.optim.Adam(model.parameters(), lr=5e-3)

    def batch(n):
        source = env.integers(2, words, (n, length))
        source[: n // 2, length - 1] = 0
        return source, source.flip(1)

    def step(source, target):
        optimizer.zero_grad()
        begin = torch.ones(len(source), 1, dtype=torch.int64, device=source.device)
        logits = model(source, torch.cat([begin, target[:, :-1]], 1))
        loss = F.cross_entropy(logits.transpose(1, 2), target, ignore_index=0)
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = env.compile(step)
    losses = [step(*batch(8)).item() for _ in range(env.steps(5))]
    model.eval()
    source, _ = batch(2)
    made = torch.ones(2, 1, dtype=torch.int64, device=env.device)
    with torch.no_grad():
        for _ in range(env.steps(3)):
            logits = model(source, made)
            made = torch.cat([made, logits[:, -1:].argmax(-1)], dim=1)
    return {"losses": losses, "made": made, "logits": logits}
