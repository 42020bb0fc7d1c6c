"""The optimizer of all fits: least squares scaled by prior widths."""

import abc
import dataclasses
from collections.abc import Callable

import numpy as np
from jaxtyping import Float
from scipy.optimize import least_squares


@dataclasses.dataclass(frozen=True)
class Minimum:
    """Result of a descent: unknowns z, cost (half the sum of squares), evaluations of
    the residuals, and information matrix (J^T J).

    `interrupted`: Ctrl-C ended it; `z` is the best point so far, and `information`
    that of the priors alone.
    """

    z: Float[np.ndarray, " p"]
    cost: float
    evaluations: int
    information: Float[np.ndarray, "p p"]
    interrupted: bool


class LeastSquares(abc.ABC):
    """Least-squares problem: residuals of readings and priors, and their Jacobian."""

    width: Float[np.ndarray, " p"]
    """sd of the prior of each unknown."""

    @abc.abstractmethod
    def residuals(self, z: Float[np.ndarray, " p"]) -> Float[np.ndarray, " r"]:
        """Residuals of the readings, then of the priors."""

    @abc.abstractmethod
    def jacobian(self, z: Float[np.ndarray, " p"]) -> Float[np.ndarray, "r p"]:
        """Jacobian of `residuals`."""

    def minimise(
        self,
        begin: Float[np.ndarray, " p"],
        max_steps: int,
        cost_tolerance: float,
        step_tolerance: float,
        progress: Callable[[int, float], None] | None = None,
    ) -> Minimum:
        """Minimises by Gauss-Newton steps with a trust region from `begin`.

        Tolerances are relative changes of the cost and of the unknowns at which the
        descent ends. `progress` is called with the number of evaluations and the cost.
        An interrupt (Ctrl-C) gives the best point so far.
        """
        best, lowest, evaluations, interrupted = begin, np.inf, 0, False

        def residuals(z: np.ndarray) -> np.ndarray:
            nonlocal best, lowest, evaluations
            residual = self.residuals(z)
            cost = 0.5 * float(residual @ residual)
            if cost < lowest:
                best, lowest = z.copy(), cost
            evaluations += 1
            if progress is not None:
                progress(evaluations, cost)
            return residual

        try:
            result = least_squares(
                residuals,
                begin,
                jac=self.jacobian,  # pyright: ignore[reportArgumentType]
                method="trf",
                x_scale=self.width,
                max_nfev=max_steps,
                ftol=cost_tolerance,
                xtol=step_tolerance,
            )
            information = result.jac.T @ result.jac
        except KeyboardInterrupt:
            interrupted, information = True, np.diag(self.width**-2)
        return Minimum(best, lowest, evaluations, information, interrupted)
