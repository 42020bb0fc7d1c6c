from ._ask import TrainingStep as TrainingStep
from ._ask import plan as plan
from ._ask import training_step as training_step
from ._search.result import PlanResult as PlanResult
