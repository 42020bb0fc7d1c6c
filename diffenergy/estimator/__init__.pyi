from ._ask import estimate as estimate
from ._estimate import Estimate as Estimate
from ._jax_setup import start_jax as start_jax
from ._requests import Task as Task
from ._requests import prepare as prepare
from ._settings import Setting as Setting
from ._summary import EstimateResult as EstimateResult
