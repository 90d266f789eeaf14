"""The paper's experiments: recipes, the runner, engines, tuning, stored runs."""

from lifelong.extras import require_extra

require_extra("matplotlib", "sklearn", extra="experiments")
