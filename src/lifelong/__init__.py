"""Networks that keep learning, task after task, and grow only where they must."""

from lifelong.budget import Budget
from lifelong.den import DEN, Settings
from lifelong.skeleton import alexnet, convnet, mlp
from lifelong.tasks import Kind, Task, TaskError

__all__ = [
    "DEN",
    "Budget",
    "Kind",
    "Settings",
    "Task",
    "TaskError",
    "alexnet",
    "convnet",
    "mlp",
]
