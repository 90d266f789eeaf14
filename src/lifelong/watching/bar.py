"""A progress bar of the training that goes on."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.progress import Progress as Bars
from rich.progress import TextColumn

from lifelong.printing import Terminal
from lifelong.watching.events import Event, Validated, Watcher


@contextmanager
def progress_bar(task: str) -> Iterator[Watcher]:
    """Shown until the context ends; it is told of every look at the validation loss."""
    title = TextColumn("{task.description}", markup=False)
    columns = (title, *Bars.get_default_columns()[1:])
    with Bars(*columns, console=Terminal(), transient=True) as bars:
        bar = bars.add_task(task)

        def show(event: Event) -> None:
            if isinstance(event, Validated):
                most = event.most_steps
                bars.update(bar, description=event.stage, completed=event.step, total=most)

        yield show
