"""Evolution without gradients: a population, selection by sorting, crossover, mutation."""

from __future__ import annotations


def journey(env):
    torch = env.torch
    population, genes = 24, 6
    target = env.tensor(genes)

    def fitness(people):
        return -((people - target) ** 2).sum(1)

    fitness = env.compile(fitness)
    people = env.tensor(population, genes)
    best, means = [], []
    for generation in range(env.steps(10)):
        scores = fitness(people)
        order = scores.argsort(descending=True)
        people = people[order]
        best.append(scores.max().item())
        means.append(scores.mean().item())
        elite = people[: population // 4]
        mothers = elite[env.integers(0, len(elite), (population - len(elite),))]
        fathers = elite[env.integers(0, len(elite), (population - len(elite),))]
        cut = env.integers(1, genes, (population - len(elite), 1))
        mask = torch.arange(genes, device=env.device)[None] < cut
        children = torch.where(mask, mothers, fathers)
        change = env.tensor(*children.shape) * 0.3 / (1 + generation)
        children = children + change * (env.tensor(*children.shape) > 0.5)
        people = torch.vstack([elite, children])
        if best[-1] > -1e-3:
            break
    final = fitness(people)
    ranks = torch.empty_like(final, dtype=torch.int64)
    ranks[final.argsort()] = torch.arange(population, device=env.device)
    return {
        "best": best,
        "means": means,
        "winner": people[final.argmax()],
        "ranks": ranks,
        "diversity": people.std(0).mean(),
    }
