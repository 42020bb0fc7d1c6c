from ._request import RunRequest as RunRequest
from ._run import run as run
from ._spec import Spec as Spec
from ._spec import read_spec as read_spec
