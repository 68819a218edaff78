"""The statements about long rows, which ranges from data alone tie together, as one group.

    long[s,c,e]: w(s,c) += f(list(s), e)       axes {s, c}
    add[s,c]:    y(list(s)) += w(s,c)

An axis that data bound is no axis for others: what they run of it is not known.  These statements
(rewrites/scop/long_rows) run for the same s and c, of which there are few.
"""

from collections.abc import Mapping, Sequence

from tcdsl.costmodel.locality import Shape
from tcdsl.poly.data_ranges import range_of_dim
from tcdsl.schedule.fusion import Group


def with_long_groups(groups: Sequence[Group], shapes: Mapping[str, Shape]) -> list[Group]:
    """Return *groups*, neighbours as one whose first two dimensions have equal ranges from data."""
    found: list[Group] = []
    for group in groups:
        key = _key(group, shapes)
        if found and key is not None and key == _key(found[-1], shapes):
            members = (*found[-1].members, *group.members)
            found[-1] = Group(members, tuple(dict.fromkeys(members, dim) for dim in (0, 1)))
        else:
            found.append(group)
    return found


def _key(group: Group, shapes: Mapping[str, Shape]) -> object:
    """Return what bounds the first two dimensions of all members of *group*, None if not one."""
    keys = set()
    for name in group.members:
        ranges = [range_of_dim(shapes[name].statement, dim) for dim in (0, 1)]
        keys.add(tuple(found.key for found in ranges if found is not None))
    return next(iter(keys)) if len(keys) == 1 and all(len(key) == 2 for key in keys) else None
