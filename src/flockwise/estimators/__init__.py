"""Personal models inside scikit-learn: estimators that learn one model per agent from a table of rows."""

from flockwise.errors import MissingExtra

try:
    import sklearn as _sklearn  # noqa: F401
except ImportError as error:
    raise MissingExtra("flockwise.estimators", "sklearn") from error

from flockwise.estimators.personalized import PersonalizedClassifier, PersonalizedRegressor

__all__ = ["PersonalizedClassifier", "PersonalizedRegressor"]
