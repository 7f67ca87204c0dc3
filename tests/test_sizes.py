"""Which numbers of nodes are allowed."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from bftrainer_slurm.sizes import ANY, Sizes

few = st.sets(st.integers(1, 30), min_size=1, max_size=6).map(lambda one: tuple(sorted(one)))
steps = st.builds(Sizes, step=st.integers(1, 9), without=st.one_of(st.just(()), few))
sizes = st.one_of(st.just(ANY), few.map(Sizes), steps)


@given(sizes, st.integers(0, 40), st.integers(0, 40))
@example(Sizes(step=2, without=(4, 6)), 1, 7)
def test_the_allowed_numbers_are_the_same_however_one_asks(
    these: Sizes, least: int, most: int
) -> None:
    every = range(1, 41)
    rest = [n for n in every if n % these.step == 0 and n not in these.without]
    allowed = list(these.only) or rest
    assert these.up_to(most) == max((n for n in allowed if n <= most), default=0)
    assert [n for n in these.between(least, most) if n] == [
        n for n in allowed if least <= n <= most
    ]
