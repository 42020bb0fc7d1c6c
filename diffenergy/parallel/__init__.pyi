from ._ask import TrainingStep as TrainingStep
from ._ask import plan as plan
from ._ask import training_step as training_step
from ._search.result import PlanResult as PlanResult
from ._stage_clocks.ask import stage_clocks as stage_clocks
from ._stage_clocks.result import Replicas as Replicas
from ._stage_clocks.result import StageClocks as StageClocks
