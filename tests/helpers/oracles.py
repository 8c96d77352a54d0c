"""Slow, literal computations to hold the package against; nothing here imports it."""

import math

import numpy as np
from scipy.optimize import minimize


def logistic(margin):
    return math.log1p(math.exp(-margin)) if margin > 0 else -margin + math.log1p(math.exp(margin))


def huber_hinge(margin):
    if margin > 1.5:
        return 0.0
    if margin < 0.5:
        return 1.0 - margin
    return (1.5 - margin) ** 2 / 2.0


def squared(margin):
    return (1.0 - margin) ** 2 / 2.0


VALUES = {"logistic": logistic, "huber-hinge": huber_hinge, "squared": squared}


def slope(loss, margins):
    if loss == "logistic":
        return -1.0 / (1.0 + np.exp(np.minimum(margins, 700.0)))
    if loss == "huber-hinge":
        return np.where(margins > 1.5, 0.0, np.where(margins < 0.5, -1.0, margins - 1.5))
    return margins - 1.0


def curvature(loss, margins):
    if loss == "logistic":
        return 1.0 / (4.0 * np.cosh(np.clip(margins, -700, 700) / 2.0) ** 2)
    if loss == "huber-hinge":
        return np.where((margins > 0.5) & (margins < 1.5), 1.0, 0.0)
    return np.ones_like(margins)


def local_value(w, rows, labels, *, loss, weight, convexity, linear):
    """The local objective, row by row."""
    total = 0.0
    for x, y in zip(rows, labels, strict=True):
        total += VALUES[loss](y * sum(a * b for a, b in zip(w, x, strict=True)))
    total *= weight / len(rows)
    total += convexity / 2.0 * sum(a * a for a in w)
    return total + sum(a * b for a, b in zip(w, linear, strict=True))


def local_gradient(w, rows, labels, *, loss, weight, convexity, linear):
    signed = rows * np.asarray(labels)[:, None]
    slopes = slope(loss, signed @ w)
    return weight / len(rows) * (signed.T @ slopes) + convexity * w + linear


def local_hessian(w, rows, labels, *, loss, weight, convexity, linear):
    signed = rows * np.asarray(labels)[:, None]
    bends = curvature(loss, signed @ w)
    return weight / len(rows) * (signed.T * bends) @ signed + convexity * np.eye(len(w))


def minimise(value, gradient, hessian, start):
    found = minimize(
        value, start, jac=gradient, hess=hessian, method="trust-exact", options={"gtol": 1e-11}
    )
    # A few undamped Newton steps take it from scipy's stopping point to rounding.
    point = found.x
    for _ in range(3):
        point = point - np.linalg.solve(hessian(point), gradient(point))
    return point if np.linalg.norm(gradient(point)) < np.linalg.norm(found.jac) else found.x


def solve_local(rows, labels, **problem):
    """The minimiser of one local objective, by scipy."""

    def value(w):
        signed = rows * np.asarray(labels)[:, None]
        losses = [VALUES[problem["loss"]](m) for m in signed @ w]
        quadratic = problem["convexity"] / 2.0 * (w @ w) + problem["linear"] @ w
        return problem["weight"] / len(rows) * math.fsum(losses) + quadratic

    return minimise(
        value,
        lambda w: local_gradient(w, rows, labels, **problem),
        lambda w: local_hessian(w, rows, labels, **problem),
        np.zeros(rows.shape[1]),
    )


def augmented_lagrangian_minimum(party, own, others, dual, *, eta, rho, weight, loss):
    """Zhang and Zhu's (9) and (10) at one node: ``own`` is f_p(t), ``others`` its neighbours'."""
    rows, labels = party
    signed = rows * np.asarray(labels)[:, None]
    scale = weight / len(signed)

    def value(w):
        total = scale * sum(VALUES[loss](m) for m in signed @ w) + rho / 2.0 * (w @ w)
        total += 2.0 * dual @ w
        for other in others:
            total += eta * np.sum((w - (own + other) / 2.0) ** 2)
        return total

    def gradient(w):
        total = scale * (signed.T @ slope(loss, signed @ w)) + rho * w + 2.0 * dual
        for other in others:
            total = total + 2.0 * eta * (w - (own + other) / 2.0)
        return total

    def hessian(w):
        total = scale * (signed.T * curvature(loss, signed @ w)) @ signed
        return total + (rho + 2.0 * eta * len(others)) * np.eye(len(w))

    return minimise(value, gradient, hessian, own)


def decentralised_admm(parties, neighbours, *, rounds, eta, lam, weights, loss="logistic"):
    """Zhang and Zhu's (9)-(11), node by node; the duals are halved, as they write them.

    Returns the messages of every round and the last duals.
    """
    count, dimension = len(parties), parties[0][0].shape[1]
    f = [np.zeros(dimension) for _ in range(count)]
    dual = [np.zeros(dimension) for _ in range(count)]
    history = []
    for _ in range(rounds):
        f = [
            augmented_lagrangian_minimum(
                parties[p],
                f[p],
                [f[j] for j in neighbours[p]],
                dual[p],
                eta=eta,
                rho=lam / count,
                weight=weights[p],
                loss=loss,
            )
            for p in range(count)
        ]
        for p in range(count):
            for j in neighbours[p]:
                dual[p] = dual[p] + eta / 2.0 * (f[p] - f[j])
        history.append(np.array(f))
    return history, np.array(dual)


