"""Who fills the tiles of a step: threads some steps ahead, or a producer's warp, whole boxes.

for k / 32:  A.tile = A[128 m0 + e0, 32 k0 + e1], or 0
             part += A.tile * B.tile
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tcdsl.poly.loop_tree import AffineCoordinate, AnyCoordinate, Coordinate, LoopKind
from tcdsl.poly.scop import PRODUCER
from tcdsl.rewrites.scop.caching import Buffer, Cached, cache_read
from tcdsl.rewrites.scop.packing import Packed
from tcdsl.strategies.fragments import At, Level, boxed, copied, vector_of
from tcdsl.strategies.joint_products import Factor
from tcdsl.strategies.schedule import Tensor
from tcdsl.strategies.tensor_tree import TensorKernel


def with_copy(kernel: TensorKernel, product: Tensor, factor: Factor) -> TensorKernel:
    """Return *kernel* with the *factor* of products from a tile, and what fills that."""
    (lead, number), array = factor.uses[0], factor.array
    around = {
        name: tuple(at for at, _ in around_of(kernel, name, runs_on=product.boxes))
        for name, _ in factor.uses
    }
    only = {kernel.scop.by_name[name].reads[n].subscripts for name, n in factor.uses}
    blocks, turns = _blocks_and_turns(kernel)
    told = range(len(blocks), len(blocks) + len(turns)) if kernel.step[lead].runs_on else ()
    tile = Buffer(f"{array}.tile{number}{lead}", is_padded=True, told=told)
    cached = cache_read(kernel.scop, array, around, tile, only)
    if product.boxes:
        return with_producers_copy(kernel, cached, (lead, *product.products))
    ahead = ahead_of(kernel.step[lead], cached.outer[-1], product.stages - 1)
    is_shifted = product.tiles.together > 1
    outer = [
        {**loop, cached.copy: along(loop[lead], cached.outer[depth])}
        for depth, loop in enumerate(kernel.outer)
    ]
    lines = [d for d, size in enumerate(cached.sizes) if size > 1]
    line, within = (At(cached.elements[d]) for d in lines)
    sizes, vector = [cached.sizes[d] for d in lines], vector_of(kernel.scop.arrays[array])
    return replace(
        kernel,
        scop=cached.scop,
        outer=tuple(outer),
        step={**kernel.step, cached.copy: ahead},
        inside=in_order((*kernel.inside, cached.copy), product.products, is_shifted=is_shifted),
        levels={**kernel.levels, cached.copy: copied(line, within, sizes, product.tiles, vector)},
        staged=(*kernel.staged, cached.array),
    )


def with_producers_copy(
    kernel: TensorKernel, cached: Cached, products: Sequence[str]
) -> TensorKernel:
    """Return *kernel* with the copy *cached* made by its producer.

    :arg products: that which reads it, then all of them.
    """
    lead, *every = products
    copy = replace(cached.scop.by_name[cached.copy], role=PRODUCER)
    own = (copy if s.name == copy.name else s for s in cached.scop.statements)
    kernel = replace(kernel, scop=cached.scop.with_statements(tuple(own)))
    return with_producer(kernel, cached, cached.sizes, lead, every)


def around_of(
    kernel: TensorKernel, name: str, *, runs_on: bool = True
) -> list[tuple[AnyCoordinate, int]]:
    """Return the coordinates of a tile's copy and their extents: blocks, and the step's number.

    They are those of the product *name*.  The number of a step *runs on* over the tiles of a block,
    or begins anew with each (copies that threads ask for some steps ahead):

        for b0 / 2, b1 / 3, k / 32:   24 steps of 4 each are 12 (b0 % 2) + 4 (b1 % 3) + k / 32
    """
    step = kernel.step[name]
    blocks, turns = _blocks_and_turns(kernel) if runs_on else (kernel.outer, [])
    own: list[tuple[AnyCoordinate, int]]
    own = [(loop[name].coordinate, loop[name].extent) for loop in blocks]
    if not turns:
        return [*own, (step.coordinate, step.extent)]
    if step.runs_on:
        around = [(loop[name].coordinate, loop[name].extent) for loop in turns]
        return [*own, *around, (step.coordinate, step.extent)]
    digits, count = [(1, step.coordinate)], step.extent
    for turn in (loop[name] for loop in reversed(turns)):
        digits.insert(0, (count, turn.coordinate))
        count *= turn.extent
    return [*own, (AffineCoordinate(tuple(digits)), count)]


def _blocks_and_turns(
    kernel: TensorKernel,
) -> tuple[list[Mapping[str, Level]], list[Mapping[str, Level]]]:
    """Return the loops over blocks, and those over the tiles of one."""
    is_block = [loop[kernel.name].kind is LoopKind.BLOCK for loop in kernel.outer]
    blocks = [loop for loop, own in zip(kernel.outer, is_block, strict=True) if own]
    return blocks, [loop for loop, own in zip(kernel.outer, is_block, strict=True) if not own]


def with_producer(
    kernel: TensorKernel,
    done: Cached | Packed,
    sizes: Sequence[int],
    lead: str,
    products: Sequence[str],
) -> TensorKernel:
    """Return *kernel*, whose scop has the copy of *done*, with that copy as a producer's.

    Its dimensions are those of :func:`around_of` for *lead*, one of the *products*, and the *sizes*
    of a tile.  The producer's loop is its own: nothing is shifted.
    """
    kernel = with_turns(kernel, done, lead)
    return replace(
        kernel,
        inside=in_order((*kernel.inside, done.copy), products, is_shifted=False),
        levels={**kernel.levels, done.copy: boxed(done.elements, sizes)},
        staged=(*kernel.staged, done.array),
    )


def with_turns(kernel: TensorKernel, done: Cached | Packed, lead: str) -> TensorKernel:
    """Return *kernel* with the copy of *done* in its loops over blocks, tiles and steps."""
    step = kernel.step[lead]
    blocks, turns = _blocks_and_turns(kernel)
    outer = [
        {**loop, done.copy: along(loop[lead], done.outer[depth])}
        for depth, loop in enumerate(blocks)
    ]
    if step.runs_on:
        *before, time = done.outer
        outer += [
            {**loop, done.copy: along(loop[lead], place)}
            for loop, place in zip(turns, before[len(blocks) :], strict=True)
        ]
        steps = {**kernel.step, done.copy: along(step, time)}
        return replace(kernel, outer=tuple(outer), step=steps)
    time, count = done.outer[len(blocks)], step.extent
    own = Coordinate(time, 0, 1, count if turns else 0)
    for number, loop in enumerate(reversed(turns), 1):
        turn = loop[lead]
        digit = Coordinate(time, 0, count, turn.extent if number < len(turns) else 0)
        outer.insert(len(blocks), {**loop, done.copy: replace(turn, coordinate=digit)})
        count *= turn.extent
    steps = {**kernel.step, done.copy: replace(step, coordinate=own)}
    return replace(kernel, outer=tuple(outer), step=steps)


def in_order(names: Sequence[str], products: Sequence[str], *, is_shifted: bool) -> tuple[str, ...]:
    """Return the statements of a step: copies first, unless products go on meanwhile."""
    copies = [name for name in names if name not in products]
    return (*products, *copies) if is_shifted else (*copies, *products)


def along(level: Level, position: int) -> Level:
    """Return *level* for a copy, whose dimension *position* is the loop's iteration."""
    return replace(level, coordinate=Coordinate(position))


def ahead_of(level: Level, position: int, steps: int) -> Level:
    """Return *level* for a copy that runs some *steps* before what uses it."""
    return replace(level, coordinate=Coordinate(position, steps), extent=level.extent + steps)
