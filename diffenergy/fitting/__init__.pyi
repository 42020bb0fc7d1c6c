from ._ask import MAX_STEPS as MAX_STEPS
from ._ask import fit as fit
from ._calibrate import MAX_ROWS as MAX_ROWS
from ._predict import EvaluateResult as EvaluateResult
from ._predict import evaluate as evaluate
from ._predict import predict as predict
from ._result import FitResult as FitResult
