"""P(y_n = 1 | bag label, known labels): against enumeration, samples, and what must hold."""

from typing import Any

import mpmath
import numpy as np
import pytest
from scipy import special

import bagwise as bw
from bagwise.bags.graphs import neighbor_graph
from bagwise.core.likelihoods.at_least_one import BagLikelihood
from bagwise.core.likelihoods.coupled.blocks import Coupling
from bagwise.core.links import LINKS
from bagwise.core.posteriors.averaged import AveragedPosterior
from bagwise.core.posteriors.given_labels import BagDraws, BagLabels, given_labels
from bagwise.models import MODELS
from brute_force import LOG_POSITIVE, label_vectors, log_bag_given_labels
from toy_bags import separable_bags

NAN = np.nan
KNOWN = {
    "none": [NAN, NAN, NAN, NAN],
    "a negative": [NAN, 0.0, NAN, NAN],
    "a positive": [NAN, 1.0, NAN, NAN],
    "both": [0.0, 1.0, NAN, NAN],
}


def make_draws(link: str, kt: float = 0.0, shift: float = 0.0) -> BagDraws:
    rng = np.random.default_rng(0)
    base = np.array([-1.0, 0.3, -2.0, 0.8]) + shift
    U, points = rng.normal(size=(4, 3)), rng.normal(size=(64, 3))
    return BagDraws(LINKS[link](), base, U, points, np.full(4, kt))


def enumerated(draws: BagDraws, link: str, labels: BagLabels, H: float) -> tuple[Any, Any]:
    """Mean and spread of P(y_n = 1 | draw, labels), over all label vectors of all draws."""
    F = draws.base[:, None] + draws.loadings @ draws.points.T  # (n, s)
    Y = label_vectors(len(F), labels.known)
    log_p, log_q = LOG_POSITIVE[link](F), LOG_POSITIVE[link](-F)
    joint = np.exp(Y @ log_p + (1 - Y) @ log_q + log_bag_given_labels(Y, labels.T, H)[:, None])
    w = joint.sum(axis=0) / joint.sum()
    r = np.divide(
        Y.T @ joint, joint.sum(axis=0), where=joint.sum(axis=0) > 0, out=np.zeros(F.shape)
    )
    mean = r @ w
    return mean, np.sqrt((r - mean[:, None]) ** 2 @ w)


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("H", [np.inf, 5.0])
@pytest.mark.parametrize("T", [True, False])
@pytest.mark.parametrize("known", KNOWN)
def test_equals_enumeration(link: str, H: float, T: bool, known: str) -> None:
    labels = BagLabels(T, np.array(KNOWN[known]))
    if np.isinf(H) and not T and labels.settled:
        pytest.skip("a contradiction, which estimators refuse")
    draws = make_draws(link)
    both, std = given_labels(draws, labels, BagLikelihood(draws.link, H))
    wanted, spread = enumerated(draws, link, labels, H)
    np.testing.assert_allclose(both, np.column_stack([1 - wanted, wanted]), rtol=1e-9, atol=1e-14)
    mean = both[:, 1]
    np.testing.assert_allclose(std, spread, rtol=1e-7, atol=1e-9)
    np.testing.assert_array_equal(mean[~labels.free], labels.known[~labels.free])


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("T", [True, False])
def test_deviations_are_over_residuals_too(link: str, T: bool) -> None:
    """As those of `predict_instance_proba` are: by many draws of r, within first order."""
    draws, H = make_draws(link, kt=1.0), np.inf if T else 5.0
    labels = BagLabels(T, np.full(4, NAN))
    _, std = given_labels(draws, labels, BagLikelihood(draws.link, H))
    rng = np.random.default_rng(0)
    f = draws.base + np.repeat(draws.points @ draws.loadings.T, 500, axis=0)
    whole = BagDraws(draws.link, np.zeros(4), np.eye(4), f + rng.normal(size=f.shape), np.zeros(4))
    _, wanted = enumerated(whole, link, labels, H)
    np.testing.assert_allclose(std, wanted, rtol=0.2, atol=0.02)


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("shift", [-1000.0, -300.0, -40.0, 40.0, 1000.0])
@pytest.mark.parametrize("kt", [0.0, 0.5, 9.0])
def test_sure_and_wrong_models_give_numbers(link: str, shift: float, kt: float) -> None:
    """A positive bag that the model rules out still holds a positive: logs all the way."""
    draws = make_draws(link, kt, shift)
    likelihood = BagLikelihood(draws.link)
    both, std = given_labels(draws, BagLabels(True, np.full(4, NAN)), likelihood)
    mean = both[:, 1]
    assert np.all((both >= 0) & (both <= 1))
    np.testing.assert_allclose(both.sum(axis=1), 1, rtol=1e-12)
    assert mean.sum() >= 1 - 1e-9
    assert np.all((std >= 0) & (std <= 0.5 + 1e-12))
    only = given_labels(draws, BagLabels(True, np.array([0.0, NAN, 0.0, 0.0])), likelihood)[0]
    np.testing.assert_allclose(only[:, 1], [0, 1, 0, 0], atol=1e-9)


