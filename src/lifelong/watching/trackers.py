"""Events to trackers of experiments: TensorBoard, Weights & Biases, MLflow.

Each takes what the tracker's own library made, or makes it; nothing is logged that was not given.
"""

from pathlib import Path
from typing import Any, final

from lifelong.extras import require_extra
from lifelong.watching.events import Event, Scalars, StageBegan, TaskEnded, TaskFailed


@final
class TensorBoard:
    """A watcher that writes event files into a directory, by tensorboardX."""

    def __init__(self, directory: str | Path) -> None:
        require_extra("tensorboardX", extra="tensorboard")
        from tensorboardX import SummaryWriter

        self._writer = SummaryWriter(str(directory))
        self._scalars = Scalars()

    def __call__(self, event: Event) -> None:
        step, numbers = self._scalars(event)
        for name, number in numbers.items():
            self._writer.add_scalar(name, number, step)
        if isinstance(event, StageBegan):
            self._writer.add_text("training", event.stage, step)
        if isinstance(event, TaskEnded | TaskFailed):
            self._writer.flush()

    def close(self) -> None:
        """Write what is still held back."""
        self._writer.close()


@final
class WeightsAndBiases:
    """A watcher that logs to a run of Weights & Biases: `WeightsAndBiases(wandb.init(...))`."""

    def __init__(self, run: Any) -> None:
        require_extra("wandb", extra="wandb")
        self._run = run
        self._scalars = Scalars()

    def __call__(self, event: Event) -> None:
        step, numbers = self._scalars(event)
        if numbers:
            self._run.log(numbers, step=step)


@final
class MLflow:
    """A watcher that logs to a run of MLflow: that of this name, or the active one."""

    def __init__(self, run_id: str | None = None) -> None:
        require_extra("mlflow", extra="mlflow")
        import mlflow

        self._log = mlflow.log_metrics
        self._run_id = run_id
        self._scalars = Scalars()

    def __call__(self, event: Event) -> None:
        step, numbers = self._scalars(event)
        if numbers:
            self._log(numbers, step=step, run_id=self._run_id)
