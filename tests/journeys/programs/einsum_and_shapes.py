"""Shape work of every kind: einsum, views, strides, windows, blocks, gathers, rearrangements."""

from __future__ import annotations


def journey(env):
    torch, F = env.torch, env.F
    x = env.tensor(2, 3, 4, 5)
    found = {}
    found["einsum"] = torch.einsum("bchw,bdhw->bcd", x, x * 2).flatten()
    found["outer"] = torch.einsum("i,j->ij", x[0, 0, 0], x[0, 0, 1]).sum(0)
    found["trace"] = torch.einsum("bcii->bc", x[..., :4, :4])
    patches = x.unfold(2, 2, 2).unfold(3, 2, 2).permute(0, 2, 3, 1, 4, 5).reshape(2, 4, -1)
    found["patches"] = patches.mean(-1)

    def windows(x):
        columns = F.unfold(x, 2, stride=1)
        return columns.sum(1), F.fold(columns, (4, 5), 2).mean((2, 3))

    found["columns"], found["folded"] = env.compile(windows)(x)
    a, b, c = x.split([1, 1, 1], dim=1)
    found["joined"] = torch.cat([c, a, b], 1).sub(x).abs().sum()
    found["stacked"] = torch.stack(x.unbind(1), -1).sum((0, 1, 2))
    y = x.movedim(1, -1).contiguous().view(2, 20, 3)
    found["moved"] = y.std(1)
    found["rolled"] = x.roll((1, -1), (2, 3))[0, 0, 0]
    found["flipped"] = x.flip(-1, -2)[1, 2, 0]
    found["tiled"] = x[0, 0, :2, :2].repeat(2, 3).sum(0)
    found["repeated"] = x[0, 0, 0].repeat_interleave(2)
    index = env.integers(0, 5, (2, 3, 4, 2))
    found["gathered"] = x.gather(3, index).sum(-1)
    found["picked"] = x[torch.arange(2)[:, None], torch.tensor([[0, 2], [1, 1]]), 1, -1]
    found["masked"] = x.masked_fill(x > 0, 0.0).sum((0, 1))
    found["padded"] = F.pad(x, (1, 2, 0, 1), value=0.5).sum((0, 1))
    found["reflected"] = F.pad(x[0], (2, 1), mode="reflect")[0, 0]
    found["tril"] = torch.tril(x[0, 0, :, :4], -1)
    found["block"] = torch.block_diag(x[0, 0, :1, :2], x[0, 0, :2, :1])
    found["kron"] = torch.kron(x[0, 0, :2, :2], torch.eye(2, device=env.device))
    found["cumulative"] = x.cumsum(-1)[..., -1]
    found["logcumulative"] = x.logcumsumexp(2)[:, :, -1, 0]
    found["chunks"] = [part.shape[-1] for part in x.chunk(3, dim=-1)]
    found["strided"] = x.flatten().as_strided((3, 4), (7, 2), 1)
    found["expanded"] = (
        x[:1].expand(4, -1, -1, -1) * torch.arange(4.0, device=env.device).view(-1, 1, 1, 1)
    ).sum((1, 2, 3))
    found["tensordot"] = torch.tensordot(x, x, dims=([0, 2, 3], [0, 2, 3]))
    found["searched"] = torch.searchsorted(
        x[0, 0, 0].sort().values, torch.tensor([0.0, 0.5], device=env.device)
    )
    found["meshed"] = torch.stack(
        torch.meshgrid(x[0, 0, 0, :2], x[0, 0, 1, :3], indexing="xy")
    ).sum((1, 2))
    return found
