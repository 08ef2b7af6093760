"""A network as an estimator of scikit-learn: scaled data, cross-validation, metrics of tensors."""

from __future__ import annotations

import numpy as np

NEEDS = ("sklearn",)


def journey(env):
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.datasets import make_moons
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import accuracy_score, confusion_matrix, roc_auc_score
    from sklearn.model_selection import cross_val_score, train_test_split
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    torch, nn, F = env.torch, env.nn, env.F

    class Network(ClassifierMixin, BaseEstimator):
        def __init__(self, lr=0.1, steps=20):
            self.lr, self.steps = lr, steps

        def fit(self, x, y):
            self.classes_ = np.unique(y)
            env.random = np.random.default_rng(5)
            self.model_ = env.settle(nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1)))
            optimizer = env.optim.Adam(self.model_.parameters(), lr=self.lr)
            x = torch.as_tensor(x, dtype=torch.float32).to(env.device)
            y = torch.as_tensor(y).to(env.device).float().unsqueeze(1)

            def step(x, y):
                optimizer.zero_grad()
                loss = F.binary_cross_entropy_with_logits(self.model_(x), y)
                loss.backward()
                optimizer.step()
                return loss.detach()

            step = env.compile(step)
            for _ in range(env.steps(self.steps)):
                self.loss_ = step(x, y)
            return self

        def predict_proba(self, x):
            with torch.no_grad():
                x = torch.as_tensor(x, dtype=torch.float32).to(env.device)
                chance = torch.sigmoid(self.model_(x)).cpu().numpy()
            return np.hstack([1 - chance, chance])

        def predict(self, x):
            return (self.predict_proba(x)[:, 1] > 0.5).astype(int)

    x, y = make_moons(90, noise=0.1, random_state=0)
    near, far, near_y, far_y = train_test_split(x, y, random_state=0)
    found = make_pipeline(StandardScaler(), Network()).fit(near, near_y)
    chance = torch.tensor(found.predict_proba(far))
    guess = torch.tensor(found.predict(far))
    usual = LogisticRegression().fit(torch.tensor(near), torch.tensor(near_y))
    return {
        "loss": found[-1].loss_,
        "accuracy": accuracy_score(torch.tensor(far_y), guess),
        "auc": roc_auc_score(far_y, chance[:, 1]),
        "confusion": confusion_matrix(torch.tensor(far_y), guess),
        "folds": cross_val_score(Network(steps=4), x, y, cv=3),
        "chance": chance[:5],
        "usual": usual.score(torch.tensor(far), far_y),
    }
