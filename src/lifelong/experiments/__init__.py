"""The paper's experiments: recipes, the runner that makes their runs, tuning, what is stored."""

from lifelong.extras import require_extra

require_extra("matplotlib", "sklearn", extra="experiments")
