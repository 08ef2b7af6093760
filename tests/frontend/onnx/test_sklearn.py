"""Pipelines of scikit-learn through skl2onnx: what scikit-learn predicts, rows of any number."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import svod

sklearn = pytest.importorskip("sklearn")
skl2onnx = pytest.importorskip("skl2onnx")

pytestmark = [pytest.mark.long, pytest.mark.timeout(600), pytest.mark.filterwarnings("ignore")]

RNG = np.random.default_rng(3)
X = RNG.standard_normal((200, 6)).astype(np.float32)
GROUPS = (X[:, 0] + X[:, 1] ** 2 > 0.5).astype(np.int64) + (X[:, 2] > 0.3)
BINARY = (GROUPS > 0).astype(np.int64)
TARGET = (X[:, 0] * 2 + np.sin(X[:, 1]) + 0.1 * X[:, 3]).astype(np.float32)


def converted(model: Any, sample: Any = X, **options: Any) -> Any:
    return svod.onnx.load(skl2onnx.to_onnx(model, sample[:1], **options).SerializeToString())


def classifiers() -> dict[str, Any]:
    from sklearn.ensemble import (
        AdaBoostClassifier,
        ExtraTreesClassifier,
        GradientBoostingClassifier,
        RandomForestClassifier,
    )  # fmt: skip
    from sklearn.linear_model import LogisticRegression, SGDClassifier
    from sklearn.naive_bayes import GaussianNB
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import MinMaxScaler, Normalizer, StandardScaler
    from sklearn.svm import SVC
    from sklearn.tree import DecisionTreeClassifier

    return {
        "forest": RandomForestClassifier(12, random_state=0),
        "extra": ExtraTreesClassifier(8, max_depth=5, random_state=0),
        "tree": DecisionTreeClassifier(max_depth=4, random_state=0),
        "boosting": GradientBoostingClassifier(n_estimators=9, random_state=0),
        "adaboost": AdaBoostClassifier(n_estimators=5, random_state=0),
        "logistic": make_pipeline(StandardScaler(), LogisticRegression()),
        "minmax": make_pipeline(MinMaxScaler(), Normalizer(), LogisticRegression()),
        "sgd": SGDClassifier(loss="log_loss", random_state=0),
        "svc": SVC(kernel="rbf", probability=True, random_state=0),
        "poly": SVC(kernel="poly", probability=True, random_state=0),
        "bayes": GaussianNB(),
        "neighbours": KNeighborsClassifier(3),
        "perceptron": MLPClassifier((8,), max_iter=50, random_state=0),
    }


@pytest.mark.parametrize("name", list(classifiers()))
@pytest.mark.parametrize("classes", ["two", "three", "texts"])
def test_classifiers_are_equal_to_scikit_learn(name: str, classes: str) -> None:
    y = {"two": BINARY, "three": GROUPS, "texts": np.array(["no", "maybe", "yes"])[GROUPS]}[classes]
    model = classifiers()[name].fit(X, y)
    loaded = converted(model, options={id(model): {"zipmap": False}})
    for rows in (1, 17):
        label, scores = loaded(X[:rows])
        assert label.tolist() == model.predict(X[:rows]).tolist()
        np.testing.assert_allclose(scores, model.predict_proba(X[:rows]), rtol=1e-3, atol=2e-5)


@pytest.mark.parametrize("name", ["forest", "boosting", "logistic", "svc"])
def test_one_plan_serves_every_number_of_rows(name: str) -> None:
    from svod.device.cpu.compiler import counters

    model = classifiers()[name].fit(X, GROUPS)
    loaded = converted(model, options={id(model): {"zipmap": False}})
    loaded(X[:60])
    before = dict(counters)
    for rows in (1, 7, 60):
        assert loaded(X[:rows])[0].tolist() == model.predict(X[:rows]).tolist()
    assert counters == before
    assert loaded.notes == []


def test_a_forest_gives_dictionaries_by_default() -> None:
    from sklearn.ensemble import RandomForestClassifier

    model = RandomForestClassifier(4, random_state=0).fit(X, GROUPS)
    label, rows = converted(model)(X[:3])
    assert label.tolist() == model.predict(X[:3]).tolist()
    for row, wanted in zip(rows, model.predict_proba(X[:3]), strict=True):
        assert list(row) == [0, 1, 2]
        np.testing.assert_allclose(list(row.values()), wanted, atol=1e-6)


def regressors() -> dict[str, Any]:
    from sklearn.ensemble import GradientBoostingRegressor, RandomForestRegressor
    from sklearn.linear_model import Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import PolynomialFeatures, RobustScaler
    from sklearn.svm import SVR

    return {
        "forest": RandomForestRegressor(10, random_state=0),
        "boosting": GradientBoostingRegressor(n_estimators=20, random_state=0),
        "ridge": make_pipeline(RobustScaler(), Ridge()),
        "polynomial": make_pipeline(PolynomialFeatures(2), Ridge()),
        "svr": SVR(),
    }


@pytest.mark.parametrize("name", list(regressors()))
def test_regressors_are_equal_to_scikit_learn(name: str) -> None:
    model = regressors()[name].fit(X, TARGET)
    loaded = converted(model)
    for rows in (1, 33):
        found = loaded(X[:rows])
        np.testing.assert_allclose(found.reshape(-1), model.predict(X[:rows]), rtol=1e-4, atol=1e-4)


def test_a_forest_of_several_targets() -> None:
    from sklearn.ensemble import RandomForestRegressor

    both = np.stack([TARGET, -2 * TARGET + X[:, 4]], 1)
    model = RandomForestRegressor(6, random_state=0).fit(X, both)
    np.testing.assert_allclose(converted(model)(X[:9]), model.predict(X[:9]), rtol=1e-4, atol=1e-5)


def test_one_hot_and_missing_values() -> None:
    import pandas as pd
    from skl2onnx.common.data_types import FloatTensorType, StringTensorType
    from sklearn.compose import ColumnTransformer
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    frame = pd.DataFrame(X[:, :2], columns=["a", "b"])
    frame.loc[::7, "a"] = np.nan
    frame["c"] = np.array(["red", "green", "blue"])[RNG.integers(0, 3, len(X))]
    steps = ColumnTransformer(
        [
            ("numbers", make_pipeline(SimpleImputer(), StandardScaler()), ["a", "b"]),
            ("texts", OneHotEncoder(handle_unknown="ignore"), ["c"]),
        ]
    )
    model = make_pipeline(steps, LogisticRegression()).fit(frame, BINARY)
    kinds = [
        ("a", FloatTensorType([None, 1])), ("b", FloatTensorType([None, 1])),
        ("c", StringTensorType([None, 1])),
    ]  # fmt: skip
    proto = skl2onnx.convert_sklearn(
        model, initial_types=kinds, options={id(model): {"zipmap": False}}
    )
    loaded = svod.onnx.load(proto.SerializeToString())
    part = frame[:20].copy()
    part.loc[3, "c"] = "purple"
    feeds = {n: part[[n]].to_numpy(np.float32) for n in ("a", "b")}
    label, scores = loaded(**feeds, c=part[["c"]].to_numpy(object))
    assert label.tolist() == model.predict(part).tolist()
    np.testing.assert_allclose(scores, model.predict_proba(part), atol=1e-5)


def test_ordinal_and_label_encoders() -> None:
    from skl2onnx.common.data_types import StringTensorType
    from sklearn.preprocessing import Binarizer, LabelEncoder, OrdinalEncoder

    words = np.array(["b", "a", "c", "a"])
    encoder = LabelEncoder().fit(words)
    proto = skl2onnx.convert_sklearn(encoder, initial_types=[("x", StringTensorType([None]))])
    found = svod.onnx.load(proto.SerializeToString())(words.astype(object))
    assert found.tolist() == encoder.transform(words).tolist()
    table = RNG.integers(0, 4, (30, 2))
    ordinal = OrdinalEncoder().fit(table)
    np.testing.assert_array_equal(converted(ordinal, table)(table), ordinal.transform(table))
    np.testing.assert_array_equal(
        converted(Binarizer(threshold=0.2))(X[:5]), Binarizer(threshold=0.2).transform(X[:5])
    )


def test_a_vectorizer_of_texts() -> None:
    from skl2onnx.common.data_types import StringTensorType
    from sklearn.feature_extraction.text import TfidfVectorizer

    corpus = np.array(["the cat sat", "the dog sat on the mat", "a cat and a dog"])
    model = TfidfVectorizer().fit(corpus)
    proto = skl2onnx.convert_sklearn(model, initial_types=[("x", StringTensorType([None]))])
    found = svod.onnx.load(proto.SerializeToString())(corpus.astype(object))
    np.testing.assert_allclose(found, model.transform(corpus).toarray(), atol=1e-5)
