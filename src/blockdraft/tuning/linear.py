"""A few linear equations, solved."""

from collections.abc import Sequence


def solve(matrix: Sequence[Sequence[float]], right: Sequence[float]) -> list[float]:
    """x with `matrix` x = `right`, for a positive definite matrix (Gaussian elimination)."""
    rows = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    num = len(rows)
    for at in range(num):
        pivot = max(range(at, num), key=lambda r: abs(rows[r][at]))
        rows[at], rows[pivot] = rows[pivot], rows[at]
        for below in range(at + 1, num):
            factor = rows[below][at] / rows[at][at]
            rows[below] = [x - factor * y for x, y in zip(rows[below], rows[at], strict=True)]
    found = [0.0] * num
    for at in reversed(range(num)):
        known = sum(rows[at][j] * found[j] for j in range(at + 1, num))
        found[at] = (rows[at][num] - known) / rows[at][at]
    return found
