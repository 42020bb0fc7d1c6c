"""Models that are placed."""

import functools

from diffenergy.workload import TrainedModel, load_model


@functools.cache
def decoder(name: str) -> TrainedModel:
    model = load_model(name)
    assert isinstance(model, TrainedModel)
    return model
