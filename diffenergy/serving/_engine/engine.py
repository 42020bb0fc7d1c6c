"""`Engine`: constants of a serving engine on a host, with what follows from them."""

from typing import Final, get_args

import equinox as eqx
import jax.numpy as jnp
from jax import Array
from jaxtyping import Float

from .._request import EngineName, Sampling

ENGINES: Final = get_args(EngineName)
SAMPLING: Final[tuple[str, ...]] = get_args(Sampling)
"""Kinds of sampling: the largest logit; at random; from a sorted share of the logits;
the same after penalties on repeated tokens."""
SORTED_AT_ONCE: Final = 128
"""Rows from which PyTorch sorts all rows in one segmented sort."""
_WORDS: Final = 151_936
"""Vocabulary (Qwen3) that `sort_many` is stated for."""

Number = Float[Array, "*batch"]


class Engine(eqx.Module):
    """Constants of one engine on one host (`data/corrections/engines.toml`).

    Times in s: `step` and `sequence` of the host, `prompt` of a step with a prompt (all
    layers), `few` of sampling a sequence in fewer than 128, `start` and `many` of
    sampling more, `request` of HTTP and tokeniser. Factors on predicted time: `linear`,
    `attention`; on predicted energy beyond idle: `linear_energy`, `attention_energy`,
    `prefill_energy`. Power while sampling, W: `few_power`, `many_power`.
    """

    step: Number
    sequence: Number
    prompt: Number
    few: Number
    start: Number
    many: Number
    linear: Number
    attention: Number
    linear_energy: Number
    attention_energy: Number
    prefill_energy: Number
    few_power: Number
    many_power: Number
    request: Number

    def sampled(self, batch: Array, vocab: Array) -> Array:
        """Time to sample a token for `batch` sequences, s.

        PyTorch sorts row by row below 128 rows, bound by launches whatever the
        vocabulary; from there all rows at once, bound by the words.
        """
        many = self.start + self.many * batch * (vocab / _WORDS)
        return jnp.where(batch < SORTED_AT_ONCE, self.few * batch, many)

    def sampling_power(self, batch: Array) -> Array:
        """Power of a board that samples, W."""
        return jnp.where(batch < SORTED_AT_ONCE, self.few_power, self.many_power)

    def host_time(self, batch: Array) -> Array:
        """Time of a step that nothing on the GPU hides, s."""
        return self.step + self.sequence * batch
