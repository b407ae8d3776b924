"""Anderson acceleration of a fixed-point map: fewer sweeps to the same optimum."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


class Anderson:
    """Extrapolates x_{k+1} from the last few pairs (x, G(x)) [Walker & Ni 2011, Eq. 2.1].

    >>> A = np.array([[0.9, 0.1], [0.0, 0.5]])
    >>> b = np.array([1.0, 1.0])
    >>> x, mixing = np.zeros(2), Anderson(memory=5)
    >>> for _ in range(4):
    ...     x = mixing.propose(x, A @ x + b)
    >>> bool(np.allclose(x, np.linalg.solve(np.eye(2) - A, b)))
    True
    """

    def __init__(self, memory: int = 8) -> None:
        self.memory = memory
        self._images: list[Array] = []
        self._residuals: list[Array] = []

    def clear(self) -> None:
        """Forget the past, after a proposal was rejected."""
        self._images.clear()
        self._residuals.clear()

    def memory_arrays(self) -> tuple[list[Array], list[Array]]:
        """The pairs that are remembered, as `restore` takes them."""
        return list(self._images), list(self._residuals)

    def restore(self, images: list[Array], residuals: list[Array]) -> None:
        """Go on with the memory of another run."""
        self._images, self._residuals = list(images), list(residuals)

    def propose(self, x: Array, image: Array) -> Array:
        """The next x, given x and its image G(x)."""
        self._images = [*self._images, image][-self.memory - 1 :]
        self._residuals = [*self._residuals, image - x][-self.memory - 1 :]
        if len(self._images) == 1:
            return image
        dR = np.diff(np.array(self._residuals), axis=0).T  # (len(x), k)
        dG = np.diff(np.array(self._images), axis=0).T
        # A coarse cut-off: directions that rounding dominates are left out.
        gamma = np.linalg.lstsq(dR, self._residuals[-1], rcond=1e-6)[0]
        return image - dG @ gamma
