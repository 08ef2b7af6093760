"""Time series with tensors alone: moving averages, autocorrelation, AR fit, anomaly scores."""

from __future__ import annotations


def journey(env):
    torch, F = env.torch, env.F
    t = torch.arange(200, device=env.device, dtype=torch.float32)
    series = torch.sin(t / 7) + 0.3 * torch.cos(t / 3) + 0.05 * env.tensor(200)
    series[[50, 120]] += 3.0

    def features(s):
        smooth = F.avg_pool1d(s[None, None], 5, stride=1, padding=2)[0, 0]
        change = torch.diff(s, prepend=s[:1])
        centred = s - s.mean()
        power = torch.fft.rfft(centred, n=512).abs() ** 2
        correlation = torch.fft.irfft(power)[:20] / centred.pow(2).sum()
        return smooth, change, correlation

    features = env.compile(features)
    smooth, change, correlation = features(series)

    order = 4
    design = torch.stack([series[i : len(series) - order + i] for i in range(order)], 1)
    wanted = series[order:]
    gram = design.T @ design + 1e-3 * torch.eye(order, device=env.device)
    weights = torch.linalg.solve(gram, design.T @ wanted)
    residual = wanted - design @ weights
    score = (residual - residual.median()).abs() / residual.abs().median()
    anomalies = (score > 12).nonzero().squeeze(1) + order

    future = series[-order:].clone()
    made = []
    for _ in range(env.steps(8)):
        value = (future * weights).sum()
        made.append(value.item())
        future = torch.cat([future[1:], value[None]])
    daily = series[:196].view(-1, 7)
    return {
        "smooth": smooth[:10],
        "change": change.abs().sum(),
        "correlation": correlation,
        "weights": weights,
        "anomalies": anomalies,
        "made": made,
        "weekly": daily.mean(0),
        "extremes": torch.stack(torch.aminmax(daily)),
        "histogram": torch.histc(series, 6, -2, 5),
        "ranked": daily.sum(1).topk(3).indices,
    }