def one_draw(link: str, f: list[float]) -> BagDraws:
    n = len(f)
    return BagDraws(LINKS[link](), np.array(f), np.zeros((n, 1)), np.zeros((1, 1)), np.zeros(n))


@pytest.mark.parametrize("f", [[30.0, -60.0, -70.0], [-0.5, -45.0, -45.0], [3.0, 20.0, 25.0]])
@pytest.mark.parametrize("H", [np.inf, 100.0])
def test_the_rarer_label_has_its_digits(f: list[float], H: float) -> None:
    """P(y_n = 0 | T = 1) = q_n (1 - c prod of other q) / (1 - c prod of q), in many digits."""
    draws = one_draw("logistic", f)
    both, _ = given_labels(draws, BagLabels(True, np.full(3, NAN)), BagLikelihood(draws.link, H))
    with mpmath.workdps(80):
        c = 1 - (mpmath.mpf(0) if np.isinf(H) else mpmath.mpf(1) / H)
        q = [1 / (1 + mpmath.exp(mpmath.mpf(x))) for x in f]
        some = 1 - c * mpmath.fprod(q)
        wanted = [q[n] * (1 - c * mpmath.fprod(q[:n] + q[n + 1 :])) / some for n in range(3)]
        columns = np.array([[float(w), float(1 - w)] for w in wanted])
    np.testing.assert_allclose(both, columns, rtol=1e-9)


def test_a_sure_instance_keeps_the_digits_of_its_complement() -> None:
    both, _ = given_labels(
        one_draw("probit", [9.0, -1.0]),
        BagLabels(True, np.array([NAN, 1.0])),
        BagLikelihood(LINKS["probit"]()),
    )
    np.testing.assert_allclose(both[0, 0], special.ndtr(-9.0), rtol=1e-9)


