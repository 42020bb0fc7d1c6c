"""Records: one trace for every kind of number, one shape for all leaves."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array
from jaxtyping import Float, Int

from diffenergy.records import Record, as_float, as_index


class Pair(Record):
    """Two columns and a row of units."""

    size: Float[Array, "*k"] = eqx.field(converter=as_float)
    rates: Float[Array, "*k unit"] = eqx.field(converter=as_float)
    code: Int[Array, "*k"] = eqx.field(converter=as_index, default=0)


@pytest.mark.parametrize(
    "x", [3, 3.0, True, np.float32(3), np.int64(3), jnp.asarray(3, jnp.int32), [1, 2.5]]
)
def test_as_float_is_one_strong_type(x):
    got = as_float(x)
    assert got.dtype == jnp.float64 and not got.weak_type
    with jax.enable_x64(False):
        assert as_float(x).dtype == jnp.float32


def test_as_index():
    assert as_index([0, 3]).dtype == jnp.int32


def test_every_kind_of_number_gives_the_same_trace():
    traces = 0

    @jax.jit
    def total(pair: Pair) -> Array:
        nonlocal traces
        traces += 1
        return pair.size * jnp.sum(pair.rates)

    for size in (4, 4.0, np.float32(4), np.int64(4), jnp.asarray(4.0)):
        assert total(Pair(size, [1, 2])) == 12
    assert traces == 1


def test_batches_must_agree():
    assert Pair([1, 2, 3], np.ones((3, 8)), [0, 1, 2]).size.shape == (3,)
    with pytest.raises(ValueError, match="Pair.rates"):
        Pair([1, 2, 3], np.ones((2, 8)), [0, 1, 2])
    with pytest.raises(ValueError, match="Pair.code"):
        Pair([1, 2, 3], np.ones((3, 8)))


def test_records_are_frozen_and_stack():
    one = Pair(1, [1, 2])
    with pytest.raises(AttributeError):
        one.size = jnp.zeros(())  # pyright: ignore[reportAttributeAccessIssue]
    both = jax.tree.map(lambda *x: jnp.stack(x), one, Pair(2, [3, 4]))
    assert both.rates.tolist() == [[1, 2], [3, 4]]
