"""The paper's figures, tables and claims, from stored runs, without torch."""

from lifelong.extras import require_extra

require_extra("matplotlib", extra="experiments")
