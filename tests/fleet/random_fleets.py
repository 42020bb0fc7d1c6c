"""Made-up fleets of any size."""

import numpy as np

from diffenergy.fleet._problem import Problem, Rows


def random_fleet(
    seed: int,
    models: int,
    pools: int,
    gpus: int,
    *,
    clocks: int = 20,
    batches: int = 9,
    slots: int = 1,
    used: float = 0.65,
    tight: float | None = 0.8,
    start: float = 0.0,
) -> Problem:
    """Models of 1 to 70 G parameters on GPU types of different speed and power at two
    sites; `used`: share of the GPUs that the demand takes in the mean; `tight`: budget
    of the first site over what half of the fleet draws; `start`: s of loading."""
    draw = np.random.default_rng(seed)
    size = 10 ** draw.uniform(0, 1.8, models)
    speed, top = draw.uniform(0.4, 2.5, pools), draw.uniform(250, 700, pools)
    n = np.where(size[:, None] > 25, draw.choice([2, 4], (models, 1)), 1)
    n = np.broadcast_to(n, (models, pools))
    clock = np.linspace(0.4, 1.0, clocks)
    batch = 2.0 ** np.arange(batches)
    grid = np.meshgrid(np.arange(models), np.arange(pools), clock, batch, indexing="ij")
    flat: list[np.ndarray] = [x.reshape(-1) for x in grid]
    m, g, c, b = flat[0].astype(int), flat[1].astype(int), flat[2], flat[3]
    fit = draw.uniform(0.8, 1.25, (models, pools))[m, g]
    memory = size[m] / (speed[g] * fit * n[m, g] * (0.3 + 0.7 * np.minimum(1, 1.6 * c)))
    tpot = 0.002 * memory * (1 + b / (40 * c))
    rate = b / (128 * tpot)
    power = n[m, g] * top[g] * (0.28 + 0.2 * c + (0.25 + 0.27 * b / (b + 40)) * c**2.5)
    good = tpot < 0.002 * size[m] * 6 / speed.mean()
    rows = Rows(
        m, g, n[m, g].astype(float), rate, power, 10 * tpot, tpot, c * 2e9,
        np.full(len(m), np.nan), b, np.arange(len(m)),
    ).take(good)  # fmt: skip
    site = np.arange(pools) % 2
    count = np.full(pools, round(gpus / pools), float)
    best = np.zeros((models, pools))
    np.maximum.at(best, (rows.model, rows.pool), rows.rate / rows.gpus)
    share = draw.dirichlet(np.full(models, 3.0))
    wanted = used * count.sum() * share * np.median(best, axis=1)
    hour = np.arange(slots)
    shape = 1 + 0.4 * np.sin(2 * np.pi * (hour - 8) / 24) if slots > 1 else np.ones(1)
    noise = draw.uniform(0.9, 1.1, (slots, models))
    intensity = np.stack([135 + 0 * hour, 300 + 60 * np.sin(hour / 4)], axis=1)
    parked = draw.uniform(30, 90, pools)
    budget = np.full((slots, 2), np.inf)
    if tight is not None:
        half = 1.2 * (count * top * 0.8)[site == 0].sum()
        budget[:, 0] = tight * half
    return Problem(
        rows, shape[:, None] * noise * wanted, count, parked, site,
        np.array([1.2, 1.3]), budget, intensity / 3.6e6,
        start * rows.power, 3600.0, tuple(f"m{i}" for i in range(models)),
        tuple(f"g{i}" for i in range(pools)), ("a", "b"),
    )  # fmt: skip


def quiet(*_: object) -> None:
    """Hears of progress."""
