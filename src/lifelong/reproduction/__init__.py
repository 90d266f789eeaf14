"""The paper's figures and tables, and what became of its claims: stored runs, and no torch."""

from lifelong.extras import require_extra

require_extra("matplotlib", extra="experiments")
