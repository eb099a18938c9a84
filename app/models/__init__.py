"""The models that this server knows, what they take, and what was calibrated for them."""

from app.shared.wiring import FORMS, Feature, Page

FEATURE = Feature(
    __name__,
    {"models": "list the models that are known here"},
    Page("Setup", "Models", "models", ("base/frame",), FORMS),
)
