"""Importances by permutation and partial dependence, and their displays."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import bagwise as bw
from bagwise.baselines import BASELINES
from bagwise.inspection import partial_dependence, permutation_importance
from bagwise.plots import DependenceDisplay, ImportanceDisplay

NAMES = ["signal", "same", "noise"]


def labelled(n_bags: int = 24, seed: int = 0) -> bw.Bags:
    """Feature 0 of one instance gives positive bags away, feature 1 says the same."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_bags, 3, 3))
    y = np.arange(n_bags) % 2
    X[y == 1, 0, 0] += 6
    X[..., 1] = X[..., 0] + 0.01 * rng.normal(size=X.shape[:2])
    known = np.zeros((n_bags, 3))
    known[y == 1, 0] = 1
    ids = np.repeat(np.arange(n_bags), 3)
    bags = bw.Bags.from_arrays(X.reshape(-1, 3), ids, y, feature_names=NAMES)
    return bags.with_instance_labels(known.ravel())


class FirstFeature:
    """A model of one feature: bags by their largest value, instances by their own."""

    classes_ = np.array([0, 1])

    def __init__(self, column: int = 0) -> None:
        self.column = column

    def predict_instance_proba(self, bags: bw.Bags) -> np.ndarray:
        p = 1 / (1 + np.exp(3 - bags.X[:, self.column]))
        return np.column_stack([1 - p, p])

    def predict_proba(self, bags: bw.Bags) -> np.ndarray:
        p = np.maximum.reduceat(self.predict_instance_proba(bags)[:, 1], bags.offsets[:-1])
        return np.column_stack([1 - p, p])


def bag_auc(model: FirstFeature, bags: bw.Bags, y: np.ndarray) -> float:
    return float(roc_auc_score(y, model.predict_proba(bags)[:, 1]))


def test_only_what_a_model_looks_at_is_important() -> None:
    bags = labelled()
    found = permutation_importance(
        FirstFeature(), bags, scoring=bag_auc, n_repeats=4, random_state=0
    )
    assert found.names == NAMES and found.importances.shape == (3, 4)
    assert found.score == 1.0
    assert np.all(found.importances[0] > 0.1)
    np.testing.assert_array_equal(found.importances[1:], 0)
    np.testing.assert_allclose(found.importances_mean[0], found.importances[0].mean())
    np.testing.assert_allclose(found.importances_std[0], found.importances[0].std())


