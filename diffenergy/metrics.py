"""Figures of merit made of time, energy and tokens."""

Number = int | float


def edp(energy: Number, time: Number) -> float:
    """Energy-delay product, J s.

    >>> edp(2.0, 3.0)
    6.0
    """
    return energy * time


def ed2p(energy: Number, time: Number) -> float:
    """Energy times delay squared, J s^2.

    >>> ed2p(2.0, 3.0)
    18.0
    """
    return energy * time**2


def ttft(prefill_time: Number) -> float:
    """Time to first token, s: the prefill pass, without queue and network."""
    return prefill_time


def tpot(decode_time: Number, output_len: int) -> float | None:
    """Mean time of an output token after the first, s; None if there is only one.

    >>> tpot(1.27, 128)
    0.01
    """
    return decode_time / (output_len - 1) if output_len > 1 else None


def tokens_per_second(time: Number, batch: Number, output_len: int) -> float:
    """Output tokens of all sequences per second of the whole request."""
    return batch * output_len / time


def energy_per_token(energy: Number, batch: Number, output_len: int) -> float:
    """Energy of the whole request per output token of all sequences, J."""
    return energy / (batch * output_len)
