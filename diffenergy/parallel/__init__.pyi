from ._ask import TrainingStep as TrainingStep
from ._ask import training_step as training_step