@pytest.mark.parametrize("link", LINKS)
def test_smoothing_in_logs_equals_smoothing(link: str) -> None:
    f, kt = np.linspace(-6, 6, 25)[:, None], np.linspace(0, 8, 25)
    draws = BagDraws(LINKS[link](), f[:, 0], np.zeros((25, 1)), np.zeros((1, 1)), kt)
    _, log_p, log_q = next(draws.log_probabilities())
    moments = LINKS[link]().moments(f[:, 0], kt)
    np.testing.assert_allclose(log_q[:, 0], moments.log_negative, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(log_p[:, 0], moments.log_positive, rtol=1e-4, atol=1e-6)


# --- Models --------------------------------------------------------------------------------------

OWN: dict[str, dict[str, Any]] = {"IsingVGPMIL": {"neighbors": "chain", "coupling": 0.5}}
SETTINGS = [(name, {}) for name in sorted(MODELS)] + [
    ("ProbitVGPMIL", {"inference": "gibbs", "n_samples": 60, "burn_in": 30, "n_chains": 1}),
    ("ProbitVGPMIL", {"inference": "laplace"}),
    ("IsingVGPMIL", {"approximation": "vfe"}),
]


def fitted(name: str, settings: dict[str, Any], bags: bw.Bags) -> Any:
    gp = {"n_inducing": 10} if "n_inducing" in MODELS[name]._get_param_names() else {}
    return MODELS[name](random_state=0, **gp, **(OWN.get(name, {}) | settings)).fit(bags)


def prior_of(model: Any, bags: bw.Bags) -> Any:
    """P(y_n = 1) without labels, by what `instance_posterior` is a posterior of."""
    if isinstance(model.posterior_, AveragedPosterior):
        return model.posterior_.members[0].instances(bags.X)[0]
    return model.set_params(instance_score="posterior").predict_instance_proba(bags)[:, 1]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(("name", "settings"), SETTINGS, ids=str)
def test_every_model_keeps_what_labels_say(name: str, settings: dict[str, Any]) -> None:
    train, new = separable_bags(20, 3), separable_bags(12, 3, seed=1)
    model = fitted(name, settings, train)
    for bags in (train, new):
        p, std = model.instance_posterior(bags, return_std=True)
        assert p.shape == (bags.n_instances, 2)
        assert std.shape == (bags.n_instances,)
        np.testing.assert_allclose(p.sum(axis=1), 1)
        if np.isinf(model._likelihood().H):
            negative = np.repeat(bags.y == 0, bags.sizes)
            assert not np.any(p[negative, 1])
            assert not np.any(std[negative])
            sums = np.add.reduceat(p[:, 1], bags.offsets[:-1])
            assert np.all(sums[bags.y == 1] >= 1 - 1e-9)
            alone = np.repeat((bags.sizes == 1) & (bags.y == 1), bags.sizes)
            np.testing.assert_allclose(p[alone, 1], 1.0)
        assert np.all((p >= 0) & (p <= 1) & (std[:, None] >= 0))
        assert np.all(std**2 <= p[:, 0] * p[:, 1] + 1e-9)
        # A positive bag's instances are no less probable than without the label.
        positive = np.repeat(bags.y == 1, bags.sizes)
        prior = prior_of(model, bags)
        assert np.all(p[positive, 1] >= prior[positive] - 2e-3)


def test_known_labels_come_back_and_tell_about_others() -> None:
    bags = separable_bags(20, 3)
    model = bw.ProbitVGPMIL(kernel=None, n_inducing=10, random_state=0).fit(bags)
    large = bags[np.flatnonzero((bags.y == 1) & (bags.sizes >= 3))[:1]]
    known = np.full(large.n_instances, NAN)
    known[1] = 1.0
    told, std = model.instance_posterior(large.with_instance_labels(known), return_std=True)
    assert told[1].tolist() == [0, 1]
    assert std[1] == 0
    # A known positive explains the label, which has less to say of the most probable one.
    assert told[0, 1] < model.instance_posterior(large)[0, 1] - 0.01
    known[:] = 0.0
    known[1] = NAN
    settled = model.instance_posterior(large.with_instance_labels(known))[:, 1]
    np.testing.assert_allclose(settled, np.isnan(known), atol=1e-12)


def test_finite_H_takes_the_label_for_evidence() -> None:
    bags = separable_bags(20, 3)
    model = bw.VGPMIL(H=10.0, n_inducing=10, random_state=0).fit(bags)
    flipped = model.instance_posterior(bags, y=1 - bags.y)[:, 1]
    right = model.instance_posterior(bags)[:, 1]
    top = model.set_params(instance_score="posterior").predict_instance_proba(bags)[:, 1] > 0.9
    assert np.all(right[top] > flipped[top])
    assert np.all(flipped[top] > 0.2)  # a model that is sure believes in label noise


def monte_carlo(model: bw.IsingVGPMIL, bags: bw.Bags, n: int) -> np.ndarray:
    """(n, N) labels of one bag drawn from the predictive of the coupled model."""
    rng = np.random.default_rng(0)
    ((mu, kt, G),) = model.posterior_.bag_features(bags.X, bags.offsets)
    W = neighbor_graph(None, bags.offsets, "chain")
    sigma = Coupling(W, model.coupling_).solve(np.eye(len(mu)))
    f = mu + rng.normal(size=(n, G.shape[1])) @ G.T + rng.normal(size=(n, len(mu))) * np.sqrt(kt)
    return f @ sigma + rng.normal(size=(n, len(mu))) @ np.linalg.cholesky(sigma).T > 0


@pytest.mark.parametrize("known", [[NAN] * 5, [NAN, 0.0, NAN, NAN, NAN], [1.0] + [NAN] * 4])
def test_coupled_model_equals_samples(known: list[float]) -> None:
    bags = separable_bags(30, 3)
    model = bw.IsingVGPMIL(neighbors="chain", coupling=1.0, n_inducing=10, random_state=0)
    model.fit(bags)
    bag = bags[np.flatnonzero(bags.sizes == 5)[:1]].with_labels([1]).with_instance_labels(known)
    Y = monte_carlo(model, bag, 400_000)
    agrees = np.all(np.isnan(known) | ((np.array(known) == 1) == Y), axis=1) & Y.any(axis=1)
    wanted = Y[agrees].mean(axis=0)
    error = 5 * np.sqrt(wanted * (1 - wanted) / agrees.sum()) + 0.01  # samples, and EP
    assert np.all(np.abs(model.instance_posterior(bag)[:, 1] - wanted) <= error)


@pytest.mark.parametrize("kind", [bw.ProbitVGPMIL, bw.VGPMIL])
def test_gaussian_process_equals_samples(kind: Any) -> None:
    bags = separable_bags(30, 3)
    model = kind(n_inducing=10, random_state=0).fit(bags)
    bag = bags[np.flatnonzero(bags.sizes == 5)[:1]].with_labels([1])
    ((mu, kt, G),) = model.posterior_.bag_features(bag.X, bag.offsets)
    rng = np.random.default_rng(0)
    n = 400_000
    f = mu + rng.normal(size=(n, G.shape[1])) @ G.T + rng.normal(size=(n, 5)) * np.sqrt(kt)
    p = np.exp(LOG_POSITIVE[model.posterior_.link](f))
    seen = 1 - np.prod(1 - p, axis=1)
    wanted = p.mean(axis=0) / seen.mean()
    error = 5 * np.std(p - wanted * seen[:, None], axis=0) / seen.mean() / np.sqrt(n)
    assert np.all(np.abs(model.instance_posterior(bag)[:, 1] - wanted) <= error + 2e-3)


def test_labels_are_needed_and_checked() -> None:
    bags = separable_bags(20, 3)
    model = bw.MIRVM().fit(bags)
    with pytest.raises(ValueError, match="needs the label of every bag"):
        model.instance_posterior(bags.with_labels(None))
    with pytest.raises(ValueError, match=r"model's classes \[0, 1\], but bag 0 has 'a'"):
        model.instance_posterior(bags, y=["a"] * 20)
    with pytest.raises(ValueError, match="no positive instance"):
        model.instance_posterior(bags.with_instance_labels(np.ones(bags.n_instances)))
    as_list = [np.array(b.X) for b in bags]
    np.testing.assert_array_equal(
        model.instance_posterior(as_list, y=bags.y), model.instance_posterior(bags)
    )


def test_several_classes_have_a_column_each() -> None:
    bags = separable_bags(24, 3)
    kinds = np.where(bags.y == 1, "bee", "cow")
    model = bw.OneVsRestMIL(bw.MIRVM()).fit(bags, kinds)
    p, std = model.instance_posterior(bags, return_std=True, y=kinds)
    assert p.shape == std.shape == (bags.n_instances, 2)
    of_bag = kinds[bags.bag_index]
    assert not np.any(p[of_bag == "cow", 0])
    assert not np.any(p[of_bag == "bee", 1])
    with pytest.raises(ValueError, match="got 'owl'"):
        model.instance_posterior(bags, y=["owl"] * 24)


def test_tasks_have_their_own() -> None:
    bags = separable_bags(24, 3)
    model = bw.MultiTaskMIRVM().fit({"a": bags[:12], "b": bags[12:]})
    p = model.instance_posterior(bags[:12], task="a")
    np.testing.assert_array_equal(p, model.for_task("a").instance_posterior(bags[:12]))


def test_one_more_view_of_the_closed_form() -> None:
    """E[p] / (1 - E[P0]) of a bag without known labels, from the same draws."""
    draws = make_draws("logistic")
    F = draws.base[:, None] + draws.loadings @ draws.points.T
    p = special.expit(F)
    both, _ = given_labels(draws, BagLabels(True, np.full(4, NAN)), BagLikelihood(draws.link))
    np.testing.assert_allclose(both[:, 1], p.mean(axis=1) / (1 - np.prod(1 - p, axis=0).mean()))


def test_copies_of_a_known_positive_are_likely_positive() -> None:
    """Ten copies far from Z share f ~ N(c0, 1): P(y | y_k = 1) = E Phi(f)^2 / E Phi(f).

    Few points lie where a rare positive puts f, hence the tolerance; without what copies share it
    would be a thousandth.
    """
    rng = np.random.default_rng(0)
    train = bw.Bags.from_list([rng.normal(size=(3, 2)) for _ in range(10)], y=[0, 1] * 5)
    nodes, weights = np.polynomial.hermite_e.hermegauss(200)
    for c0, tolerance in ((-4.0, 0.3), (-6.0, 0.95)):
        given = {"kernel": bw.kernels.RBF(1.0, 1.0), "mean": c0, "learn_hyperparameters": False}
        model = bw.ProbitVGPMIL(**given, n_inducing=5, bag_score="joint", random_state=0).fit(train)
        copies = bw.Bags.from_list([np.full((10, 2), 50.0)], y=[1])
        copies = copies.with_instance_labels([1] + 9 * [-1])
        p = special.ndtr(c0 + nodes)
        truth = weights @ p**2 / (weights @ p)
        np.testing.assert_allclose(model.instance_posterior(copies)[1:, 1], truth, rtol=tolerance)


def test_a_bag_of_one_block_is_gone_through_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    points = rng.standard_normal((64, 2))
    link = LINKS["probit"]()
    draws = BagDraws(link, rng.normal(size=6), rng.normal(size=(6, 2)), points, np.ones(6))
    labels, likelihood = BagLabels(True, np.full(6, np.nan)), BagLikelihood(link)
    calls = []
    block = BagDraws._block
    monkeypatch.setattr(BagDraws, "_block", lambda self, i: calls.append(i) or block(self, i))
    kept = given_labels(draws, labels, likelihood)
    assert calls == [0]
    monkeypatch.setattr("bagwise.core.posteriors.given_labels.ROWS_PER_BLOCK", 4)
    for ours, theirs in zip(kept, given_labels(draws, labels, likelihood), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-10)
