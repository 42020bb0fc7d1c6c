from . import codesign as codesign
from . import collectives as collectives
from . import dvfs as dvfs
from . import estimator as estimator
from . import fitting as fitting
from . import measure as measure
from . import measurements as measurements
from . import report as report
from . import units as units
from .compiling import compiler_options as compiler_options
from .corrections import Corrections as Corrections
from .corrections import read_corrections as read_corrections
from .estimator import Estimate as Estimate
from .estimator import EstimateResult as EstimateResult
from .estimator import estimate as estimate
from .hardware import GpuSpec as GpuSpec
from .hardware import OperatingPoint as OperatingPoint
from .hardware import gpu_names as gpu_names
from .hardware import load_gpu as load_gpu
from .results import Infeasible as Infeasible
from .workload import Workload as Workload
from .workload import load_model as load_model
from .workload import load_workload as load_workload
from .workload.models import model_names as model_names

__version__: str