def consensus_admm(parties, *, rounds, rho, lam, weights, loss="logistic"):
    """The star with the server's own formula; lambda_i is kept for each party. lam is 2R."""
    count, dimension = len(parties), parties[0][0].shape[1]
    z = np.zeros(dimension)
    duals = [np.zeros(dimension) for _ in range(count)]
    history = []
    for _ in range(rounds):
        x = [
            solve_local(
                rows,
                labels,
                loss=loss,
                weight=weights[p],
                convexity=rho,
                linear=duals[p] - rho * z,
            )
            for p, (rows, labels) in enumerate(parties)
        ]
        z = sum(rho * x[p] + duals[p] for p in range(count)) / (lam + count * rho)
        duals = [duals[p] + rho * (x[p] - z) for p in range(count)]
        history.append(np.array(x))
    return history, z, np.array(duals)


def pooled_optimum(parties, *, lam, weights, loss="logistic"):
    """The minimiser of ``sum_i (c_i / n_i) sum l + lam / 2 ||w||^2``."""
    signed = [rows * np.asarray(labels)[:, None] for rows, labels in parties]
    dimension = signed[0].shape[1]

    def value(w):
        total = lam / 2.0 * (w @ w)
        for c, u in zip(weights, signed, strict=True):
            total += c / len(u) * sum(VALUES[loss](m) for m in u @ w)
        return total

    def gradient(w):
        total = lam * w
        for c, u in zip(weights, signed, strict=True):
            total = total + c / len(u) * (u.T @ slope(loss, u @ w))
        return total

    def hessian(w):
        total = lam * np.eye(dimension)
        for c, u in zip(weights, signed, strict=True):
            total = total + c / len(u) * (u.T * curvature(loss, u @ w)) @ u
        return total

    return minimise(value, gradient, hessian, np.zeros(dimension))


def random_parties(seed, counts, dimension, *, noise=0.5):
    """Rows of norm at most 1 and labels of -1 and +1 for each party."""
    random = np.random.default_rng(seed)
    truth = random.normal(size=dimension)
    parties = []
    for count in counts:
        rows = random.normal(size=(count, dimension))
        rows /= np.maximum(np.linalg.norm(rows, axis=1), 1.0)[:, None]
        labels = np.where(rows @ truth + noise * random.normal(size=count) > 0, 1.0, -1.0)
        parties.append((rows, labels))
    return parties


def svrg(
    rows, labels, *, loss, weight, start, gradient, linear, rho, eta, batches, thetas, combine
):
    """One inner loop of PS-ADMM, step by step in numpy; ``combine(v, later)`` is hat v.

    ``thetas(s, v)`` is the noise of step s at v; batches start at the second step.
    """
    signed = rows * np.asarray(labels)[:, None]
    point, combined = start.copy(), []
    for s in range(len(batches) + 1):
        noisy = gradient + linear + rho * point + thetas(s, point)
        if s > 0:
            taken = signed[batches[s - 1]]
            difference = slope(loss, taken @ point) - slope(loss, taken @ start)
            noisy = noisy + weight * (taken * difference[:, None]).mean(axis=0)
        later = point - eta * noisy
        combined.append(combine(point, later))
        point = later
    return np.mean(combined, axis=0)


def stochastic_admm(parties, *, rounds, steps, rho, lam, weights, eta, coefficients, draw, theta):
    """PS-ADMM's Algorithm 2 as printed, with s = 0..S-1; lam is 2R, logistic loss.

    ``coefficients(i)`` are zeta and xi, ``draw(i, k)`` the batches, ``theta(i, k, s)`` the noise.
    """
    count, dimension = len(parties), parties[0][0].shape[1]
    x = [np.zeros(dimension) for _ in range(count)]
    z, duals = np.zeros(dimension), [np.zeros(dimension) for _ in range(count)]
    for k in range(rounds):
        for i, (rows, labels) in enumerate(parties):
            zeta, xi = coefficients(i)
            signed = rows * np.asarray(labels)[:, None]
            full = weights[i] / len(rows) * signed.T @ slope("logistic", signed @ x[i])
            x[i] = svrg(
                rows,
                labels,
                loss="logistic",
                weight=weights[i],
                start=x[i],
                gradient=full,
                linear=duals[i] - rho * z,
                rho=rho,
                eta=eta[i],
                batches=draw(i, k),
                thetas=lambda s, v, i=i, k=k: theta(i, k, s),
                combine=lambda v, later, i=i, zeta=zeta, xi=xi: (
                    (zeta * v + xi * later) / (2 * eta[i])
                ),
            )
        z = sum(rho * x[i] + duals[i] for i in range(count)) / (lam + count * rho)
        duals = [duals[i] + rho * (x[i] - z) for i in range(count)]
    return np.array(x), z