def test_the_same_seed_gives_the_same_numbers() -> None:
    how = {"scoring": bag_auc, "n_repeats": 2}
    one, two, other = (
        permutation_importance(FirstFeature(), labelled(), random_state=seed, **how).importances
        for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(one, two)
    assert np.any(one != other)


def test_inside_bags_only_the_place_of_a_value_is_lost() -> None:
    """A bag keeps its largest value, so that bags are ranked as before; instances are not."""
    bags, how = labelled(), {"within_bags": True, "n_repeats": 2, "random_state": 0}
    of_bags = permutation_importance(FirstFeature(), bags, scoring=bag_auc, **how)
    np.testing.assert_array_equal(of_bags.importances, 0)
    of_instances = permutation_importance(
        FirstFeature(), bags, scoring="instance_roc_auc", columns=["signal"], **how
    )
    assert of_instances.names == ["signal"] and np.all(of_instances.importances > 0.1)


def test_groups_of_features_move_together() -> None:
    bags = labelled()
    seen: list[np.ndarray] = []

    def keep(model: object, given: bw.Bags, y: np.ndarray) -> float:
        seen.append(np.array(given.X))
        return 0.0

    permutation_importance(
        None, bags, scoring=keep, columns={"both": ["signal", 1], "noise": [2]}, n_repeats=1
    )
    before, both, noise = seen
    np.testing.assert_array_equal(before, bags.X)
    np.testing.assert_array_equal(both[:, 2], bags.X[:, 2])
    pairs = {tuple(row) for row in bags.X[:, :2]}
    assert {tuple(row) for row in both[:, :2]} == pairs
    assert np.any(both[:, 0] != bags.X[:, 0])
    np.testing.assert_array_equal(noise[:, :2], bags.X[:, :2])
    np.testing.assert_array_equal(np.sort(noise[:, 2]), np.sort(bags.X[:, 2]))


def test_models_baselines_and_pipelines_are_looked_into() -> None:
    bags = labelled()
    given = bags.with_instance_labels(None)
    pipe = make_pipeline(bw.InstanceTransformer(StandardScaler()), bw.MIRVM())
    for model in (bw.MIRVM(), BASELINES["MILR"](), pipe):
        found = permutation_importance(
            model.fit(given), given, columns={"s": NAMES[:2], "n": ["noise"]}, random_state=0
        )
        assert found.importances_mean[0] > 0.1 > found.importances_mean[1]
        assert partial_dependence(model, given, "signal", grid=4).average.shape == (4,)


def test_dependence_is_the_average_of_changed_bags() -> None:
    bags = labelled()
    found = partial_dependence(FirstFeature(), bags, "signal", grid=[0.0, 3.0, 6.0])
    p = 1 / (1 + np.exp(3 - np.array([0.0, 3.0, 6.0])))
    np.testing.assert_allclose(found.average, p, rtol=1e-12)
    np.testing.assert_allclose(found.individual, np.broadcast_to(p, (len(bags), 3)), rtol=1e-12)
    assert (found.name, found.kind) == ("signal", "bag")
    np.testing.assert_allclose(found.deciles, np.quantile(bags.X[:, 0], np.linspace(0.1, 0.9, 9)))
    other = partial_dependence(FirstFeature(1), bags, 0, kind="instance", grid=3)
    p = FirstFeature(1).predict_instance_proba(bags)[:, 1].reshape(-1, 3).mean(axis=1)
    np.testing.assert_allclose(other.individual, np.repeat(p[:, None], 3, axis=1), rtol=1e-12)
    low, high = np.quantile(bags.X[:, 0], [0.05, 0.95])
    np.testing.assert_allclose(other.grid_values, np.linspace(low, high, 3))


WRONG = [
    ({"n_repeats": 0}, ValueError, "n_repeats must be an integer of at least 1"),
    ({"columns": "signal"}, TypeError, r"pass \['signal'\]"),
    ({"columns": ["sginal"]}, ValueError, "no feature 'sginal'; there are signal, same, noise"),
    ({"columns": [3]}, ValueError, "numbers 0 to 2, got 3"),
    ({"columns": {"none": []}}, ValueError, "at least one feature"),
    ({"y": [0, 1]}, ValueError, "one entry per bag: 24; got 2"),
]


@pytest.mark.parametrize(("how", "kind", "message"), WRONG, ids=lambda v: str(v)[:30])
def test_wrong_arguments_of_importances(
    how: dict[str, object], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        permutation_importance(FirstFeature(), labelled(), **how)  # type: ignore[arg-type]


def test_what_cannot_be_looked_into_is_said() -> None:
    bags = labelled()
    with pytest.raises(ValueError, match="needs labels of the bags"):
        permutation_importance(FirstFeature(), bags.with_labels(None))
    with pytest.raises(ValueError, match=r"needs true labels, but bags\.instance_labels is None"):
        permutation_importance(
            FirstFeature(), bags.with_instance_labels(None), scoring="instance_roc_auc"
        )
    few = bw.Bags.from_arrays(sparse.csr_array(np.eye(4)), range(4), [0, 1, 0, 1])
    with pytest.raises(TypeError, match=r"dense array in memory.*toarray"):
        permutation_importance(FirstFeature(), few)
    with pytest.raises(ValueError, match="kind must be one of 'bag', 'instance'"):
        partial_dependence(FirstFeature(), bags, 0, kind="bags")
    with pytest.raises(ValueError, match="hardly varies"):
        partial_dependence(FirstFeature(), bags.with_X(np.ones((72, 1))), 0)
    with pytest.raises(ValueError, match="two rising shares"):
        partial_dependence(FirstFeature(), bags, 0, percentiles=(0.9, 0.1))
    with pytest.raises(ValueError, match="grid must be finite"):
        partial_dependence(FirstFeature(), bags, 0, grid=[np.nan])
    with pytest.raises(TypeError, match="one model per class"):
        partial_dependence(bw.OneVsRestMIL(bw.MIRVM()), bags, 0)


def test_displays_draw_what_was_found() -> None:
    pytest.importorskip("matplotlib").use("agg")
    from matplotlib import pyplot as plt

    bags = labelled()
    drawn = ImportanceDisplay.from_estimator(
        FirstFeature(), bags, scoring=bag_auc, n_repeats=2, random_state=0, max_features=2
    )
    assert drawn.ax_.get_yticklabels()[0].get_text() == "signal"
    assert len(drawn.ax_.patches) == 2 and drawn.ax_.get_title("left").startswith("the 2 largest")
    shown = DependenceDisplay.from_estimator(FirstFeature(), bags, "signal", grid=5)
    line = shown.ax_.lines[0]
    found = partial_dependence(FirstFeature(), bags, "signal", grid=5)
    np.testing.assert_allclose(line.get_ydata(), found.average)
    np.testing.assert_allclose(line.get_xdata(), found.grid_values)
    with pytest.raises(ValueError, match=r"\(bags, values of the grid\)"):
        DependenceDisplay([0.0], [0.5])
    plt.close("all")
