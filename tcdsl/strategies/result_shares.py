"""Which results of a contraction each thread has, when all threads go through the same terms.

    K(f,r,s,c) +=! O(n,h,w,f) * I(n,h+r,w+s,c)         8 threads, tiles of 8 values of f

        threads over f / 8:                            8 shares of the results
            chunks of n, h:                            whose operands stay in a thread's cache
                r, s, c / 32: a tile

Shares are boxes, along one or two of the results' dimensions: no two threads add to one result, and
sums are those of one thread.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import combinations, product
from math import ceil, prod

Shares = dict[int, int]  # dimension -> tiles along it in a share; others are not cut


def choose_shares(
    tiles: Mapping[int, int], threads: int, bytes_of: Callable[[Shares], int]
) -> Shares:
    """Return the shares of *threads* threads whose busiest thread has the fewest tiles.

    :arg tiles: of each dimension of results, how many there are.
    :arg bytes_of: what all threads read; of equally busy threads the least.
    """

    def busiest(shares: Shares) -> int:
        number = prod(ceil(tiles[d] / size) for d, size in shares.items())
        return ceil(number / threads) * prod({**tiles, **shares}.values())

    found = [(busiest(shares), shares) for shares in _cuts(tiles, threads)]
    least = min(most for most, _ in found)
    return min((shares for most, shares in found if most == least), key=bytes_of)


def _cuts(tiles: Mapping[int, int], threads: int) -> Iterator[Shares]:
    """Yield the ways to cut none, one or two dimensions."""
    sizes = {
        d: list(dict.fromkeys(ceil(n / count) for count in range(2, min(n, threads) + 1)))
        for d, n in tiles.items()
    }
    for number in range(3):
        for dims in combinations(tiles, number):
            for chosen in product(*(sizes[d] for d in dims)):
                yield dict(zip(dims, chosen, strict=True))
